"""Compiles the native kernels when headlight is installed; the running service never imports this."""

import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from model.pytorch.kernels.instructions import (
    AVX2,
    AVX512,
    EIGHT_BITS,
    KERNEL_SETS,
    NEON,
    Instructions,
    KernelSet,
)
from model.pytorch.kernels.sources import FOLDER, checksum

_COMMON = ("-std=c++20", "-O3", "-fPIC", "-fopenmp", "-fvisibility=hidden", "-Wall", "-Wextra")
# GCC 12 warns about the deliberately undefined vectors in its own AVX-512 headers, and about fields that are
# left out, which are zero.
_MISTAKEN = ("-Wno-uninitialized", "-Wno-maybe-uninitialized", "-Wno-missing-field-initializers")


class _Object(NamedTuple):
    """A source, compiled for some instructions; `kernels` ends the names of its functions."""

    source: str
    instructions: Instructions | None = None
    kernels: str = ""
    precision: str = "float32"

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the compiler."""
        if self.instructions is None:
            return ()
        return (
            *self.instructions.flags,
            f"-DHEADLIGHT_INSTRUCTIONS={self.instructions.name}",
            f'-DHEADLIGHT_VECTORS="{self.instructions.vectors}.h"',
            f"-DHEADLIGHT_KERNELS={self.kernels}",
            f"-DHEADLIGHT_PRECISION={self.precision.capitalize()}",
        )


# The linker keeps the first copy of an inline function of the standard library, so the oldest instruction set
# goes first: its code runs on every processor. The headers give each set a namespace (vectors/vector.h).
_SETS = (
    *reversed(KERNEL_SETS),
    *reversed(EIGHT_BITS),
    # In eight bits, passes that observe attention use weights as a file holds them.
    *(KernelSet("float32", one, source="stored") for one in (AVX2, AVX512, NEON)),
)
_OBJECTS = [_Object(one.source, one.instructions, one.name, one.precision) for one in _SETS]
_MACHINES = {one.instructions.machine for one in KERNEL_SETS}


class NotBuilt(Exception):
    """The kernels cannot be compiled on this machine; the message says why, in one sentence."""


def find_compiler() -> list[str]:
    """Return the compiler command: CXX, or GCC, whose OpenMP PyTorch uses; raises NotBuilt."""
    named = shlex.split(os.environ.get("CXX", ""))
    if sys.platform != "linux" or not (named or platform.machine() in _MACHINES):
        raise NotBuilt(f"there are no kernels for {platform.machine()} on {sys.platform}.")
    name, *options = named or ["g++"]
    compiler = shutil.which(name)
    if compiler is None:
        raise NotBuilt(f"the C++ compiler {name} is not installed: install it, or set CXX.")
    return [compiler, *options]


def find_machine(compiler: Sequence[str]) -> str:
    """Return the kind of processor that a compiler compiles for, as in `Instructions`; raises NotBuilt.

    That is not always the machine that this runs on: CXX may name a cross compiler.
    """
    target = _run(*compiler, "-dumpmachine").strip()
    machine = target.partition("-")[0]
    if "linux" not in target or machine not in _MACHINES:
        raise NotBuilt(f"there are no kernels for {target}.")
    return machine


def _objects_for(machine: str, kernels: Collection[str]) -> list[_Object]:
    among = [one for one in _OBJECTS if not kernels or one.kernels in kernels]
    chosen = [one for one in among if one.instructions and one.instructions.machine == machine]
    return [_Object("layers"), *chosen]


def build(target: Path, options: Sequence[str] = (), kernels: Collection[str] = ()) -> None:
    """Compile the kernels for one kind of processor into a shared library, replacing an older one.

    `kernels` are the names of the sets to compile, by default all. Raises NotBuilt.

    The library is not linked with OpenMP: PyTorch has already loaded its own, and two runtimes would compete
    for the cores.
    """
    target.unlink(missing_ok=True)  # processes that have loaded it keep it
    compiler = find_compiler()
    machine = find_machine(compiler)
    processor = f'-DHEADLIGHT_PROCESSOR="processors/{machine}.h"'
    common = (*_COMMON, *_MISTAKEN, f"-DHEADLIGHT_SOURCES={checksum()}", processor)
    sources = _objects_for(machine, kernels)
    with TemporaryDirectory() as folder:
        objects = [str(Path(folder) / f"{number}.o") for number in range(len(sources))]

        def compile_one(made: str, one: _Object) -> None:
            given = (*compiler, *common, *one.options, *options)
            _run(*given, "-c", str(FOLDER / f"{one.source}.cpp"), "-o", made)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compile_one, objects, sources))
        made = Path(folder) / target.name
        _run(*compiler, "-shared", *options, *objects, "-o", str(made))
        # Rename a complete file into place: no process can load a partial library.
        beside = target.with_suffix(f".{os.getpid()}")
        shutil.copyfile(made, beside)
        beside.replace(target)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        error = next((line for line in lines if "error" in line), lines[-1])
        raise NotBuilt(f"the C++ compiler failed: {error}.")
    return done.stdout
