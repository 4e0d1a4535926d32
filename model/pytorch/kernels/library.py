"""Loads the compiled kernels, chooses those that the processor can run, and calls them through ctypes.

They are built when headlight is installed, if there is a C++ compiler (`hatch_build.py`), and never at
run time. ctypes releases the interpreter lock during a call. The threads are those of PyTorch's OpenMP: the
library links to no OpenMP of its own.
"""

import ctypes
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from model.encoder.parts import Activation
from model.errors import Stopped
from model.pytorch.kernels.sources import checksum

FILE = Path(__file__).parent / "libheadlight.so"

Instructions = Literal["avx2", "avx512", "avx512_bf16", "avx512_vnni", "amx"]
"""The instruction set that a kernel uses."""

ACTIVATIONS: tuple[Activation | None, ...] = (None, "relu", "gelu", "gelu_tanh", "silu")
"""Those of products, in the order of `Activation` in interface.h."""

STORED = (torch.float32, torch.float16, torch.bfloat16)
"""The types of weights as a file holds them, in the order of `StoredType` in interface.h."""

LINE = 64
"""The size of a cache line in bytes."""

_DONE, _NO_MEMORY, _STOPPED = 0, -1, -3
_TILE_HEAD_STEP = 32


class NoKernels(Exception):
    """No native kernels can run this model; the message says why, as a clause without a full stop."""


class Products(NamedTuple):
    """Products, whose weights lie in panels of some columns each."""

    multiply: Any
    columns: int
    int8: bool = False
    """Whether they also multiply weights of eight bits."""


class Kernels(NamedTuple):
    """The kernels for one precision on this processor."""

    instructions: Instructions
    run_layers: Any
    attend: Any
    add_norm: Any
    rotate: Any
    gate: Any
    route: Any
    collect: Any
    embed: Any
    products: Products

    @property
    def head_step(self) -> int:
        """The number whose multiples head sizes must be, to fill whole vectors, or rows of a tile."""
        return {"avx2": 8, "amx": _TILE_HEAD_STEP}.get(self.instructions, 16)

    @property
    def multiplies_pairs(self) -> bool:
        """Whether products in bfloat16 are faster than in float32: with instructions made for them."""
        return self.instructions in ("amx", "avx512_bf16")

    @staticmethod
    def of(library: ctypes.CDLL, instructions: Instructions, steps: str) -> "Kernels":
        """Look up the kernels in a library, by the name that ends those of their steps."""

        def find(step: str, steps: str = steps) -> Any:
            return getattr(library, f"headlight_{step}_{steps}")

        with_tiles = "bfloat16_amx" if instructions == "amx" else steps
        return Kernels(
            instructions,
            library.headlight_run_layers,
            find("attend", with_tiles),
            find("add_norm"),
            find("rotate"),
            find("gate"),
            find("route"),
            find("collect"),
            find("embed"),
            Products(find("multiply", with_tiles), _columns(library, with_tiles)),
        )


def check(outcome: int) -> None:
    """Raise MemoryError, Stopped or ValueError for the return value of a kernel that did not finish."""
    if outcome == _NO_MEMORY:
        raise MemoryError("a native kernel could not allocate memory")
    if outcome == _STOPPED:
        raise Stopped
    if outcome != _DONE:
        raise ValueError("a native kernel was given arrays whose shapes do not match")


@cache
def _library() -> ctypes.CDLL:
    """Load the library that was built; raises NoKernels."""
    again = "install headlight again on a machine with a C++ compiler"
    if not FILE.exists():
        raise NoKernels(f"they were not built: {again}")
    try:
        library = ctypes.CDLL(str(FILE))
        sources = ctypes.c_uint32.in_dll(library, "headlight_sources").value
    except (OSError, ValueError) as error:
        raise NoKernels(f"the built library cannot be loaded ({error}): {again}") from error
    if sources != checksum():
        raise NoKernels(f"they were built for another version: {again}")
    return library


def find_kernels(dtype: torch.dtype, capabilities: Mapping[str, bool] | None = None) -> Kernels:
    """Find the fastest kernels for a precision; raises NoKernels if none run on this processor.

    `capabilities` are in the form of `torch.cpu.get_capabilities()`, which is also the default, with one more
    of our own: `slow_avx512_bf16`.
    """
    library = _library()
    kernels = partial(Kernels.of, library)
    can = _capabilities(library) if capabilities is None else capabilities
    avx512 = all(can.get(f"avx512_{part}") for part in ("f", "bw", "vl", "dq"))
    if dtype == torch.float32:
        if avx512:
            return kernels("avx512", "float32_avx512")
        if all(can.get(part) for part in ("avx2", "fma3", "f16c")):
            return kernels("avx2", "float32_avx2")
        raise NoKernels("the processor has neither AVX-512 nor AVX2 with FMA and F16C")
    if dtype != torch.bfloat16:
        raise NoKernels(f"there are none for {str(dtype).removeprefix('torch.')}")
    if not avx512:
        raise NoKernels("the processor has no AVX-512, which those for bfloat16 need")
    if not can.get("avx512_bf16"):
        return kernels("avx512", "bfloat16_avx512")
    if can.get("amx_tile") and can.get("amx_bf16") and library.headlight_enable_amx() == 1:
        return kernels("amx", "bfloat16_avx512_bf16")
    if can.get("slow_avx512_bf16"):
        return kernels("avx512", "bfloat16_avx512")
    return kernels("avx512_bf16", "bfloat16_avx512_bf16")


def find_int8_kernels(
    capabilities: Mapping[str, bool] | None = None, *, head_size: int = _TILE_HEAD_STEP
) -> tuple[Kernels, torch.dtype]:
    """Find kernels whose products are of eight-bit integers, and the precision of what is between them.

    That is bfloat16 where attention runs faster in it. Heads that fill no rows of AMX's tiles are attended
    with vectors. Raises NoKernels if the processor has none.
    """
    library = _library()
    can = _capabilities(library) if capabilities is None else capabilities
    if head_size % _TILE_HEAD_STEP:
        can = {**can, "amx_tile": False}
    if not can.get("avx512_vnni"):
        raise NoKernels("the processor has no AVX512-VNNI")
    kernels, dtype = find_kernels(torch.bfloat16, can), torch.bfloat16
    if not kernels.multiplies_pairs:
        kernels, dtype = find_kernels(torch.float32, can), torch.float32
    name = str(dtype).removeprefix("torch.")
    steps = "bfloat16_avx512_bf16" if dtype == torch.bfloat16 else "float32_avx512"
    products = Products(
        getattr(library, f"headlight_multiply_int8_{name}"), _columns(library, steps), int8=True
    )
    instructions = kernels.instructions if kernels.instructions == "amx" else "avx512_vnni"
    return kernels._replace(instructions=instructions, products=products), dtype


def kernels_of_stored_weights() -> Kernels:
    """Return kernels in float32 whose products read weights as a file holds them; they need AVX-512.

    Their results have the same bits as those of the kernels for float32.
    """
    library = _library()
    products = Products(library.headlight_multiply_stored, _columns(library, "float32_avx512"))
    return Kernels.of(library, "avx512", "float32_avx512")._replace(products=products)


def end_threads() -> None:
    """End the threads that passes of the calling thread have started."""
    _library().headlight_end_threads()


def _columns(library: ctypes.CDLL, steps: str) -> int:
    """The columns of a panel."""
    return ctypes.c_int64.in_dll(library, f"headlight_columns_{steps}").value


def _capabilities(library: ctypes.CDLL) -> dict[str, bool]:
    """Those of PyTorch, and whether one VDPBF16PS takes longer than two float32 FMAs of the same work."""
    return {**torch.cpu.get_capabilities(), "slow_avx512_bf16": library.headlight_is_intel() == 1}
