#!/usr/bin/env bash
# Installs what the tests of Kubernetes and Ray need, into ~/.cache/headlight-deploy. What is there already stays.
#
#     tests/deploy/install_clusters.sh [kustomize] [ray]
set -euo pipefail
cd "$(dirname "$0")/../.."

cache=${XDG_CACHE_HOME:-$HOME/.cache}/headlight-deploy
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
parts=("$@")
[ $# -gt 0 ] || parts=(kustomize ray)
mkdir -p "$cache/bin"

wanted() {
  [[ " ${parts[*]} " == *" $1 "* ]]
}

# Of Debian 13, unpacked beside the system: Debian 12 has none.
install_kustomize() {
  [ ! -x "$cache/bin/kustomize" ] || return 0
  echo "Fetching kustomize of Debian 13"
  local folder
  folder=$(mktemp -d)
  mkdir -p "$folder/lists/partial" "$folder/deb"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" > "$folder/sources"
  local options=(-qq -o "Dir::Etc::sourcelist=$folder/sources" -o Dir::Etc::sourceparts=-
    -o "Dir::State::lists=$folder/lists" -o APT::Sandbox::User=root -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
  apt-get "${options[@]}" update
  (cd "$folder" && apt-get "${options[@]}" download kustomize)
  dpkg-deb --extract "$folder"/kustomize_*.deb "$folder/deb"
  install "$(find "$folder/deb" -type f -name kustomize -perm -u+x)" "$cache/bin/kustomize"
  rm -rf "$folder"
}

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
  install_kustomize
fi
if wanted ray; then
  install_ray
fi
