"""Observes an attention rollout: the flow of attention through all layers."""

from collections.abc import Iterator

import numpy as np

from model.arrays import Array, Operations
from model.choices import Axis
from model.contract import AttentionWant, Output
from model.inspection.collector import choose_collector
from model.inspection.layer import LayerAttention, aggregate_heads
from model.inspection.selection import AxisSelection, HeadSelection, in_blocks

_ROOM = 2**22
"""How many mean weights a block has: sixteen megabytes, enough rows for several threads."""
_LONG, _FEW = 1024, 16
"""Rows are followed backwards in texts of at least `_LONG` tokens, if they are at most 1/`_FEW` of these."""
_KEPT = 2**17
"""How many tokens of all layers may have queries and keys kept for that: a gigabyte, at 768 components."""


class RolloutObserver:
    """The rollout of `count` consecutive sequences of `length` tokens with the same want.

    R = Â_last … Â_0, from layer 0 to the last requested layer, with Â = ½(A + I) and A the mean over the
    heads (Abnar & Zuidema 2020, arXiv 2005.00928, §3).

    All rows are carried from layer to layer, N² numbers at a time. A few rows of a long text are followed
    backwards, from the last layer: that takes N² products for each of them instead of N³, but the queries and
    keys of all layers are kept until then.
    """

    def __init__(self, want: AttentionWant, count: int, length: int, ops: Operations) -> None:
        self.layers = list(range(max(want.layers) + 1))
        self._ops = ops
        self._heads = HeadSelection(want.heads)
        self._every, self._rows = (AxisSelection(axis, length) for axis in (None, want.queries))
        columns = AxisSelection(want.keys, length)
        self._collector = choose_collector(want, count, [], self._rows, columns)
        self._shape = count, length
        self._flow: Array = None  # (b, N, N), after the first layer
        self._kept: list[LayerAttention] = []
        few = self._rows.span(slice(0, len(self._rows))).stop * _FEW <= length
        self._backwards = length >= _LONG and few and count * length * len(self.layers) <= _KEPT

    def observe(self, number: int, layer: LayerAttention) -> None:
        """Multiply one more layer into the flow; in the last layer, only for the selected rows."""
        if self._backwards:
            self._kept.append(layer)
        if number < self.layers[-1]:
            self._flow = None if self._backwards else self._through(layer, self._every)
            return
        every = slice(0, len(self._rows))
        flow = self._followed() if self._backwards else self._through(layer, self._rows)
        self._collector.collect(self._ops, flow, (slice(0, len(flow)), every), self._rows.merged(every))

    def _through(self, layer: LayerAttention, rows: AxisSelection) -> Array:
        """Multiply rows of this layer's Â with the flow through the layers before: (b, rows, N)."""
        ops, (count, length) = self._ops, self._shape
        tokens = rows.tokens(slice(0, len(rows)))
        before = ops.array(np.eye(length, dtype=np.float32)[None]) if self._flow is None else self._flow
        before = ops.take(before, tokens, 1)
        flow = ops.empty(count, before.shape[1], length)
        for sequences, some, parts in self._blocks(layer, len(rows), length * rows.longest):
            queries, span = rows.tokens(some), rows.span(some)
            attention = aggregate_heads(
                ops, layer, "probability", "mean", self._heads, sequences, parts, queries
            )
            if self._flow is not None:
                keys = layer.keys(queries)
                attention = attention[..., keys] @ self._flow[sequences, keys]
            attention += before[sequences if len(before) == count else slice(0, 1), span]
            attention *= 0.5
            flow[sequences, span] = attention
        return flow

    def _followed(self) -> Array:
        """Follow the selected rows from the last layer to the first: (b, rows, N)."""
        (count, length), tokens = self._shape, self._rows.tokens(slice(0, len(self._rows)))
        flow = np.eye(length, dtype=np.float32)[tokens]
        carried = self._ops.array(np.repeat(flow[None], count, 0))
        while self._kept:
            carried = self._carried(self._kept.pop(), carried)
        return carried

    def _carried(self, layer: LayerAttention, rows: Array) -> Array:
        """Multiply rows (b, rows, N) with this layer's Â; only the rows of Â that count are computed."""
        ops, length = self._ops, self._shape[1]
        counting = np.flatnonzero((ops.numpy(rows) != 0).any((0, 1)))
        through = self._every if len(counting) == length else AxisSelection(Axis(tuple(counting)), length)
        sums = ops.array(np.zeros(rows.shape, np.float32))
        for sequences, some, parts in self._blocks(layer, len(through), length):
            queries = through.tokens(some)
            attention = aggregate_heads(
                ops, layer, "probability", "mean", self._heads, sequences, parts, queries
            )
            keys = layer.keys(queries)
            sums[sequences, :, keys] += ops.take(rows[sequences], queries, 2) @ attention[..., keys]
        return (sums + rows) / 2

    def _blocks(
        self, layer: LayerAttention, rows: int, width: int
    ) -> Iterator[tuple[slice, slice, list[slice]]]:
        """Split the sequences and rows of a layer, and the heads unless the layer adds them up itself."""
        if layer.together:
            return in_blocks(self._shape[0], 1, rows, width, _ROOM)
        return in_blocks(self._shape[0], len(self._heads), rows, width)

    def output(self, index: int) -> Output:
        """Return the output of one sequence."""
        return self._collector.output(index)
