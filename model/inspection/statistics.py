"""Statistics of attention without building the maps: block by block, in the memory of one block.

The tests compare them with `tests/references/measures.py`, which computes each formula over whole maps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from model.arrays import Array, IntArray, Operations
from model.choices import Statistic
from model.contract import STATISTICS, FloatArray, SummaryWant
from model.inspection.layer import LOWEST, LayerAttention
from model.inspection.reduction import merge_pieces, renormalize
from model.inspection.selection import AxisSelection, HeadSelection, in_blocks


class StatisticsObserver:
    """The statistics of `count` consecutive sequences of `length` tokens with the same want."""

    def __init__(self, want: SummaryWant, count: int, length: int, ops: Operations) -> None:
        self.layers = sorted(set(want.layers))
        self._want = want
        self._ops = ops
        self._heads = HeadSelection(want.heads)
        self._length = length
        self._units = AxisSelection(want.units, length)
        self._means = np.zeros((len(self.layers), count, len(self._heads), len(STATISTICS)), np.float32)

    @property
    def plain(self) -> bool:
        """Whether the rows and columns are all tokens."""
        return self._units.every

    @property
    def heads(self) -> IntArray:
        """The numbers of the selected heads, each once."""
        return self._heads.numbers

    @cached_property
    def special(self) -> FloatArray:
        """Which tokens are special: float32 (N,), 1 for a special token, else 0."""
        special = np.zeros(self._length, np.float32)
        special[np.array(self._want.special, np.int64)] = 1
        return special

    def buffer(self, number: int) -> FloatArray:
        """Return the buffer that a native kernel fills while one layer attends; only if `plain`.

        The statistics, float32 (b, heads, 10), in the order of `STATISTICS`.
        """
        return self._means[self.layers.index(number)]

    def observe(self, number: int, layer: LayerAttention) -> None:
        """Compute the requested statistics of one layer."""
        ops, names, units = self._ops, self._want.statistics, self._units
        means = self._means[self.layers.index(number)]  # (b, heads, statistics)
        count, heads = means.shape[:2]
        sums = ops.array(np.zeros((len(names), count, heads)))
        room = ops.measured_at_once
        for sequences, rows, parts in in_blocks(count, heads, len(units), self._length * units.longest, room):
            for part in parts:
                scores = layer.scores(sequences, self._heads.some(part), units.tokens(rows))
                block = self._weigh(scores, rows, lacks_keys=layer.may_lack_keys)
                sums[:, sequences, part] += ops.stack([ops.total(BY_ROW[name](block)) for name in names])
        places = [STATISTICS.index(name) for name in names]
        means[..., places] = ops.numpy(sums / max(1, len(units))).transpose(1, 2, 0)

    @cached_property
    def _positions(self) -> Array:
        return self._ops.array(np.arange(len(self._units), dtype=np.float32))

    @cached_property
    def _special(self) -> IntArray:
        return np.array(self._want.special, np.int64)

    def _weigh(self, scores: Array, rows: slice, *, lacks_keys: bool) -> "RowBlock":
        """Turn scores (b, heads, tokens of the rows, N) into weights, and merge tokens into the units.

        If there may be rows without keys, `lacks_keys`, their weights become 0.
        """
        ops, units = self._ops, self._units
        largest = ops.largest(scores, -1)
        scores -= largest
        e, factor = ops.weigh(scores)
        if lacks_keys:
            for x in (e, factor):
                if x is not None:
                    x[largest[..., 0] <= LOWEST] = 0
        if self.plain:
            return RowBlock(ops, e, factor, rows.start, self._special, self._positions, scores)
        every = slice(0, len(units))
        p = ops.take(e, units.tokens(every), -1)
        if factor is not None:
            p = p * factor[..., None]
        p = merge_pieces(p, rows=units.merged(rows), columns=units.merged(every), ops=ops)
        if self._want.renormalize:
            p = renormalize(p)
        return RowBlock(ops, p, None, rows.start, self._special, self._positions)

    def output(self, index: int) -> dict[str, FloatArray]:
        """Return the statistics of one sequence: each float32 (layers, heads), in the listed order."""
        layers = [self.layers.index(number) for number in self._want.layers]
        listed = self._means[layers, index][:, self._heads.places]  # (layers, heads, statistics)
        return {
            name: np.ascontiguousarray(listed[..., STATISTICS.index(name)]) for name in self._want.statistics
        }


@dataclass
class RowBlock:
    """Weights p of the rows from `start` on; each statistic of them is (b, heads, rows).

    p is e·factor, with `e` (b, heads, rows, n) and `factor` (b, heads, rows); None means all ones.
    `scores`, if given, are log p plus a constant per row that makes the largest 0; `entropy` overwrites them.
    """

    ops: Operations
    e: Array
    factor: Array | None
    start: int
    special: IntArray
    positions: Array
    scores: Array = None

    @cached_property
    def peaks(self) -> tuple[Array | None, Array]:
        """The largest e of each row (None with a factor, where it is 1), and its first index."""
        return self.ops.peaks(self.e, values=self.factor is None)

    @property
    def largest(self) -> Array:
        """The largest weight of each row; with a factor, the largest e is e⁰ = 1, so it is the factor."""
        return self.peaks[0] if self.factor is None else self.factor

    @cached_property
    def offsets(self) -> Array:
        """The first index of the largest weight of each row, relative to the row's own position."""
        stop = self.start + self.e.shape[-2]
        return self.peaks[1] - self.ops.array(np.arange(self.start, stop))

    def scaled(self, x: Array) -> Array:
        """Convert sums over e, (b, heads, rows), into sums over p."""
        return x if self.factor is None else x * self.factor

    def entropy(self) -> Array:
        """−Σ p log p, with log p = log largest + score; clipped at 0, since rounding may go below."""
        ops = self.ops
        if self.scores is None:
            entropy = -ops.sum_x_log_x(self.e)
        else:
            # In a row without keys the largest weight is 0, and so is all else.
            largest = self.largest + (self.largest == 0)
            entropy = -ops.log(largest) - self.scaled(ops.dot(self.scores, self.e))
        return ops.at_least(entropy, 0)

    def distance(self) -> Array:
        """Σ p |query − key|."""
        rows = self.positions[self.start : self.start + self.e.shape[-2], None]
        return self.scaled(self.ops.dot(abs(rows - self.positions), self.e))

    def near(self, offset: int) -> Array:
        """Return the entries (i, i + offset); the first or last rows may have none."""
        offset += self.start
        inside = -self.e.shape[-2] < offset < self.e.shape[-1]
        on = self.e.diagonal(offset, -2, -1) if inside else self.e[..., 0, :0]
        if self.factor is None:
            return on
        first = max(0, -offset)
        return on * self.factor[..., first : first + on.shape[-1]]

    def on_special(self) -> Array:
        """Σ p over special keys."""
        return self.scaled(self.ops.take(self.e, self.special, -1).sum(-1))

    def at_peak(self, offset: int) -> Array:
        """1 for a row whose largest weight is at i + offset, else 0; NaN for a row with a NaN.

        It is 0 for a row without keys, which has no largest weight.
        """
        return ((self.offsets == offset) & (self.largest > 0)) + 0 * self.largest


BY_ROW: dict[Statistic, Callable[[RowBlock], Array]] = {
    "entropy": RowBlock.entropy,
    "confidence": lambda block: block.largest,
    "mean_distance": RowBlock.distance,
    "self": lambda block: block.near(0),
    "previous": lambda block: block.near(-1),
    "next": lambda block: block.near(1),
    "special": RowBlock.on_special,
    "argmax_self": lambda block: block.at_peak(0),
    "argmax_previous": lambda block: block.at_peak(-1),
    "argmax_next": lambda block: block.at_peak(1),
}
