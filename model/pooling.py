"""From the hidden states of a sequence to one vector."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from model.types import PoolingMode


def pool(hidden: Tensor, modes: Sequence[PoolingMode], skip: int = 0) -> Tensor:
    """Pool each of B sequences of equal length: (B, N, C) to (B, len(modes)·C), in float32.

    `cls` is the first token and `last` the last; `mean_sqrt_len` divides the sum by √N;
    `weighted_mean` weighs token i (from 1) with i (Muennighoff 2022, SGPT, §3). Several modes are
    concatenated in their order. The first `skip` tokens are left out; positions still count them.
    """
    kept = hidden[:, skip:].float()  # (B, N - skip, C)
    return torch.cat([_pool_one(kept, mode, skip) for mode in modes], dim=-1)


def _pool_one(hidden: Tensor, mode: PoolingMode, skip: int) -> Tensor:
    tokens = hidden.shape[1]
    match mode:
        case "cls":
            return hidden[:, 0]
        case "last":
            return hidden[:, -1]
        case "max":
            return hidden.amax(1)
        case "mean":
            return hidden.mean(1)
        case "mean_sqrt_len":
            return hidden.sum(1) / tokens**0.5
        case "weighted_mean":
            weights = torch.arange(skip + 1, skip + tokens + 1, dtype=torch.float32, device=hidden.device)
            return (hidden * weights[:, None]).sum(1) / weights.sum()


def finish(vectors: Tensor, dimensions: int | None, *, normalize: bool) -> Tensor:
    """Cut vectors (B, E) to their first `dimensions`, then give them unit L2 norm where asked.

    The order is that of Matryoshka embeddings (Kusupati et al. 2022): cut first, then normalise.
    """
    vectors = vectors[:, :dimensions]
    return F.normalize(vectors, dim=-1) if normalize else vectors
