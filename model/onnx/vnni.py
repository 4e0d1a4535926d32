"""Whether this processor adds products of eight bits exactly.

On x86, instructions without VNNI add pairs of products in 16 bits, where they saturate: sentence vectors of
an exported graph are then at cosines of 0.97 to those of float32. Other processors add in 32 bits.
"""

import platform
from functools import cache
from pathlib import Path

_X86 = ("x86_64", "AMD64", "i686")
_EXACT = frozenset(("avx512_vnni", "avx_vnni", "amx_int8"))
NO_VNNI = (
    "the processor has no VNNI (avx512_vnni or avx_vnni), without which sums of eight-bit products saturate"
)


@cache
def has_exact_eight_bits() -> bool:
    """Return whether sums of eight-bit products are exact here; True where the system does not tell."""
    if platform.machine() not in _X86:
        return True
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return True
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), None)
    return flags is None or not _EXACT.isdisjoint(flags)
