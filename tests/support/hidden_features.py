"""Runs programs as on an older x86 processor: what chooses instructions by CPUID does not see newer ones."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

_SOURCE = Path(__file__).with_suffix(".c")
_WITHOUT_VNNI = {"avx512_vnni": (1, 11), "amx_tile": (2, 24), "amx_int8": (2, 25), "avx_vnni": (3, 4)}
_AVX512 = {0: (16, 17, 21, 28, 30, 31), 1: (1, 6, 12, 14), 2: (8, 22, 23), 3: (5,)}
"""F, DQ, IFMA, CD, BW, VL; VBMI, VBMI2, BITALG, VPOPCNTDQ; VP2INTERSECT, AMX-BF16, FP16; BF16."""
_WITHOUT_AVX512 = {f"avx512_{word}_{bit}": (word, bit) for word, bits in _AVX512.items() for bit in bits}
OLDER: dict[str, dict[str, tuple[int, int]]] = {
    "avx2": _WITHOUT_VNNI | _WITHOUT_AVX512,
    "avx512": _WITHOUT_VNNI,
    "avx_vnni": {name: at for name, at in (_WITHOUT_VNNI | _WITHOUT_AVX512).items() if name != "avx_vnni"},
    "avx512_vnni": {name: at for name, at in _WITHOUT_VNNI.items() if name.startswith("amx")},
}
"""The instruction sets for which ONNX Runtime has products of eight bits, each with what is hidden so that it
is the newest one: the word of `hidden_features.c`, and the bit."""
_NEEDS = {"avx2": "avx2", "avx512": "avx512bw", "avx_vnni": "avx_vnni", "avx512_vnni": "avx512_vnni"}


def older(instructions: str) -> dict[str, str]:
    """The environment in which a program has no newer instructions than these; skips where that cannot be."""
    found = _flags()
    for flag in ("cpuid_fault", _NEEDS[instructions]):
        if flag not in found:
            pytest.skip(f"the processor has no {flag}")
    masks = [0, 0, 0, 0]
    for word, bit in OLDER[instructions].values():
        masks[word] |= 1 << bit
    return {
        **os.environ,
        "LD_PRELOAD": str(_library()),
        "HIDDEN_FEATURES": ",".join(f"{mask:x}" for mask in masks),
    }


@cache
def _library() -> Path:
    path = Path(mkdtemp()) / "hidden_features.so"
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", path, _SOURCE], check=True, timeout=60)
    return path


def _flags() -> list[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
