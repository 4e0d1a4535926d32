"""Blocks of attention weights, of neighbouring sequences of one length, as tensors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.attention import Indices, SelfAttention
from model.selection import Heads
from model.types import Weights


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's queries, keys and values of b sequences of N tokens, each (b, N, H, D)."""

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

    def parts(
        self, kind: Weights, sequences: slice, heads: Heads, parts: Sequence[slice], rows: Indices
    ) -> Iterator[tuple[slice, Tensor]]:
        """Compute the `weights` of the wanted heads in parts, each with its part."""
        for part in parts:
            yield part, self.weights(kind, sequences, heads.some(part), rows)
