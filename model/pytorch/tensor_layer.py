"""One layer's attention in PyTorch, block by block, for consecutive sequences of one length."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from model.arrays import IntArray
from model.contract import FloatArray
from model.encoder.attending.edits import LOWEST, weigh
from model.encoder.attention import Bias, Indices, SelfAttention, chosen
from model.encoder.interventions import HeadScale, LayerEdges, join_heads
from model.encoder.linear import widened
from model.inspection.selection import visible_keys
from model.progress import Progress

_ROWS = 512
"""How many rows of weights are averaged at a time."""


@dataclass(frozen=True, slots=True)
class TensorLayer:
    """One layer's queries, keys and values of b sequences of N tokens, each (b, N, H, D).

    The methods are those of `model.inspection.layer.LayerAttention`; `bias` is added to the scores; `task` is
    that of the adapters that the sequences ran with. Each block counts as a step of `progress`. `edges` are
    blocked in all of the sequences, and `scales` change the outputs of heads.
    """

    attention: SelfAttention
    q: Tensor
    k: Tensor
    v: Tensor
    bias: Bias | None
    task: int | None = None
    progress: Progress = field(default_factory=Progress)
    edges: LayerEdges | None = None
    scales: Sequence[HeadScale] = ()

    @property
    def may_lack_keys(self) -> bool:
        """Whether all keys may be hidden from a query."""
        return self.edges is not None

    @property
    def together(self) -> bool:
        """Whether the heads of a block are better computed together."""
        return False

    def mean(self, sequences: slice, heads: IntArray, shares: FloatArray, rows: Indices) -> Tensor | None:  # noqa: ARG002
        """Return None: weights are added up head by head."""
        return None

    def keys(self, rows: Indices) -> slice:
        """Return the keys that any of the query positions sees."""
        causal, window = self.attention.config.causal, self.attention.layer.window
        listed = rows.numpy() if isinstance(rows, Tensor) else rows
        return visible_keys(listed, self.q.shape[1], causal=causal, window=window)

    def scores(self, sequences: slice, heads: Indices, rows: Indices) -> Tensor:
        """Compute scores before the softmax, float32 (b, heads, rows, N)."""
        return self._scores(sequences, heads, rows).float()

    def probabilities(self, sequences: slice, heads: Indices, rows: Indices) -> Tensor:
        """Compute softmax weights, float32 (b, heads, rows, N)."""
        scores = self._scores(sequences, heads, rows)
        return (weigh(scores) if self.may_lack_keys else torch.softmax(scores, dim=-1)).float()

    def value_norms(self, sequences: slice, heads: Indices, rows: Indices) -> Tensor:
        """Compute the norms of the weighted values, float32 (b, heads, rows, N)."""
        norms = self.attention.value_norms(self.v[sequences], heads, self.task)
        return self.probabilities(sequences, heads, rows).mul_(norms[:, :, None, :])

    def compared(
        self, which: Literal["query", "key"], sequences: slice, heads: Indices, tokens: Indices
    ) -> Tensor:
        """Select queries or keys as scores compare them, float32 (b, heads, tokens, D)."""
        x = (self.q if which == "query" else self.k)[sequences]
        x = widened(chosen(chosen(x, 1, tokens), 2, heads)).transpose(1, 2)
        if self.attention.config.similarity == "cosine":
            x = F.normalize(x, dim=-1)
        if self.attention.metric is not None:
            x = x @ widened(chosen(self.attention.metric, 0, heads))
        return x

    def output_norms(self, sequences: slice, heads: Indices, rows: Indices) -> Tensor:
        """Compute ‖Σ_j α_ij f_h(x_j)‖, with interventions, float32 (b, heads, rows)."""
        values = widened(chosen(self.v[sequences], 2, heads).transpose(1, 2))  # (b, heads, N, D)
        mixed = self.probabilities(sequences, heads, rows).to(values.dtype) @ values  # (b, heads, rows, D)
        if self.scales:
            factors, means = np.ones(self.q.shape[2], np.float32), np.zeros(self.q.shape[2], bool)
            join_heads(self.scales, factors, means)
            some = _positions(heads)
            if means[some].any():
                averaged = torch.from_numpy(means[some]).to(mixed.device)[:, None, None]
                mixed = torch.where(averaged, self._mean_output(sequences, heads, values), mixed)
            mixed = mixed * torch.from_numpy(factors[some]).to(mixed)[:, None, None]
        factor = chosen(self.attention.factor_output(self.task), 0, heads)
        return torch.linalg.vector_norm(mixed @ factor, dim=-1)

    def _mean_output(self, sequences: slice, heads: Indices, values: Tensor) -> Tensor:
        """Average the outputs of heads over all tokens, (b, heads, 1, D), some rows at a time."""
        length, total = self.q.shape[1], torch.zeros_like(values[:, :, :1])
        for first in range(0, length, _ROWS):
            weights = self.probabilities(sequences, heads, slice(first, min(first + _ROWS, length)))
            total += weights.sum(2, keepdim=True).to(values.dtype) @ values
        return total / length

    def _scores(self, sequences: slice, heads: Indices, rows: Indices) -> Tensor:
        """Compute the scores in the precision of references: float64 only if the weights are."""
        self.progress.step()
        scores = self.attention.scores(self.q[sequences], self.k[sequences], heads, rows, self.bias)
        if self.edges is None:
            return scores
        numbers = np.arange(self.q.shape[2])
        blocked = self.edges.mask(numbers[_positions(heads)], _positions(rows))
        return scores.masked_fill_(torch.from_numpy(blocked).to(scores.device), LOWEST)


def _positions(indices: Indices) -> slice | NDArray[np.int64]:
    """Convert a selection for numpy."""
    return indices.cpu().numpy() if isinstance(indices, Tensor) else indices
