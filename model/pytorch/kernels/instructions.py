"""The instruction sets that kernels are compiled for: read by their build, and where they are chosen."""

from collections.abc import Mapping
from typing import NamedTuple


class Instructions(NamedTuple):
    """A set of processor instructions.

    `name` is also that of the C++ namespace of what is compiled for them. `flags` are those of the compiler,
    `capabilities` those of `_capabilities` in library.py, and `vectors` the header in cpp/vectors. `machine`
    is what `platform.machine()` calls processors that may have them.
    """

    name: str
    flags: tuple[str, ...]
    capabilities: tuple[str, ...]
    vectors: str = "avx512"
    machine: str = "x86_64"

    def with_(self, name: str, flags: tuple[str, ...], capabilities: tuple[str, ...]) -> "Instructions":
        """Add further instructions to these."""
        return self._replace(
            name=name, flags=(*self.flags, *flags), capabilities=(*self.capabilities, *capabilities)
        )


AVX2 = Instructions("avx2", ("-mavx2", "-mfma", "-mf16c"), ("avx2", "fma3", "f16c"), vectors="avx2")
AVX_VNNI = AVX2.with_("avx_vnni", ("-mavxvnni",), ("avx_vnni",))
AVX512 = Instructions(
    "avx512",
    ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mf16c"),
    ("avx512_f", "avx512_bw", "avx512_vl", "avx512_dq"),
)
AVX512_BF16 = AVX512.with_("avx512_bf16", ("-mavx512bf16",), ("avx512_bf16",))
AMX = AVX512_BF16.with_("amx", ("-mamx-tile", "-mamx-bf16"), ("amx_tile", "amx_bf16"))
AVX512_VNNI = AVX512.with_("avx512_vnni", ("-mavx512vnni",), ("avx512_vnni",))
AVX512_VNNI_BF16 = AVX512_BF16.with_("avx512_vnni_bf16", ("-mavx512vnni",), ("avx512_vnni",))
AMX_INT8 = AMX.with_("amx_int8", ("-mavx512vnni", "-mamx-int8"), ("avx512_vnni", "amx_int8"))
NEON = Instructions("neon", ("-march=armv8-a",), ("neon",), vectors="neon", machine="aarch64")
NEON_BF16 = NEON.with_("neon_bf16", ("-march=armv8.2-a+bf16",), ("bf16",))
NEON_DOTPROD = NEON.with_("neon_dotprod", ("-march=armv8.2-a+dotprod",), ("asimddp",))
NEON_I8MM = NEON_DOTPROD.with_("neon_i8mm", ("-march=armv8.2-a+dotprod+i8mm",), ("i8mm",))


class KernelSet(NamedTuple):
    """The kernels in one precision for some instructions.

    They are compiled from `source`. One that has no file for all steps takes the others from `steps`.
    """

    precision: str
    instructions: Instructions
    source: str = "steps"
    steps: "KernelSet | None" = None
    head_step: int = 16
    """The number whose multiples head sizes must be, to fill whole vectors, or rows of a tile."""
    multiplies_pairs: bool = False
    """Whether products in bfloat16 are faster than in float32: with instructions made for them."""
    tiled: bool = False
    """Whether attention and products, or products alone, use tiles, which the system has to grant."""
    widens: bool = False
    """Whether only weights are in this precision, and what products multiply them with: all else is float32.

    Without instructions for it, weights are widened to float32, and only they are in this precision.
    """
    word: int = 4
    """The bytes of a column of a panel that lie together: see `lay_out`."""
    slow: str | None = None
    """A capability of processors on which others are faster."""

    @property
    def name(self) -> str:
        """What the names of its functions end with."""
        return f"{self.precision}_{self.instructions.name}"

    def suits(self, can: Mapping[str, bool]) -> bool:
        """Whether a processor with these capabilities runs them, and none faster."""
        return all(map(can.get, self.instructions.capabilities)) and not (self.slow and can.get(self.slow))


_EXACT_AVX2 = KernelSet("float32", AVX2, head_step=8)
_EXACT_NEON = KernelSet("float32", NEON, head_step=4)
_PAIRS = KernelSet("bfloat16", AVX512_BF16, multiplies_pairs=True, slow="slow_avx512_bf16")
KERNEL_SETS = (
    KernelSet("bfloat16", AMX, source="amx", steps=_PAIRS, head_step=32, multiplies_pairs=True, tiled=True),
    _PAIRS,
    KernelSet("bfloat16", AVX512),
    KernelSet("float32", AVX512),
    KernelSet("bfloat16", AVX2, source="linear/widened", steps=_EXACT_AVX2, head_step=8, widens=True, word=2),
    _EXACT_AVX2,
    KernelSet(
        "bfloat16", NEON_BF16, source="linear/widened", steps=_EXACT_NEON, head_step=4, widens=True, word=8
    ),
    KernelSet("bfloat16", NEON, source="linear/widened", steps=_EXACT_NEON, head_step=4, widens=True, word=2),
    _EXACT_NEON,
)
"""All of them, the fastest first."""

EIGHT_BITS = (
    KernelSet("bfloat16", AMX_INT8, source="int8", multiplies_pairs=True, tiled=True),
    KernelSet("bfloat16", AVX512_VNNI_BF16, source="int8", multiplies_pairs=True),
    KernelSet("float32", AVX512_VNNI, source="int8"),
    KernelSet("float32", AVX512, source="int8"),
    KernelSet("float32", AVX_VNNI, source="int8"),
    KernelSet("float32", AVX2, source="int8"),
    KernelSet("float32", NEON_I8MM, source="int8", word=8),
    KernelSet("float32", NEON_DOTPROD, source="int8"),
)
"""Products of eight-bit integers, by the precision of what they read and write, the fastest first."""

LACKING = "the processor has neither AVX-512 nor AVX2 with FMA and F16C"
"""Why there are no kernels."""
LACKING_ON_ARM64 = "the processor has no dot products of eight-bit numbers (asimddp in /proc/cpuinfo)"
"""Why there are none of eight bits on ARM64, where there are others for every processor."""
