"""Observes an attention rollout: the flow of attention through all layers."""

import numpy as np

from model.arrays import Array, Operations
from model.contract import AttentionWant, Output
from model.inspection.collector import choose_collector
from model.inspection.layer import LayerAttention, aggregate_heads
from model.inspection.selection import AxisSelection, HeadSelection, in_blocks


class RolloutObserver:
    """The rollout of `count` consecutive sequences of `length` tokens with the same want.

    R = Â_last … Â_0, from layer 0 to the last requested layer, with Â = ½(A + I) and A the mean over the
    heads (Abnar & Zuidema 2020, arXiv 2005.00928, §3).
    """

    def __init__(self, want: AttentionWant, count: int, length: int, ops: Operations) -> None:
        self.layers = list(range(max(want.layers) + 1))
        self._ops = ops
        self._heads = HeadSelection(want.heads)
        self._every, self._rows = (AxisSelection(axis, length) for axis in (None, want.queries))
        columns = AxisSelection(want.keys, length)
        self._collector = choose_collector(want, count, [], self._rows, columns)
        self._shape = count, length
        self._flow: Array = None  # (b, N, N); b is 1 while the flow is the same for all sequences

    def observe(self, number: int, layer: LayerAttention) -> None:
        """Multiply one more layer into the flow; in the last layer, only for the selected rows."""
        if self._flow is None:
            self._flow = self._ops.array(np.eye(self._shape[1], dtype=np.float32)[None])
        if number < self.layers[-1]:
            self._flow = self._through(layer, self._every)
            return
        every = slice(0, len(self._rows))
        flow = self._through(layer, self._rows)
        self._collector.collect(self._ops, flow, (slice(0, len(flow)), every), self._rows.merged(every))

    def _through(self, layer: LayerAttention, rows: AxisSelection) -> Array:
        """Multiply rows of this layer's Â with the flow through the layers before: (b, rows, N)."""
        count, length = self._shape
        before = self._ops.take(self._flow, rows.tokens(slice(0, len(rows))), 1)
        attention = self._ops.empty(count, before.shape[1], length)
        for sequences, some, parts in in_blocks(count, len(self._heads), len(rows), length * rows.longest):
            attention[sequences, rows.span(some)] = aggregate_heads(
                self._ops, layer, "probability", "mean", self._heads, sequences, parts, rows.tokens(some)
            )
        return (attention @ self._flow + before) / 2

    def output(self, index: int) -> Output:
        """Return the output of one sequence."""
        return self._collector.output(index)
