"""One layer's attention as inspection reads it, block by block, from any backend."""

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np

from model.arrays import Array, IntArray, Operations, Places
from model.contract import Aggregate, FloatArray, Weights
from model.inspection.selection import HeadSelection

LOWEST = float(np.finfo(np.float32).min)


class LayerAttention(Protocol):
    """The attention of one layer in b sequences of N tokens.

    Each method computes one float32 block, for the given sequences, heads and query positions. The weights of
    a query without keys are 0.
    """

    @property
    def may_lack_keys(self) -> bool:
        """Whether all keys may be hidden from a query, as interventions can do."""
        ...

    @property
    def together(self) -> bool:
        """Whether the heads of a block are better computed together."""
        ...

    def mean(self, sequences: slice, heads: IntArray, shares: FloatArray, rows: Places) -> Array | None:
        """Σ_h shares_h p_h over some heads, (b, rows, N); None if they must be added up head by head."""
        ...

    def keys(self, rows: Places) -> slice:
        """Return the keys that any of these query positions, in order, see: other keys have weight 0."""
        ...

    def scores(self, sequences: slice, heads: Places, rows: Places) -> Array:
        """Scores before the softmax, (b, heads, rows, N), in a new array.

        A key hidden from a query has the lowest float32, so that −Σ p log p is a number.
        """
        ...

    def probabilities(self, sequences: slice, heads: Places, rows: Places) -> Array:
        """Softmax weights, (b, heads, rows, N)."""
        ...

    def value_norms(self, sequences: slice, heads: Places, rows: Places) -> Array:
        """α_ij ‖f_h(x_j)‖, (b, heads, rows, N) (Kobayashi et al. 2020, arXiv 2004.10102, §2.2)."""
        ...

    def compared(
        self, which: Literal["query", "key"], sequences: slice, heads: Places, tokens: Places
    ) -> Array:
        """Queries, or keys, as scores compare them, (b, heads, tokens, D).

        Those of a cosine are unit vectors, and those of a Mahalanobis distance are multiplied by its metric.
        """
        ...

    def output_norms(self, sequences: slice, heads: Places, rows: Places) -> Array:
        """‖Σ_j α_ij f_h(x_j)‖, (b, heads, rows): the norm of what a head adds to each token."""
        ...


def read_weights(
    layer: LayerAttention, kind: Weights, sequences: slice, heads: Places, rows: Places
) -> Array:
    """Compute a block of weights of one kind, float32 (b, heads, rows, N); scores of hidden keys are −inf."""
    match kind:
        case "score":
            scores = layer.scores(sequences, heads, rows)
            scores[scores <= LOWEST] = -np.inf
            return scores
        case "probability":
            return layer.probabilities(sequences, heads, rows)
        case "value_norm":
            return layer.value_norms(sequences, heads, rows)


def aggregate_heads(
    ops: Operations,
    layer: LayerAttention,
    kind: Weights,
    how: Aggregate,
    heads: HeadSelection,
    sequences: slice,
    parts: Sequence[slice],
    rows: Places,
) -> Array:
    """Aggregate weights (b, heads, rows, N) over the heads, one of `parts` at a time: (b, rows, N).

    A head that is listed twice counts twice in the mean.
    """
    if how == "mean" and kind == "probability":
        mean = layer.mean(sequences, heads.numbers, heads.shares, rows)
        if mean is not None:
            return mean
    total: Array = None
    for part in parts:
        weights = read_weights(layer, kind, sequences, heads.some(part), rows)
        largest = how == "max"
        some = ops.largest(weights, 1)[:, 0] if largest else ops.weigh_heads(weights, heads.shares[part])
        if total is None:
            total = some
        elif largest:
            total = ops.maximum(total, some)
        else:
            total += some
    return total
