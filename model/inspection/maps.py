"""The maps that are asked for, and no more of them: chosen heads, rows and columns, as they are wanted."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from model.contract import Aggregate, AttentionWant, FloatArray, Output, Weights
from model.inspection.kept import Kept
from model.inspection.selection import Heads, IntArray, Places, Units, in_blocks, unless_in_order

Array = Any
"""A tensor or a numpy array, float32: what the layers that are looked at are made of."""


class Layer(Protocol):
    """The attention of one layer in b sequences of N tokens, whatever library computes it."""

    def weights(self, kind: Weights, sequences: slice, heads: Places, rows: Places) -> Array:
        """Compute a block, float32 (b, heads, rows, N): softmax weights, scores or weighted value norms."""
        ...

    def over_heads(self, weights: Array, how: Aggregate, shares: FloatArray) -> Array:
        """Take the largest of some heads, or their sum weighed by `shares` (heads,): (b, rows, N)."""
        ...

    def joined(self, one: Array, other: Array, how: Aggregate) -> Array:
        """Join what `over_heads` gives of some heads with what it gives of others."""
        ...

    def keep(
        self, kept: Kept, weights: Array, where: tuple[int | slice, ...], starts: IntArray | None
    ) -> None:
        """Hand weights (b, …, rows, N) to `kept.store`, as numpy and with the columns that it wants."""
        ...

    def identity(self, count: int, length: int) -> Array:
        """Make (count, length, length) of ones on the diagonal."""
        ...

    def empty_like(self, array: Array) -> Array:
        """Make an array of this shape, to be filled."""
        ...


class Maps:
    """The maps of `count` neighbouring sequences of `length` tokens that want the same."""

    def __init__(self, want: AttentionWant, count: int, length: int) -> None:
        self._want = want
        self.length = length
        self._count = count
        self._heads = Heads(want.heads)
        self._rows = Units(want.queries, length)
        numbers, places = np.unique(want.layers, return_inverse=True)
        self.layers: list[int] = numbers.tolist()
        axes = [(len(numbers), unless_in_order(places)), (len(self._rows), self._rows.places)]
        if want.aggregate == "none":
            axes.insert(1, (len(self._heads), unless_in_order(self._heads.places)))
        shape, orders = zip(*axes, strict=True)
        self._kept = Kept(want, count, shape, orders, Units(want.keys, length))

    @property
    def plain(self) -> bool:
        """Whether softmax weights are wanted as they are, with all their columns."""
        want, kept = self._want, self._kept
        as_they_are = want.weights == "probability" and want.aggregate == "none" and not self._rows.words
        return as_they_are and kept.only_rounds(None) and kept.columns is None and kept.dtype.kind == "f"

    @property
    def heads(self) -> IntArray:
        """The numbers of the heads that are wanted, each once."""
        return self._heads.numbers

    @property
    def queries(self) -> IntArray | None:
        """The positions of the rows that are wanted, each once; None where it is all of them."""
        return None if self._rows.every else self._rows.positions

    def buffer(self, number: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Give the buffers that a kernel fills while one layer attends; only where the want is `plain`.

        The weights, (b, heads, rows, N), and whether all of each sequence are finite, (b,).
        """
        return self._kept.buffer(self.layers.index(number))

    def look(self, number: int, layer: Layer) -> None:
        """Compute one layer."""
        place = self.layers.index(number)
        sizes = (self._count, len(self._heads), len(self._rows))
        for sequences, rows, parts in in_blocks(*sizes, self.length * self._rows.longest):
            starts = self._rows.merged(rows)
            tokens = self._rows.tokens(rows)
            if self._want.aggregate != "none":
                weights = aggregate(
                    layer, self._want.weights, self._want.aggregate, self._heads, sequences, parts, tokens
                )
                layer.keep(self._kept, weights, (sequences, place, rows), starts)
                continue
            for part in parts:
                weights = layer.weights(self._want.weights, sequences, self._heads.some(part), tokens)
                layer.keep(self._kept, weights, (sequences, place, part, rows), starts)

    def of(self, index: int) -> Output:
        """Give what one sequence wants."""
        return self._kept.of(index)


class Rollout:
    """Attention followed through the layers, from 0 to the last that is wanted: R = Â_last … Â_0.

    Â = ½(A + I), with A the mean over the heads (Abnar & Zuidema 2020, §3). Looks and gives like `Maps`.
    """

    def __init__(self, want: AttentionWant, count: int, length: int) -> None:
        self.layers = list(range(max(want.layers) + 1))
        self._heads = Heads(want.heads)
        self._every, self._rows = (Units(axis, length) for axis in (None, want.queries))
        columns = Units(want.keys, length)
        self._kept = Kept(want, count, [len(self._rows)], [self._rows.places], columns)
        self._shape = count, length
        self._flow: Array = None  # (b, N, N)

    def look(self, number: int, layer: Layer) -> None:
        """Go through one more layer; of the last one only the wanted rows are computed."""
        if self._flow is None:
            self._flow = layer.identity(*self._shape)
        if number < self.layers[-1]:
            self._flow = self._through(layer, self._every)
            return
        every = slice(0, len(self._rows))
        flow = self._through(layer, self._rows)
        layer.keep(self._kept, flow, (slice(0, len(flow)), every), self._rows.merged(every))

    def _through(self, layer: Layer, rows: Units) -> Array:
        """Multiply rows of this layer's Â with what came before: (b, rows, N)."""
        count, length = self._shape
        after = self._flow[:, rows.tokens(slice(0, len(rows)))]
        attention = layer.empty_like(after)
        for sequences, some, parts in in_blocks(count, len(self._heads), len(rows), length * rows.longest):
            tokens = rows.tokens(some)
            mean = aggregate(layer, "probability", "mean", self._heads, sequences, parts, tokens)
            attention[sequences, rows.span(some)] = mean
        return (attention @ self._flow + after) / 2

    def of(self, index: int) -> Output:
        """Give what one sequence wants."""
        return self._kept.of(index)


def aggregate(
    layer: Layer,
    kind: Weights,
    how: Aggregate,
    heads: Heads,
    sequences: slice,
    parts: Sequence[slice],
    rows: Places,
) -> Array:
    """Aggregate weights (b, heads, rows, N), computed in parts of the heads: (b, rows, N).

    A head that is listed twice counts twice in the mean.
    """
    total: Array = None
    for part in parts:
        weights = layer.weights(kind, sequences, heads.some(part), rows)
        some = layer.over_heads(weights, how, heads.shares[part])
        total = some if total is None else layer.joined(total, some, how)
    return total
