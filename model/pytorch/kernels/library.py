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

from model.encoder.config import EncoderConfig
from model.encoder.parts import Activation
from model.errors import Stopped
from model.pytorch.kernels.instructions import (
    EIGHT_BITS,
    KERNEL_SETS,
    LACKING,
    LACKING_ON_ARM64,
    KernelSet,
)
from model.pytorch.kernels.sources import checksum

FILE = Path(__file__).parent / "libheadlight.so"

ACTIVATIONS: tuple[Activation | None, ...] = (None, "relu", "gelu", "gelu_tanh", "silu")
"""The activations of products, in the order of `Activation` in interface.h."""

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


class Rounding(NamedTuple):
    """How numbers are rounded: to whole ones from -`steps` to `steps`, with a scale for each `group` inputs.

    Weights are stored with `added` added to them, as unsigned bytes; as signed ones if it is 0.
    """

    steps: int
    group: int
    added: int


class Products(NamedTuple):
    """Products of the kernels, whose weights lie in panels of `columns` columns each."""

    multiply: Any
    columns: int
    int8: Rounding | None = None
    """How weights are rounded to eight bits; None for products of floats."""
    widens: bool = False
    """Whether they multiply weights in bfloat16, but read and write float32: see `KernelSet`."""
    word: int = 4
    """How many bytes of a panel's column lie together: see `lay_out`."""


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
    """The last three are as in `KernelSet`."""

    @staticmethod
    def of(library: ctypes.CDLL, kernels: KernelSet) -> "Kernels":
        """Look up kernels in a library."""
        steps = kernels.steps or kernels

        def find(step: str, kernels: KernelSet = steps) -> Any:
            return getattr(library, f"headlight_{step}_{kernels.name}")

        return Kernels(
            kernels.instructions.name,
            library.headlight_run_layers,
            find("attend", steps if kernels.widens else kernels),
            find("add_norm"),
            find("rotate"),
            find("gate"),
            find("route"),
            find("collect"),
            find("embed"),
            Products(
                find("multiply", kernels),
                _constant(library, "columns", kernels),
                widens=kernels.widens,
                word=kernels.word,
            ),
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

    `capabilities` are those of `_capabilities` by default.
    """
    return Kernels.of(_library(), _find(dtype, capabilities)[0])


def _check_supported(config: EncoderConfig) -> None:
    """Raise NoKernels for an encoder that the kernels of no processor run."""
    if config.similarity != "dot_product":
        raise NoKernels("they support only dot products of queries and keys")
    if config.qk_norm not in (None, "rms"):
        raise NoKernels("they support only RMS norms of queries and keys")
    if config.double_residual:
        raise NoKernels("they support only one residual around a sub-layer")
    if config.has_own_parts:
        raise NoKernels("they support only layers that are alike")
    if config.norm == "post" and not all(layer.attention_norm for layer in config.layers):
        raise NoKernels("they support only layers with a norm before or after attention")
    if any(layer.convolution or layer.short_convolution for layer in config.layers):
        raise NoKernels("they support only layers without a convolution")


def kernels_for(config: EncoderConfig, dtype: torch.dtype, kernels: Kernels | None = None) -> Kernels:
    """Find kernels that run an encoder of this config; raises NoKernels if there are none.

    `kernels` are those of the precision by default.
    """
    _check_supported(config)
    kernels = kernels or find_kernels(dtype)
    products = kernels.products
    if (products.int8 or products.widens) and config.adapters:
        raise NoKernels(f"in {'eight bits' if products.int8 else 'bfloat16'} they support no adapters")
    if kernels.tiled and config.disentangled is not None:
        raise NoKernels(f"with {kernels.instructions} they support no disentangled attention")
    step = kernels.head_step
    if config.head_size % step:
        raise NoKernels(f"the head size is {config.head_size}, which is not a multiple of {step}")
    sizes = (config.hidden_size, config.intermediate_size)
    if not products.widens and any(size * dtype.itemsize % 4 for size in sizes):
        raise NoKernels(
            f"hidden_size is {sizes[0]} and intermediate_size {sizes[1]}; in bfloat16 both must be even"
        )
    return kernels


def find_int8_kernels(
    capabilities: Mapping[str, bool] | None = None, *, head_size: int = 0, tiled: bool = True
) -> tuple[Kernels, torch.dtype]:
    """Find kernels whose products are of eight-bit integers, and the precision of all between the products.

    That is bfloat16 where attention runs faster in it. Attention uses vectors if heads of `head_size` do not
    fill whole rows of AMX's tiles, or if it may not be `tiled`. Raises NoKernels if there are none for the
    processor.
    """
    library = _library()
    can = _capabilities(library) if capabilities is None else capabilities
    for products in EIGHT_BITS:
        if not products.suits(can) or (products.tiled and library.headlight_enable_amx() != 1):
            continue
        dtype: torch.dtype = getattr(torch, products.precision)
        found = _find(dtype, can)
        kernels = next(one for one in found if not one.tiled or (tiled and not head_size % one.head_step))
        if kernels.multiplies_pairs == products.multiplies_pairs:
            break
    else:
        raise NoKernels(LACKING_ON_ARM64 if can.get("neon") else LACKING)
    multiply = getattr(library, f"headlight_int8_multiply_{products.name}")
    rounding = Rounding(*(_constant(library, f"int8_{name}", products) for name in Rounding._fields))
    named = products if products.tiled or not kernels.tiled else kernels
    return Kernels.of(library, kernels)._replace(
        instructions=named.instructions.name.removesuffix("_bf16"),
        products=Products(
            multiply, _constant(library, "columns", kernels.steps or kernels), rounding, word=products.word
        ),
    ), dtype


def kernels_of_stored_weights(capabilities: Mapping[str, bool] | None = None) -> Kernels:
    """Return the kernels in float32 with products that read weights as a file holds them.

    Their results have the same bits. `capabilities` are as for `find_kernels`, which also raises NoKernels.
    """
    library = _library()
    kernels = _find(torch.float32, capabilities)[0]
    multiply = getattr(library, f"headlight_stored_multiply_{kernels.name}")
    return Kernels.of(library, kernels)._replace(
        products=Products(multiply, _constant(library, "columns", kernels))
    )


def end_threads() -> None:
    """End the threads that passes of the calling thread have started."""
    _library().headlight_end_threads()


def _find(dtype: torch.dtype, capabilities: Mapping[str, bool] | None) -> list[KernelSet]:
    """Find the kernels for a precision that run on this processor, the fastest first; raises NoKernels."""
    library, precision = _library(), _name(dtype)
    can = _capabilities(library) if capabilities is None else capabilities
    compiled = [one for one in KERNEL_SETS if one.precision == precision]
    if not compiled:
        raise NoKernels(f"there are none for {precision}")
    found = [one for one in compiled if one.suits(can)]
    found = [one for one in found if not one.tiled or library.headlight_enable_amx() == 1]
    if not found:
        raise NoKernels(LACKING)
    return found


def _constant(library: ctypes.CDLL, name: str, kernels: KernelSet) -> int:
    """Return a number with which kernels were compiled, such as the `columns` of a panel."""
    return ctypes.c_int64.in_dll(library, f"headlight_{name}_{kernels.name}").value


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _capabilities(library: ctypes.CDLL) -> dict[str, bool]:
    """Find what the processor can do: `torch.cpu.get_capabilities()`, and what we find ourselves.

    `slow_avx512_bf16` is whether one VDPBF16PS takes longer than two float32 FMAs of the same work. On ARM64,
    Linux is asked for the instructions for products, under its names: PyTorch guesses the model of a
    processor that it does not know, and may name instructions that the processor lacks.
    """
    can = {**torch.cpu.get_capabilities(), "slow_avx512_bf16": library.headlight_is_intel() == 1}
    if not can.get("neon"):
        return can
    found = library.headlight_arm64_products()
    return can | {name: bool(found & 1 << bit) for bit, name in enumerate(("asimddp", "i8mm", "bf16"))}
