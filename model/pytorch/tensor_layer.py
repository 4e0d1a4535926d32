"""One layer's attention in PyTorch, block by block, for consecutive sequences of one length."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.arrays import IntArray
from model.contract import FloatArray
from model.encoder.attending.edits import LOWEST, weigh
from model.encoder.attention import Bias, Indices, SelfAttention
from model.encoder.interventions import LayerEdges
from model.inspection.selection import visible_keys
from model.progress import Progress


@dataclass(frozen=True, slots=True)
class TensorLayer:
    """One layer's queries, keys and values of b sequences of N tokens, each (b, N, H, D).

    The methods are those of `model.inspection.layer.LayerAttention`; `bias` is added to the scores; `task` is
    that of the adapters that the sequences ran with. Each block counts as a step of `progress`. `edges` are
    blocked in each of the sequences.
    """

    attention: SelfAttention
    q: Tensor
    k: Tensor
    v: Tensor
    bias: Bias | None
    task: int | None = None
    progress: Progress = field(default_factory=Progress)
    edges: LayerEdges | None = None

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
        """Return the keys that some of the query positions see."""
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
    """Return a selection as numpy takes it."""
    return indices.cpu().numpy() if isinstance(indices, Tensor) else indices
