"""One layer's attention as PyTorch computes it, in blocks, of neighbouring sequences of one length."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.contract import Aggregate, FloatArray, Weights
from model.encoder.attention import Indices, SelfAttention, chosen
from model.inspection.kept import Kept
from model.inspection.selection import IntArray


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's queries, keys and values of b sequences of N tokens, each (b, N, H, D).

    The methods are those of `model.inspection.maps.Layer`.
    """

    attention: SelfAttention
    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None

    def weights(self, kind: Weights, sequences: slice, heads: Indices, rows: Indices) -> Tensor:
        """Compute a block, float32 (b, heads, rows, N): softmax weights, scores or weighted value norms."""
        scores = self.attention.scores(self.q[sequences], self.k[sequences], heads, rows, self.bias)
        if kind == "score":
            return scores
        weights = torch.softmax(scores, dim=-1)
        if kind == "value_norm":
            weights *= self.attention.value_norms(self.v[sequences], heads)[:, :, None, :]
        return weights

    def over_heads(self, weights: Tensor, how: Aggregate, shares: FloatArray) -> Tensor:
        """Take the largest of some heads, or their sum weighed by `shares` (heads,): (b, rows, N)."""
        if how == "max":
            return weights.amax(1)
        return torch.einsum("h,bhrn->brn", torch.from_numpy(shares).to(weights.device), weights)

    def joined(self, one: Tensor, other: Tensor, how: Aggregate) -> Tensor:
        """Join what `over_heads` gives of some heads with what it gives of others."""
        return torch.maximum(one, other) if how == "max" else one.add_(other)

    def keep(
        self, kept: Kept, weights: Tensor, where: tuple[int | slice, ...], starts: IntArray | None
    ) -> None:
        """Hand weights (b, …, rows, N) over; what can be smaller before it leaves the device, is."""
        if kept.columns is not None:
            weights = chosen(weights, -1, kept.columns)
        if kept.only_rounds(starts) and kept.dtype == np.float16:
            finite = weights.flatten(1).sum(1).isfinite()
            kept.put(weights.half().cpu().numpy(), where, finite.cpu().numpy())
        else:
            kept.store(weights.cpu().numpy(), where, starts)

    def identity(self, count: int, length: int) -> Tensor:
        """Make (count, length, length) of ones on the diagonal."""
        return torch.eye(length, device=self.q.device).repeat(count, 1, 1)

    def empty_like(self, array: Tensor) -> Tensor:
        """Make a tensor of this shape, to be filled."""
        return torch.empty_like(array)
