"""Observes attention maps, computing only the selected heads, rows and columns."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from model.arrays import IntArray, Operations
from model.contract import AttentionWant, Output
from model.inspection.collector import Collector, choose_collector
from model.inspection.layer import LayerAttention, aggregate_heads, read_weights
from model.inspection.selection import AxisSelection, HeadSelection, in_blocks, unless_in_order
from model.inspection.thumbnails import ThumbnailCollector


class MapObserver:
    """The maps of `count` consecutive sequences of `length` tokens with the same want."""

    def __init__(self, want: AttentionWant, count: int, length: int, ops: Operations) -> None:
        self._want = want
        self.length = length
        self._count = count
        self._ops = ops
        self._heads = HeadSelection(want.heads)
        self._rows = AxisSelection(want.queries, length)
        numbers, places = np.unique(want.layers, return_inverse=True)
        self.layers: list[int] = numbers.tolist()
        axes = [(len(numbers), unless_in_order(places))]
        if want.aggregate == "none":
            axes.append((len(self._heads), unless_in_order(self._heads.places)))
        self._collector = choose_collector(want, count, axes, self._rows, AxisSelection(want.keys, length))

    @property
    def plain(self) -> bool:
        """Whether the want is for unchanged softmax weights with all their columns."""
        want = self._want
        as_they_are = want.weights == "probability" and want.aggregate == "none" and not self._rows.words
        return as_they_are and self._collector.plain

    @property
    def heads(self) -> IntArray:
        """The numbers of the selected heads, each once."""
        return self._heads.numbers

    @property
    def queries(self) -> IntArray | None:
        """The positions of the selected rows, each once; None for all."""
        return None if self._rows.every else self._rows.positions

    @property
    def thumbnails(self) -> ThumbnailCollector | None:
        """The collector of thumbnails; None if something else is collected."""
        return self._collector if isinstance(self._collector, ThumbnailCollector) else None

    def buffer(self, number: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the buffers that a native kernel fills while one layer attends; only if `plain`.

        The weights, (b, heads, rows, N), and for each sequence whether all of them are finite, (b,).
        """
        return cast(Collector, self._collector).buffer(self.layers.index(number))

    def observe(self, number: int, layer: LayerAttention) -> None:
        """Compute the selection in one layer and collect it."""
        want, place = self._want, self.layers.index(number)
        sizes = (self._count, len(self._heads), len(self._rows))
        width, together = self.length * self._rows.longest, layer.together and want.weights != "score"
        for sequences, rows, parts in in_blocks(*sizes, width, together=together):
            starts = self._rows.merged(rows)
            tokens = self._rows.tokens(rows)
            if want.aggregate != "none":
                weights = aggregate_heads(
                    self._ops, layer, want.weights, want.aggregate, self._heads, sequences, parts, tokens
                )
                self._collector.collect(self._ops, weights, (sequences, place, rows), starts)
                continue
            for part in parts:
                weights = read_weights(layer, want.weights, sequences, self._heads.some(part), tokens)
                self._collector.collect(self._ops, weights, (sequences, place, part, rows), starts)

    def output(self, index: int) -> Output:
        """Return the output of one sequence."""
        return self._collector.output(index)
