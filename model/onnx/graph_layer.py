"""One layer's attention of a single sequence, in numpy, from the outputs of a graph."""

from dataclasses import dataclass, field
from itertools import product
from typing import Literal

import numpy as np

from model.arrays import IntArray, Places
from model.contract import FloatArray
from model.encoder.config import AttentionSimilarity
from model.encoder.interventions import LayerEdges
from model.inspection.selection import visible_keys
from model.progress import Progress

_LOWEST = np.finfo(np.float32).min
"""The score of a key that is hidden from a query."""
_SQUARE = 512
"""How many queries, and how many keys, are compared with positions at a time."""


@dataclass(frozen=True, slots=True)
class FetchedHeads:
    """Arrays of the fetched heads; `numbers` are those heads, sorted, each once."""

    numbers: IntArray
    arrays: tuple[FloatArray, ...]

    def of(self, heads: Places) -> tuple[FloatArray, ...]:
        """Return the arrays, (heads, …) each, of some of these heads."""
        indices = find(self.numbers, heads)
        return tuple(array[indices] for array in self.arrays)


@dataclass(frozen=True, slots=True)
class GraphLayer:
    """The fetched arrays of one layer, for one sequence of N tokens.

    `maps` has softmax weights (heads, rows, N) of the query positions `rows` (None: all, in order); `pairs`
    has queries and keys, each (heads, N, D); `norms` has ‖f_h(x_j)‖, (heads, N). Without `maps`, weights are
    computed from `pairs` by `similarity`; dot products are multiplied by `scale`. `causal` and `window` are
    those of the layer; `edges` are blocked, as they already are in `maps`. `bias` is added to the scores by
    distance, (heads, 2·N − 1); queries and keys are also compared with `position_keys` and
    `position_queries`, (heads, D, 2·N − 1). The methods are those of
    `model.inspection.layer.LayerAttention`, with b = 1; they raise ValueError if the arrays were not fetched.
    Each block of scores counts as a step of `progress`.
    """

    maps: FetchedHeads | None = None
    rows: IntArray | None = None
    pairs: FetchedHeads | None = None
    norms: FetchedHeads | None = None
    bias: FetchedHeads | None = None
    similarity: AttentionSimilarity = "dot_product"
    position_keys: FetchedHeads | None = None
    position_queries: FetchedHeads | None = None
    scale: float | None = None
    causal: bool = False
    window: int = 0
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

    def mean(self, sequences: slice, heads: IntArray, shares: FloatArray, rows: Places) -> FloatArray | None:  # noqa: ARG002
        """Return None: weights are added up head by head."""
        return None

    def keys(self, rows: Places) -> slice:
        """Return the keys that any of the query positions sees."""
        arrays = self.maps or self.pairs
        length = 0 if arrays is None else arrays.arrays[-1].shape[1 if self.maps is None else 2]
        return visible_keys(rows, length, causal=self.causal, window=self.window)

    def scores(self, _: slice, heads: Places, rows: Places) -> FloatArray:
        """Compute scores before the softmax, float32 (1, heads, rows, N)."""
        if self.pairs is None:
            raise ValueError("neither weights nor queries and keys were fetched")
        self.progress.step()
        q, k = self.pairs.of(heads)
        compared = self._scaled(q[:, rows]) if self.similarity == "dot_product" else q[:, rows]
        scores = compare(compared, k, self.similarity)  # (heads, rows, N)
        by_distance = (self.bias, self.position_keys, self.position_queries)
        if by_distance != (None, None, None) or self.causal or self.window:
            self._add_and_hide(scores, q, k, heads, rows)
        if self.edges is not None:
            numbers = np.arange(heads.stop)[heads] if isinstance(heads, slice) else heads
            scores[self.edges.mask(numbers, rows)] = _LOWEST
        return scores[None]

    def _add_and_hide(
        self, scores: FloatArray, q: FloatArray, k: FloatArray, heads: Places, rows: Places
    ) -> None:
        """Add the terms of scores that depend on distance, and hide keys by distance, in place."""
        length = scores.shape[-1]
        distance = np.arange(length) - np.arange(length)[rows][:, None]  # key - query: (rows, N)
        if self.position_keys is not None:
            (keys,) = self.position_keys.of(heads)
            _add_by_distance(scores, self._scaled(q[:, rows]), keys, distance)
        if self.position_queries is not None:
            (queries,) = self.position_queries.of(heads)
            _add_by_distance(scores.swapaxes(1, 2), self._scaled(k), queries, distance.T)
        if self.bias is not None:
            (bias,) = self.bias.of(heads)
            scores += bias[:, distance + length - 1]
        if self.causal:
            scores[:, distance > 0] = _LOWEST
        if self.window:
            scores[:, np.abs(distance) > self.window] = _LOWEST

    def _scaled(self, x: FloatArray) -> FloatArray:
        """Multiply queries or keys by the scale of their dot products."""
        scaled: FloatArray = np.multiply(
            x, np.float32(x.shape[-1] ** -0.5 if self.scale is None else self.scale)
        )
        return scaled

    def probabilities(self, sequences: slice, heads: Places, rows: Places) -> FloatArray:
        """Return fetched softmax weights, or compute them, float32 (1, heads, rows, N)."""
        if self.maps is None:
            scores = self.scores(sequences, heads, rows)
            empty = scores.max(-1) <= _LOWEST if self.may_lack_keys else None
            computed = softmax(scores)
            if empty is not None:
                computed[empty] = 0
            return computed
        (weights,) = self.maps.of(heads)
        return weights[None, :, rows if self.rows is None else find(self.rows, rows)]

    def value_norms(self, sequences: slice, heads: Places, rows: Places) -> FloatArray:
        """Compute the norms of the weighted values, float32 (1, heads, rows, N)."""
        if self.norms is None:
            raise ValueError("the norms of the values were not fetched")
        (norms,) = self.norms.of(heads)
        return self.probabilities(sequences, heads, rows) * norms[:, None, :]

    def compared(self, which: Literal["query", "key"], _: slice, heads: Places, tokens: Places) -> FloatArray:
        """Select fetched queries or keys, float32 (1, heads, tokens, D)."""
        if self.pairs is None:
            raise ValueError("queries and keys were not fetched")
        return self.pairs.of(heads)[which == "key"][None, :, tokens]

    def output_norms(self, sequences: slice, heads: Places, rows: Places) -> FloatArray:  # noqa: ARG002
        """Raise ValueError: a graph returns no values."""
        raise ValueError("graphs return no values of heads, of which the norms of outputs are made")


def compare(q: FloatArray, k: FloatArray, similarity: AttentionSimilarity) -> FloatArray:
    """Compare queries (heads, rows, D) with keys (heads, N, D), as a graph returns them: (heads, rows, N).

    The graph has made the vectors of cosines unit vectors, and has multiplied those of Mahalanobis distances
    by the metric, so these are dot products and Euclidean distances here.
    """
    if similarity == "manhattan":
        return -_sum_of_differences(q, k, np.abs)
    if similarity == "mahalanobis":
        squares = _sum_of_differences(q, k, np.square)
        return np.negative(np.sqrt(squares, out=squares), out=squares)
    return q @ k.swapaxes(1, 2)


def _sum_of_differences(q: FloatArray, k: FloatArray, size: np.ufunc) -> FloatArray:
    """Sum `size` of the differences, component by component, in the memory of two results."""
    total = np.zeros((*q.shape[:2], k.shape[1]), np.float32)
    difference = np.empty_like(total)
    for component in range(q.shape[-1]):
        np.subtract(q[:, :, None, component], k[:, None, :, component], out=difference)
        total += size(difference, out=difference)
    return total


def _add_by_distance(scores: FloatArray, x: FloatArray, vectors: FloatArray, distance: IntArray) -> None:
    """Add the products of x (heads, n, D) and the vectors (heads, D, 2·N − 1) of distances (n, m).

    `scores` (heads, n, m) are changed in place, in squares, so that only the vectors of the distances within
    a square are multiplied.
    """
    nearest = vectors.shape[2] // 2
    for i, j in product(range(0, distance.shape[0], _SQUARE), range(0, distance.shape[1], _SQUARE)):
        rows, columns = slice(i, i + _SQUARE), slice(j, j + _SQUARE)
        indices = distance[rows, columns] + nearest
        first = indices.min()
        products = x[:, rows] @ vectors[:, :, first : indices.max() + 1]
        scores[:, rows, columns] += np.take_along_axis(products, (indices - first)[None], -1)


def softmax(scores: FloatArray) -> FloatArray:
    """Compute the softmax over the last axis, in place."""
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    return scores


def find(listed: IntArray, wanted: Places) -> Places:
    """Find the indices of the wanted positions in a sorted list; a slice stays a slice."""
    if isinstance(wanted, slice):
        start = int(np.searchsorted(listed, wanted.start))
        return slice(start, start + wanted.stop - wanted.start)
    return np.searchsorted(listed, wanted)
