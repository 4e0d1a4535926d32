"""Statistics of attention from queries and keys in numpy, block by block, without building a map.

`summaries.py` does the same with tensors; both are tested against `tests/references/measures.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from model.contract import FloatArray, Statistic, SummaryWant
from model.inspection import reduction
from model.inspection.array_layer import ArrayLayer
from model.inspection.selection import Heads, IntArray, Units, in_blocks

_ROOM = 2**16
"""Scores in a block: with what is computed of them they stay in a core's own cache."""


def summarize(want: SummaryWant, layers: Mapping[int, ArrayLayer], length: int) -> dict[str, FloatArray]:
    """Measure the layers of one sequence of `length` tokens: each statistic float32 (layers, heads)."""
    heads, units = Heads(want.heads), Units(want.units, length)
    by_layer = {
        number: _measure_layer(want, layers[number], heads, units, length) for number in {*want.layers}
    }
    means = np.stack([by_layer[number] for number in want.layers]) / max(1, len(units))
    listed = means[:, :, heads.places].astype(np.float32)  # (layers, statistics, heads)
    return {name: np.ascontiguousarray(listed[:, i]) for i, name in enumerate(want.statistics)}


def _measure_layer(
    want: SummaryWant, layer: ArrayLayer, heads: Heads, units: Units, length: int
) -> NDArray[np.float64]:
    """Sum each statistic over the rows of a layer: (statistics, heads)."""
    sums = np.zeros((len(want.statistics), len(heads)))
    special = np.array(want.special, np.int64)
    for sequences, rows, parts in in_blocks(1, len(heads), len(units), length * units.longest, _ROOM):
        for part in parts:
            (scores,) = layer.weights("score", sequences, heads.some(part), units.tokens(rows))
            block = _block(scores, want, units, rows, special)
            by_row = [BY_ROW[name](block) for name in want.statistics]
            sums[:, part] += np.stack([x.sum(-1, dtype=np.float64) for x in by_row])
    return sums


def _block(scores: FloatArray, want: SummaryWant, units: Units, rows: slice, special: IntArray) -> "Block":
    """Make weights of scores (heads, tokens of the rows, N), and of the tokens what rows there are."""
    scores -= scores.max(-1, keepdims=True)
    e = np.exp(scores)
    largest = 1 / e.sum(-1)  # with the largest score taken off, p = e/z for e = exp s and z = Σ e
    if units.every:
        return Block(e, largest, rows.start, special, scores)
    every = slice(0, len(units))
    p = e[..., units.tokens(every)] * largest[..., None]
    if units.words:
        p = reduction.merge_pieces(p, rows=units.merged(rows), columns=units.merged(every))
    if want.renormalize:
        p = reduction.renormalize(p)
    return Block(p, np.ones(p.shape[:-1], np.float32), rows.start, special)


@dataclass
class Block:
    """Weights p = e·unit of the rows from `start` on, and what is read off them: (heads, rows).

    `e` is (heads, rows, n), `unit` (heads, rows). `scores` are the logarithms of e where the largest e is 1,
    and the largest p is `unit`.
    """

    e: FloatArray
    unit: FloatArray
    start: int
    special: IntArray
    scores: FloatArray | None = None

    @cached_property
    def largest(self) -> FloatArray:
        """The largest weight of each row."""
        return self.unit if self.scores is not None else self.e.max(-1)

    @cached_property
    def places(self) -> NDArray[np.intp]:
        """Where the largest weight of each row first is, counted from its own place."""
        return self.e.argmax(-1) - np.arange(self.start, self.start + self.e.shape[-2])

    def entropy(self) -> FloatArray:
        """−Σ p log p: log z − Σ p s."""
        if self.scores is None:
            logarithms = np.log(self.e, out=np.zeros_like(self.e), where=self.e != 0)
            return np.maximum(-np.vecdot(self.e, logarithms), 0)
        entropy = -np.log(self.unit) - np.vecdot(self.e, self.scores) * self.unit
        return np.maximum(entropy, 0)  # rounding may fall below

    def distance(self) -> FloatArray:
        """Σ p |query − key|."""
        position = np.arange(self.e.shape[-1], dtype=np.float32)
        rows = position[self.start : self.start + self.e.shape[-2], None]
        return np.asarray(np.vecdot(self.e, np.abs(rows - position)) * self.unit)

    def near(self, offset: int) -> FloatArray:
        """Take the entries (i, i + offset); there may be fewer than rows."""
        offset += self.start
        inside = -self.e.shape[1] < offset < self.e.shape[2]
        on = np.diagonal(self.e, offset, 1, 2) if inside else self.e[..., 0, :0]
        first = max(0, -offset)
        return np.asarray(on * self.unit[:, first : first + on.shape[-1]])

    def at_peak(self, offset: int) -> FloatArray:
        """1 where the largest weight is at i + offset, else 0; no number where a row has none."""
        return (self.places == offset) + 0 * self.largest


BY_ROW: dict[Statistic, Callable[[Block], FloatArray]] = {
    "entropy": Block.entropy,
    "confidence": lambda block: block.largest,
    "mean_distance": Block.distance,
    "self": lambda block: block.near(0),
    "previous": lambda block: block.near(-1),
    "next": lambda block: block.near(1),
    "special": lambda block: block.e[..., block.special].sum(-1) * block.unit,
    "argmax_self": lambda block: block.at_peak(0),
    "argmax_previous": lambda block: block.at_peak(-1),
    "argmax_next": lambda block: block.at_peak(1),
}
