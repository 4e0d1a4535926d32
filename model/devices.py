"""Checks devices and dtypes without importing PyTorch, which takes seconds."""

from pathlib import Path

from model.errors import Unsupported

_OTHER_DRIVERS = ("/dev/dxg", "/dev/kfd")
"""The device files of drivers that do not create one for each GPU."""


def check_possible(device: str, dtype: str) -> None:
    """Raise Unsupported for a CUDA device or a dtype that this machine cannot have."""
    if any(Path(file).exists() for file in _OTHER_DRIVERS):
        return
    found = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if device.startswith("cuda") and int(device.partition(":")[2] or 0) >= found:
        raise Unsupported(
            f"device {device} does not exist: this machine has {found} CUDA device(s).", field="device"
        )
    check_dtype(dtype, "cuda" if device.startswith("cuda") or (device == "auto" and found) else "cpu")


def check_dtype(dtype: str, device: str) -> None:
    """Raise Unsupported for a dtype that no processor of this kind runs."""
    if dtype == "float16" and device == "cpu":
        raise Unsupported("float16 runs only on CUDA; on a CPU, choose float32 or bfloat16.", field="dtype")
    if dtype == "int8" and device != "cpu":
        raise Unsupported("dtype int8 runs only on CPUs: choose float32, bfloat16 or auto.", field="dtype")
