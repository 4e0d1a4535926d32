"""Loads the compiled kernels, chooses those that the processor can run, and calls them through ctypes.

They are built when headlight is installed, if there is a C++ compiler (`hatch_build.py`), and never at
run time. ctypes releases the interpreter lock during a call. The threads are those of PyTorch's OpenMP: the
library links to no OpenMP of its own.
"""

import ctypes
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from model.encoder.parts import Activation
from model.errors import Stopped
from model.pytorch.kernels.instructions import AVX512_VNNI, KERNEL_SETS, LACKING, STORED_WEIGHTS, KernelSet
from model.pytorch.kernels.sources import checksum

FILE = Path(__file__).parent / "libheadlight.so"

ACTIVATIONS: tuple[Activation | None, ...] = (None, "relu", "gelu", "gelu_tanh", "silu")
"""Those of products, in the order of `Activation` in interface.h."""

STORED = (torch.float32, torch.float16, torch.bfloat16)
"""The types of weights as a file holds them, in the order of `StoredType` in interface.h."""

LINE = 64
"""The size of a cache line in bytes."""

_DONE, _NO_MEMORY, _STOPPED = 0, -1, -3


class _Place(ctypes.Structure):
    """Where a function lies: `Dl_info` of dladdr(3)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class NoKernels(Exception):
    """No native kernels can run this model; the message says why, as a clause without a full stop."""


class Products(NamedTuple):
    """Products, whose weights lie in panels of some columns each."""

    multiply: Any
    columns: int
    int8: bool = False
    """Whether they also multiply weights of eight bits."""


class Kernels(NamedTuple):
    """The kernels for one precision on this processor; `instructions` is the name of their set."""

    instructions: str
    run_layers: Any
    attend: Any
    add_norm: Any
    rotate: Any
    gate: Any
    route: Any
    collect: Any
    embed: Any
    products: Products
    head_step: int = 16
    multiplies_pairs: bool = False
    tiled: bool = False
    """These three are as in `KernelSet`."""

    @staticmethod
    def of(library: ctypes.CDLL, kernels: KernelSet) -> "Kernels":
        """Look up kernels in a library."""
        steps = kernels.steps or kernels

        def find(step: str, kernels: KernelSet = steps) -> Any:
            return getattr(library, f"headlight_{step}_{kernels.name}")

        return Kernels(
            kernels.instructions.name,
            library.headlight_run_layers,
            find("attend", kernels),
            find("add_norm"),
            find("rotate"),
            find("gate"),
            find("route"),
            find("collect"),
            find("embed"),
            Products(find("multiply", kernels), _columns(library, kernels)),
            kernels.head_step,
            kernels.multiplies_pairs,
            kernels.tiled,
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
        _share_openmp()
        library = ctypes.CDLL(str(FILE))
        sources = ctypes.c_uint32.in_dll(library, "headlight_sources").value
    except (OSError, ValueError, AttributeError) as error:
        raise NoKernels(f"the built library cannot be loaded ({error}): {again}") from error
    if sources != checksum():
        raise NoKernels(f"they were built for another version: {again}")
    return library


def _share_openmp() -> None:
    """Let libraries that are loaded from now on use the OpenMP of PyTorch.

    PyTorch's wheels for ARM64 load it for themselves alone, unlike those for x86-64.
    """
    function = ctypes.CDLL("libtorch_cpu.so").omp_get_thread_num  # loaded already: found by its name
    place = _Place()
    if ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(place)):
        ctypes.CDLL(place.file.decode(), mode=ctypes.RTLD_GLOBAL)


def find_kernels(dtype: torch.dtype, capabilities: Mapping[str, bool] | None = None) -> Kernels:
    """Find the fastest kernels for a precision; raises NoKernels if none run on this processor.

    `capabilities` are in the form of `torch.cpu.get_capabilities()`, which is also the default, with one more
    of our own: `slow_avx512_bf16`.
    """
    return Kernels.of(_library(), _find(dtype, capabilities)[0])


def find_int8_kernels(
    capabilities: Mapping[str, bool] | None = None, *, head_size: int = 0
) -> tuple[Kernels, torch.dtype]:
    """Find kernels whose products are of eight-bit integers, and the precision of what is between them.

    That is bfloat16 where attention runs faster in it. Heads of `head_size` that fill no rows of AMX's tiles
    are attended with vectors. Raises NoKernels if the processor has none.
    """
    library = _library()
    can = _capabilities(library) if capabilities is None else capabilities
    if not all(map(can.get, AVX512_VNNI.capabilities)):
        raise NoKernels("the processor has no AVX512-VNNI")
    found, dtype = _find(torch.bfloat16, can), torch.bfloat16
    kernels = next((one for one in found if head_size % one.head_step == 0), found[-1])
    if not kernels.multiplies_pairs:
        kernels, dtype = _find(torch.float32, can)[0], torch.float32
    multiply = getattr(library, f"headlight_multiply_int8_{_name(dtype)}")
    return Kernels.of(library, kernels)._replace(
        instructions=(kernels.instructions if kernels.tiled else AVX512_VNNI).name,
        products=Products(multiply, _columns(library, kernels.steps or kernels), int8=True),
    ), dtype


def kernels_of_stored_weights() -> Kernels:
    """Return kernels in float32 whose products read weights as a file holds them; they need AVX-512.

    Their results have the same bits as those of the kernels for float32.
    """
    library = _library()
    kernels = Kernels.of(library, KernelSet("float32", STORED_WEIGHTS))
    return kernels._replace(products=Products(library.headlight_multiply_stored, kernels.products.columns))


def end_threads() -> None:
    """End the threads that passes of the calling thread have started."""
    _library().headlight_end_threads()


def _find(dtype: torch.dtype, capabilities: Mapping[str, bool] | None) -> list[KernelSet]:
    """Find the kernels for a precision that run on this processor, the fastest first; raises NoKernels."""
    library, precision = _library(), _name(dtype)
    can = _capabilities(library) if capabilities is None else capabilities
    if precision not in LACKING:
        raise NoKernels(f"there are none for {precision}")
    found = [one for one in KERNEL_SETS if one.precision == precision and one.suits(can)]
    found = [one for one in found if not one.tiled or library.headlight_enable_amx() == 1]
    if not found:
        raise NoKernels(LACKING[precision])
    return found


def _columns(library: ctypes.CDLL, kernels: KernelSet) -> int:
    """The columns of a panel."""
    return ctypes.c_int64.in_dll(library, f"headlight_columns_{kernels.name}").value


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _capabilities(library: ctypes.CDLL) -> dict[str, bool]:
    """Those of PyTorch, and whether one VDPBF16PS takes longer than two float32 FMAs of the same work."""
    return {**torch.cpu.get_capabilities(), "slow_avx512_bf16": library.headlight_is_intel() == 1}
