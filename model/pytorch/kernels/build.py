"""Compiles the native kernels when headlight is installed; the running service never imports this."""

import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from model.pytorch.kernels.sources import FOLDER, checksum

_COMMON = ("-std=c++17", "-O3", "-fPIC", "-fopenmp", "-fvisibility=hidden", "-Wall", "-Wextra")
# GCC 12 warns about the deliberately undefined vectors in its own AVX-512 headers.
_MISTAKEN = ("-Wno-uninitialized", "-Wno-maybe-uninitialized")
_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mf16c")
_AVX512_BF16 = (*_AVX512, "-mavx512bf16")
_FLOAT32, _BFLOAT16 = (f"-DHEADLIGHT_PRECISION={name}" for name in ("Float32", "Bfloat16"))
# The linker keeps the first copy of an inline function of the standard library, so the oldest instruction set
# goes first: its code runs on every processor. The headers give each set a namespace (vectors/vector.h).
_OBJECTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("layers", ()),
    ("steps", (*_AVX2, "-DHEADLIGHT_KERNELS=float32_avx2", _FLOAT32)),
    ("steps", (*_AVX512, "-DHEADLIGHT_KERNELS=float32_avx512", _FLOAT32)),
    ("steps", (*_AVX512, "-DHEADLIGHT_KERNELS=bfloat16_avx512", _BFLOAT16)),
    ("steps", (*_AVX512_BF16, "-DHEADLIGHT_KERNELS=bfloat16_avx512_bf16", _BFLOAT16)),
    ("int8", (*_AVX512, "-mavx512vnni", "-DHEADLIGHT_KERNELS=float32", _FLOAT32)),
    ("int8", (*_AVX512_BF16, "-mavx512vnni", "-DHEADLIGHT_KERNELS=bfloat16", _BFLOAT16)),
    ("stored", _AVX512),
    ("amx", (*_AVX512_BF16, "-mamx-tile", "-mamx-bf16")),
)
"""Sources, and the options they are compiled with."""


class NotBuilt(Exception):
    """The kernels cannot be compiled on this machine; the message says why, in one sentence."""


def find_compiler() -> list[str]:
    """Return the compiler command: CXX, or GCC, whose OpenMP PyTorch uses; raises NotBuilt."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NotBuilt(f"there are no kernels for {platform.machine()} on {sys.platform}.")
    name, *options = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    compiler = shutil.which(name)
    if compiler is None:
        raise NotBuilt(f"the C++ compiler {name} is not installed: install it, or set CXX.")
    return [compiler, *options]


def build(target: Path, options: Sequence[str] = ()) -> None:
    """Compile the kernels into a shared library, replacing an older one; raises NotBuilt.

    The library is not linked with OpenMP: PyTorch has already loaded its own, and two runtimes would compete
    for the cores.
    """
    target.unlink(missing_ok=True)  # processes that have loaded it keep it
    compiler = find_compiler()
    common = (*_COMMON, *_MISTAKEN, f"-DHEADLIGHT_SOURCES={checksum()}")
    with TemporaryDirectory() as folder:
        objects = [str(Path(folder) / f"{number}.o") for number in range(len(_OBJECTS))]

        def compile_one(made: str, source: str, instructions: Sequence[str]) -> None:
            given = (*compiler, *common, *instructions, *options)
            _run(*given, "-c", str(FOLDER / f"{source}.cpp"), "-o", made)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compile_one, objects, *zip(*_OBJECTS, strict=True)))
        made = Path(folder) / target.name
        _run(*compiler, "-shared", *options, *objects, "-o", str(made))
        # Rename a complete file into place: no process can load a partial library.
        beside = target.with_suffix(f".{os.getpid()}")
        shutil.copyfile(made, beside)
        beside.replace(target)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        error = next((line for line in lines if "error" in line), lines[-1])
        raise NotBuilt(f"the C++ compiler failed: {error}.")
