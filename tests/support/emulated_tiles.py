"""The kernels with tiles, of which functions emulate the instructions: for processors without AMX."""

from ctypes import CDLL, c_int64
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest
import torch

from model.pytorch.kernels import build as builder
from model.pytorch.kernels import library
from model.pytorch.kernels.instructions import EIGHT_BITS, KERNEL_SETS
from model.pytorch.kernels.library import Kernels, Products, Rounding
from model.pytorch.kernels.sources import checksum
from tests.support.keeping import keep

AMX, EMULATED = "bfloat16_amx", "bfloat16_emulated"
"""Attention and products with tiles, which are those of the processor or emulated, and the other steps of
`bfloat16_avx512_bf16`, which any processor with AVX512-BF16 runs."""
AMX_INT8 = "bfloat16_amx_int8"
"""Products of eight bits with tiles."""


@cache
def _emulating() -> CDLL:
    """All that has tiles, and what else it needs, with emulated ones."""
    if not torch.cpu.get_capabilities().get("avx512_bf16"):
        pytest.skip("the processor has no AVX512-BF16")
    options, sets = ("-DHEADLIGHT_EMULATE_TILES", "-Werror"), (AMX, AMX_INT8, "bfloat16_avx512_bf16")
    made_of = crc32(Path(builder.__file__).read_bytes() + Path(__file__).read_bytes(), checksum())
    return CDLL(str(keep(f"kernels/emulated-{made_of:x}", lambda place: builder.build(place, options, sets))))


def emulated() -> Kernels:
    """Attention and products in bfloat16; skips without AVX512-BF16."""
    return Kernels.of(_emulating(), next(one for one in KERNEL_SETS if one.tiled))


def emulated_int8() -> Products:
    """Products of eight bits with emulated tiles; skips without AVX512-VNNI and AVX512-BF16."""
    if not torch.cpu.get_capabilities().get("avx512_vnni"):
        pytest.skip("the processor has no AVX512-VNNI")
    found, kernels = _emulating(), next(one for one in EIGHT_BITS if one.tiled)
    assert kernels.name == AMX_INT8
    rounding = Rounding(*(library._constant(found, f"int8_{name}", kernels) for name in Rounding._fields))
    columns = c_int64.in_dll(found, "headlight_columns_bfloat16_avx512_bf16").value
    return Products(found[f"headlight_int8_multiply_{AMX_INT8}"], columns, rounding)
