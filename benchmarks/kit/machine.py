"""What the figures depend on: the processor, and the memory of a process."""

import os
import platform
import re
from contextlib import suppress
from pathlib import Path

import torch

MB_PER_MIB = 2**20 / 1e6


def facts(dtype: str) -> list[tuple[str, str]]:
    """Name what the figures depend on."""
    return [
        ("CPU", cpu_name()),
        ("cores", f"{os.cpu_count()} ({torch.get_num_threads()} threads for a product)"),
        ("bfloat16 by", bfloat16_instructions()),
        ("torch", torch.__version__),
        ("dtype", dtype),
    ]


def cpu_name() -> str:
    """Read the processor's own name, with family and model where the name alone says little."""
    fields: dict[str, str] = {}
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    if "model name" not in fields:
        return platform.processor() or platform.machine()
    return f"{fields['model name']} (family {fields.get('cpu family')}, model {fields.get('model')})"


def bfloat16_instructions() -> str:
    """Say which instructions this CPU multiplies bfloat16 with."""
    capabilities = torch.cpu.get_capabilities()
    if capabilities.get("amx_bf16"):
        return "AMX (tiles)"
    if capabilities.get("avx512_bf16"):
        return "AVX512-BF16 (no AMX)"
    if capabilities.get("bf16"):
        return "Arm BF16"
    return "none: float32 instructions stand in"


def memory_mib(kind: str, pid: int | str = "self") -> float:
    """Read a line of /proc/PID/status in MiB, as `VmHWM` or `RssAnon`; NaN where there is none."""
    status = Path(f"/proc/{pid}/status")
    found = re.search(rf"{kind}:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) / 1024 if found else float("nan")


def forget_peak(pid: int | str = "self") -> None:
    """Reset `VmHWM` to the resident memory of now; does nothing if that is not permitted."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
