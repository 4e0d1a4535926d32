"""PyTorch's tensors and products through its C interface, for the native kernels to call.

PyTorch keeps this interface stable for models compiled ahead of time
(torch/csrc/inductor/aoti_torch/c/shim_cpu.h). The kernels need no PyTorch header and link to no PyTorch
library.
"""

import ctypes
import weakref
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from model.pytorch.kernels.library import NoKernels
from model.pytorch.kernels.structures import Torch

_FUNCTIONS = (
    "aoti_torch_cpu__linear_pointwise",
    "aoti_torch_get_data_ptr",
    "aoti_torch_delete_tensor_object",
)

_content = ctypes.pythonapi.PyCapsule_GetPointer
_content.restype, _content.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def find_library() -> ctypes.CDLL:
    """Find PyTorch's library for CPUs; raises OSError if it is somewhere else in this build."""
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))


@cache
def find_functions() -> Torch:
    """Find the functions that the kernels call; raises NoKernels if this build of PyTorch lacks one."""
    try:
        _ = torch._C._aoti
        library = find_library()
        return Torch(*(ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in _FUNCTIONS))
    except (OSError, AttributeError) as error:
        raise NoKernels("this build of PyTorch lacks the C interface to its products") from error


class Handles:
    """Keeps tensors alive for the kernels for as long as this object lives."""

    def __init__(self) -> None:
        self._addresses: list[int] = []
        weakref.finalize(self, _release, find_functions(), self._addresses).atexit = False

    def of(self, tensor: Tensor) -> int:
        """Return the address of a handle for a tensor, to pass to the kernels."""
        (capsule,) = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors([tensor])
        address: int = _content(capsule, None)
        self._addresses.append(address)
        return address


_RELEASE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


def _release(functions: Torch, addresses: list[int]) -> None:
    release = _RELEASE(functions.release)
    for address in addresses:
        release(address)
