"""One layer's attention of a single sequence, in numpy, from what a graph hands out."""

from dataclasses import dataclass

import numpy as np

from model.contract import Aggregate, FloatArray, Weights
from model.inspection.kept import Kept
from model.inspection.selection import IntArray, Places


@dataclass(frozen=True, slots=True)
class Listed:
    """Arrays of the heads that were asked for: `numbers` are those heads, sorted, each once."""

    numbers: IntArray
    arrays: tuple[FloatArray, ...]

    def of(self, heads: Places) -> tuple[FloatArray, ...]:
        """Give the arrays, (heads, …) each, of some of these heads."""
        places = find(self.numbers, heads)
        return tuple(array[places] for array in self.arrays)


@dataclass(frozen=True, slots=True)
class ArrayLayer:
    """What is there to compute one layer's attention from, of one sequence of N tokens.

    `maps` has softmax weights (heads, rows, N) of the query positions `rows` (None: all, in order); `pairs`
    queries and keys, each (heads, N, D); `norms` ‖f_h(x_j)‖, (heads, N). Weights that `maps` has not are
    computed from `pairs`. The methods are those of `model.inspection.maps.Layer`, with b = 1.
    """

    maps: Listed | None = None
    rows: IntArray | None = None
    pairs: Listed | None = None
    norms: Listed | None = None

    def weights(self, kind: Weights, _: slice, heads: Places, rows: Places) -> FloatArray:
        """Compute a block, float32 (1, heads, rows, N): softmax weights, scores or weighted value norms."""
        weights = self._mapped(heads, rows) if kind != "score" else None
        if weights is None:
            weights = self._scores(heads, rows)
            if kind != "score":
                weights = softmax(weights)
        if kind == "value_norm":
            if self.norms is None:
                raise ValueError("the norms of the values were not asked for")
            (norms,) = self.norms.of(heads)
            weights = weights * norms[:, None, :]
        return weights[None]

    def _mapped(self, heads: Places, rows: Places) -> FloatArray | None:
        if self.maps is None:
            return None
        (weights,) = self.maps.of(heads)
        return weights[:, rows if self.rows is None else find(self.rows, rows)]

    def _scores(self, heads: Places, rows: Places) -> FloatArray:
        if self.pairs is None:
            raise ValueError("neither weights nor queries and keys were asked for")
        q, k = self.pairs.of(heads)
        q = q[:, rows] * np.float32(q.shape[-1] ** -0.5)
        return q @ k.swapaxes(1, 2)

    def over_heads(self, weights: FloatArray, how: Aggregate, shares: FloatArray) -> FloatArray:
        """Take the largest of some heads, or their sum weighed by `shares` (heads,): (1, rows, N)."""
        if how == "max":
            return np.asarray(weights.max(1))
        return np.asarray(np.einsum("h,bhrn->brn", shares, weights))

    def joined(self, one: FloatArray, other: FloatArray, how: Aggregate) -> FloatArray:
        """Join what `over_heads` gives of some heads with what it gives of others."""
        return np.maximum(one, other) if how == "max" else one + other

    def keep(
        self, kept: Kept, weights: FloatArray, where: tuple[int | slice, ...], starts: IntArray | None
    ) -> None:
        """Hand weights (1, …, rows, N) over."""
        kept.store(weights if kept.columns is None else weights[..., kept.columns], where, starts)

    def identity(self, count: int, length: int) -> FloatArray:
        """Make (count, length, length) of ones on the diagonal."""
        return np.broadcast_to(np.eye(length, dtype=np.float32), (count, length, length))

    def empty_like(self, array: FloatArray) -> FloatArray:
        """Make an array of this shape, to be filled."""
        return np.empty(array.shape, np.float32)


def softmax(scores: FloatArray) -> FloatArray:
    """Softmax over the last axis, in place."""
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    return scores


def find(listed: IntArray, wanted: Places) -> Places:
    """Find where in a sorted list the wanted positions stand; a slice of neighbours stays one."""
    if isinstance(wanted, slice):
        start = int(np.searchsorted(listed, wanted.start))
        return slice(start, start + wanted.stop - wanted.start)
    return np.searchsorted(listed, wanted)
