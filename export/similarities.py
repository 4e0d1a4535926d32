"""Compares queries and keys with operators that ONNX has: it has none for pairwise distances."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from model.encoder.config import AttentionSimilarity

# How many components, a power of 2, are subtracted at once: all of them would need D times the memory of the
# scores.
_AT_ONCE = 4


def prepare(x: Tensor, similarity: AttentionSimilarity, metric: Tensor | None) -> Tensor:
    """Turn queries or keys (B, H, N, D) into what `compare` compares, float32 in the same shape.

    Cosines are dot products of unit vectors. A Mahalanobis distance is the Euclidean one of vectors
    multiplied by the `metric` (H, D, D).
    """
    x = x.float()
    if similarity == "cosine":
        return F.normalize(x, dim=-1)
    return x if metric is None else x @ metric.float()


def compare(q: Tensor, k: Tensor, similarity: AttentionSimilarity, scale: float) -> Tensor:
    """Compare prepared queries (B, H, N, D) and keys (B, H, M, D): (B, H, N, M).

    The same as `model.encoder.attention.similarity_scores`, from what `prepare` made.
    """
    match similarity:
        case "dot_product":
            return torch.matmul(q * scale, k.transpose(-2, -1))
        case "cosine":
            return torch.matmul(q, k.transpose(-2, -1))
        case "manhattan":
            return -_sum_of_differences(q, k, torch.abs)
        case "mahalanobis":
            return -torch.sqrt(_sum_of_differences(q, k, torch.square))


def _sum_of_differences(q: Tensor, k: Tensor, size: Callable[[Tensor], Tensor]) -> Tensor:
    """Sum the sizes of the differences of components: q (B, H, N, D), k (B, H, M, D) to (B, H, N, M)."""
    # Zeros, whose difference is 0, fill up the last part.
    padded = (F.pad(x, (0, -x.shape[-1] % _AT_ONCE)) for x in (q, k))
    total = torch.zeros(())
    for some, others in zip(*(torch.split(x, _AT_ONCE, dim=-1) for x in padded), strict=True):
        total = total + size(some[..., :, None, :] - others[..., None, :, :])  # (B, H, N, M, _AT_ONCE)
    # Added up by halves: ONNX Runtime's reductions leave an array without elements as it is.
    while total.shape[-1] > 1:
        first, second = total.chunk(2, dim=-1)
        total = first + second
    return total.squeeze(-1)
