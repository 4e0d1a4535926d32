#!/usr/bin/env bash
# Installs what the tests of Kubernetes and Ray need, into ~/.cache/headlight-deploy. What is there already stays.
#
#     tests/deploy/install_clusters.sh [kustomize] [ray]
set -euo pipefail
cd "$(dirname "$0")/../.."

source tests/deploy/installing.sh
parts=("$@")
[ $# -gt 0 ] || parts=(kustomize ray)

# An environment of its own, for these versions: what a node of a Ray cluster that serves headlight has.
install_ray() {
  local requirements=(requirements-onnx.lock deploy/ray/requirements.txt)
  local stamp
  stamp=$(cat "${requirements[@]}" | sha256sum)
  if [ "$stamp" != "$(cat "$cache/ray/stamp" 2> /dev/null)" ]; then
    echo "Installing Ray, which takes a minute"
    rm -rf "$cache/ray"
    python3 -m venv "$cache/ray"
    "$cache/ray/bin/pip" install --quiet --disable-pip-version-check \
      -r "${requirements[0]}" -r "${requirements[1]}"
    echo "$stamp" > "$cache/ray/stamp"
  fi
  "$cache/ray/bin/pip" install --quiet --disable-pip-version-check --no-deps --force-reinstall .
}

if wanted kustomize; then
  install_of_trixie kustomize
fi
if wanted ray; then
  install_ray
fi
