"""Attention by the compiled kernels, called by itself, where there are some."""

from ctypes import byref

import pytest
import torch
from torch import Tensor

from model.pytorch.kernels.library import Kernels, check
from model.pytorch.kernels.observations import IntArray, Observations
from model.pytorch.kernels.structures import Attention
from tests.support.backends import instructions

needs_kernels = pytest.mark.skipif(
    instructions(torch.float32) is None,
    reason="there are no kernels for this processor, or none were built: PyTorch's serve",
)


def attend(
    kernels: Kernels,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: IntArray,
    output: Tensor | None,
    observations: Observations | None = None,
) -> None:
    """Attend within each sequence: q, k, v (T, H, D) of one layout, to `output` (T, H, D), dense.

    The components of a head lie side by side. `starts`, int64 (B + 1,), is where each sequence begins; rows
    of `output` beyond the last are left as they are. Without `output` only what is observed is computed.
    Raises MemoryError.
    """
    tokens, heads, size = q.shape
    arguments = Attention(
        q.data_ptr(),
        k.data_ptr(),
        v.data_ptr(),
        q.stride(0),
        None if output is None else output.data_ptr(),
        starts.ctypes.data,
        tokens,
        len(starts) - 1,
        heads,
        size,
        size**-0.5,
        None if observations is None else observations.address,
    )
    check(kernels.attend(byref(arguments)))
