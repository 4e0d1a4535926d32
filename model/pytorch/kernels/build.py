"""Compiles the kernels, when headlight is installed; nothing here is imported while it runs."""

import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from model.pytorch.kernels.sources import FOLDER, checksum

_COMMON = ("-std=c++17", "-O3", "-fPIC", "-fopenmp", "-fvisibility=hidden", "-Wall", "-Wextra")
# GCC 12 takes its own undefined vectors, in the headers of AVX-512, for ours.
_MISTAKEN = ("-Wno-uninitialized", "-Wno-maybe-uninitialized")
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mf16c")
_BFLOAT16 = (*_AVX512, "-mavx512bf16")
# Of what the headers define, the code of the first is linked for all: the least demanding come first.
_SOURCES: dict[str, tuple[str, ...]] = {
    "layers": (),
    "float32": _AVX512,
    "bfloat16": _BFLOAT16,
    "amx": (*_BFLOAT16, "-mamx-tile", "-mamx-bf16"),
}


class NotBuilt(Exception):
    """The kernels cannot be compiled here; the message says why, in one sentence."""


def find_compiler() -> list[str]:
    """Find GCC, the compiler whose OpenMP is PyTorch's, or what CXX says: a command; raises NotBuilt."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NotBuilt(f"there are no kernels for {platform.machine()} with {sys.platform}.")
    name, *options = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    compiler = shutil.which(name)
    if compiler is None:
        raise NotBuilt(f"there is no C++ compiler {name}.")
    return [compiler, *options]


def build(target: Path, options: Sequence[str] = ()) -> None:
    """Compile the kernels to a shared library, in the place of an older one; raises NotBuilt.

    It is not linked with OpenMP: PyTorch has loaded its own by the time, and two would fight for the cores.
    """
    target.unlink(missing_ok=True)  # processes that have it open keep it
    compiler = find_compiler()
    common = (*_COMMON, *_MISTAKEN, f"-DHEADLIGHT_SOURCES={checksum()}")
    with TemporaryDirectory() as folder:
        objects = []
        for name, instructions in _SOURCES.items():
            objects.append(str(Path(folder) / f"{name}.o"))
            source = str(FOLDER / f"{name}.cpp")
            _run(*compiler, *common, *instructions, *options, "-c", source, "-o", objects[-1])
        made = Path(folder) / target.name
        _run(*compiler, "-shared", *options, *objects, "-o", str(made))
        # Nobody may load half of it.
        beside = target.with_suffix(f".{os.getpid()}")
        shutil.copyfile(made, beside)
        beside.replace(target)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        error = next((line for line in lines if "error" in line), lines[-1])
        raise NotBuilt(f"the C++ compiler failed: {error}.")
