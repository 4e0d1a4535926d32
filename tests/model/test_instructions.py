"""Which kernels are chosen for what a processor can do."""

import platform
import re
import struct
from pathlib import Path

import pytest
import torch

from model.pytorch.kernels import library
from model.pytorch.kernels.library import NoKernels, find_int8_kernels, find_kernels
from tests.support.kernel import capabilities, needs_kernels

on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="these instructions are those of x86-64")
on_arm64 = pytest.mark.skipif(platform.machine() != "aarch64", reason="these instructions are those of ARM64")
NEITHER = "the processor has neither AVX-512 nor AVX2 with FMA and F16C"


@needs_kernels
@on_x86
@pytest.mark.parametrize(
    ("masked", "dtype", "wanted"),
    [
        ((), torch.float32, "avx512"),
        *(((f"avx512_{part}",), torch.float32, "avx2") for part in ("f", "bw", "vl", "dq")),
        *((("avx512_f", part), torch.float32, NEITHER) for part in ("avx2", "fma3", "f16c")),
        (("avx2",), torch.float32, "avx512"),
        *(((f"avx512_{part}",), torch.bfloat16, "avx2") for part in ("f", "bw", "vl", "dq")),
        *((("avx512_f", part), torch.bfloat16, NEITHER) for part in ("avx2", "fma3", "f16c")),
        (("amx_bf16", "slow_avx512_bf16"), torch.bfloat16, "avx512_bf16"),
        (("amx_tile", "slow_avx512_bf16"), torch.bfloat16, "avx512_bf16"),
        (("amx_tile",), torch.bfloat16, "avx512"),
        (("avx512_bf16",), torch.bfloat16, "avx512"),
        ((), torch.float16, "there are none for float16"),
        (("avx512_f",), torch.float16, "there are none for float16"),
    ],
)
def test_only_what_the_processor_can_do_is_chosen(
    masked: tuple[str, ...], dtype: torch.dtype, wanted: str
) -> None:
    """A set of instructions that is masked off leads to the next, and to none where nothing fits."""
    able = ("avx2", "fma3", "f16c", *(f"avx512_{part}" for part in ("f", "bw", "vl", "dq", "bf16")))
    can = dict.fromkeys((*able, "slow_avx512_bf16", "amx_tile", "amx_bf16"), True) | dict.fromkeys(
        masked, False
    )
    if " " in wanted:
        with pytest.raises(NoKernels, match=f"^{wanted}$"):
            find_kernels(dtype, can)
    else:
        assert find_kernels(dtype, can).instructions == wanted


@needs_kernels
@on_x86
@pytest.mark.parametrize(
    ("masked", "wanted"),
    [
        ((), ("avx512_vnni", torch.float32)),
        (("slow_avx512_bf16",), ("avx512_vnni", torch.bfloat16)),
        (("slow_avx512_bf16", "amx_tile"), ("amx", torch.bfloat16)),
        (("amx_tile", "amx_int8"), ("amx_int8", torch.bfloat16)),
        (("avx512_bf16",), ("avx512_vnni", torch.float32)),
        (("avx512_vnni",), ("avx512", torch.float32)),
        (("avx512_vnni", "slow_avx512_bf16"), ("avx512", torch.float32)),
        (("avx512_f",), ("avx_vnni", torch.float32)),
        (("avx512_f", "avx_vnni"), ("avx2", torch.float32)),
        (("avx512_bw", "slow_avx512_bf16", "avx_vnni"), ("avx2", torch.float32)),
        *((("avx512_f", part), NEITHER) for part in ("avx2", "fma3", "f16c")),
    ],
)
def test_products_of_eight_bits_have_their_surroundings_in_the_faster_precision(
    masked: tuple[str, ...], wanted: str | tuple[str, torch.dtype]
) -> None:
    """Bfloat16 where there are instructions made for it, float32 elsewhere; `masked` turns each over.

    With VNNI numbers have eight bits, without it seven.
    """
    able = ("avx2", "fma3", "f16c", *(f"avx512_{part}" for part in ("f", "bw", "vl", "dq", "bf16", "vnni")))
    able += ("avx_vnni",)
    can = dict.fromkeys((*able, "slow_avx512_bf16", "amx_bf16"), True)
    can |= {"amx_tile": False, "amx_int8": False}
    can |= {name: not can[name] for name in masked}
    if isinstance(wanted, str):
        with pytest.raises(NoKernels, match=f"^{wanted}$"):
            find_int8_kernels(can)
        return
    if wanted[0].startswith("amx") and library._library().headlight_enable_amx() != 1:
        pytest.skip("Linux grants no AMX tiles here")
    kernels, dtype = find_int8_kernels(can)
    assert (kernels.instructions, dtype) == wanted
    assert kernels.products.int8 is not None
    assert kernels.products.int8.steps == (63 if wanted[0] in {"avx512", "avx2"} else 127)


@needs_kernels
@on_arm64
@pytest.mark.parametrize(
    ("able", "bfloat16", "int8"),
    [
        ((), "neon", "the processor has no dot products of eight-bit numbers (asimddp in /proc/cpuinfo)"),
        (("asimddp",), "neon", "neon_dotprod"),
        (("asimddp", "i8mm"), "neon", "neon_i8mm"),
        (("bf16",), "neon_bf16", "the processor has no dot products"),
        (("asimddp", "i8mm", "bf16"), "neon_bf16", "neon_i8mm"),
    ],
)
def test_on_arm64_each_precision_has_the_fastest_products(
    able: tuple[str, ...], bfloat16: str, int8: str
) -> None:
    """Float32 and weights in bfloat16 everywhere; between products all is in float32."""
    can = {"neon": True} | dict.fromkeys(able, True)
    assert find_kernels(torch.float32, can).instructions == "neon"
    widening = find_kernels(torch.bfloat16, can)
    assert (widening.instructions, widening.products.widens) == (bfloat16, True)
    if " " in int8:
        with pytest.raises(NoKernels, match=re.escape(int8)):
            find_int8_kernels(can)
    else:
        kernels, dtype = find_int8_kernels(can)
        assert (kernels.instructions, dtype) == (int8, torch.float32)


@needs_kernels
@on_arm64
def test_linux_says_what_products_a_processor_with_arm64_has() -> None:
    """PyTorch takes a Cortex-A72 whose model it cannot tell for a newer one."""
    told = dict(struct.iter_unpack("QQ", Path("/proc/self/auxv").read_bytes()))
    first, second = told[16], told[26]  # AT_HWCAP and AT_HWCAP2 of getauxval(3)
    wanted = {"asimddp": first & 1 << 20, "i8mm": second & 1 << 13, "bf16": second & 1 << 14}
    can = capabilities()
    assert {name: can[name] for name in wanted} == {name: bool(bit) for name, bit in wanted.items()}


@needs_kernels
@on_x86
def test_heads_that_fill_no_row_of_a_tile_are_attended_with_vectors_in_eight_bits() -> None:
    """AMX does not keep a model of small heads from running in eight bits."""
    able = ("avx2", "fma3", "f16c", *(f"avx512_{part}" for part in ("f", "bw", "vl", "dq", "bf16", "vnni")))
    can = dict.fromkeys((*able, "slow_avx512_bf16", "amx_bf16", "amx_tile"), True)
    for options in ({"head_size": 48}, {"tiled": False}):
        kernels, dtype = find_int8_kernels(can, **options)
        assert (kernels.instructions, dtype) == ("avx512_vnni", torch.float32)
        assert kernels.head_step == 16
