"""Collects the requested parts of attention maps, in the requested dtype, order and form."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from model.arrays import NUMPY, Array, IntArray, Operations
from model.contract import AttentionWant, FloatArray, Output, Top
from model.inspection import reduction
from model.inspection.edges import EdgeCollector
from model.inspection.selection import AxisSelection
from model.inspection.thumbnails import ThumbnailCollector


class Collector:
    """Collects the maps of `count` sequences in the requested dtype, `dtype`.

    `axes` are the axes of a map before its rows and columns: the length of each, and the requested order of
    its entries. `columns` are the requested key positions, each once (None: all). An entry that is
    listed twice is computed once.
    """

    def __init__(
        self,
        want: AttentionWant,
        count: int,
        axes: Sequence[tuple[int, IntArray | None]],
        rows: AxisSelection,
        columns: AxisSelection,
    ) -> None:
        shape = (*(length for length, _ in axes), len(rows))
        places = (*(order for _, order in axes), rows.places)
        self.dtype = np.dtype(want.dtype)
        self.columns = None if columns.every else columns.tokens(slice(0, len(columns)))
        self._want = want
        self._units = columns
        self._places = places if want.top_k is not None else (*places, columns.places)
        self._starts = columns.merged(slice(0, len(columns)))
        self._plain = want.top_k is None and not want.renormalize and not columns.words
        self._finite = np.ones(count, bool)
        self._map: NDArray[Any] | None = None
        self._top: Top | None = None
        if want.top_k is None:
            self._map = np.empty((count, *shape, len(columns)), want.dtype)
        else:
            listed = len(columns) if columns.counts is None else int(columns.counts.sum())
            k = min(want.top_k, listed)
            self._top = Top(
                np.empty((count, *shape, k), np.int32),
                np.empty((count, *shape, k), np.float32),
                np.empty((count, *shape), np.float32),
            )

    @property
    def plain(self) -> bool:
        """Whether rows are stored with all their columns, as a native kernel writes them."""
        return self.only_rounds(None) and self.columns is None and self.dtype.kind == "f"

    def only_rounds(self, starts: IntArray | None) -> bool:
        """Whether rows are collected unchanged, except for their dtype."""
        return self._plain and starts is None

    def collect(
        self, ops: Operations, weights: Array, where: tuple[int | slice, ...], starts: IntArray | None
    ) -> None:
        """Merge, rescale, sort and round rows of weights (b, …, rows, N) as requested, and store them.

        `where` is the rows' place in the result; `starts` is where each word begins among them. Maps in
        float16 are rounded on the device, which halves the bytes to copy.
        """
        if self.columns is not None:
            weights = ops.take(weights, self.columns, -1)
        if self.only_rounds(starts) and self.dtype == np.float16:
            self._put(ops.numpy_float16(weights), where, ops.finite(weights))
        else:
            self._reduce(ops.numpy(weights), where, starts)

    def _reduce(self, weights: FloatArray, where: tuple[int | slice, ...], starts: IntArray | None) -> None:
        if not self.only_rounds(starts):
            weights = reduction.merge_pieces(weights, rows=starts, columns=self._starts)
        if self._want.renormalize:
            weights = reduction.renormalize(weights, self._units.counts)
        if self._top is None:
            finite = np.ones(1, bool) if self.dtype == np.float32 else NUMPY.finite(weights)
            self._put(reduction.rounded(weights, self._want.dtype), where, finite)
            return
        k, units = self._top.keys.shape[-1], self._units
        found = reduction.top_k(weights, k, units.positions, units.counts)
        self._top.keys[where], self._top.weights[where], self._top.residual[where] = found

    def buffer(self, place: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the maps at one index of their first axis, (b, …), and whether they are finite, (b,)."""
        return cast("NDArray[Any]", self._map)[:, place], self._finite

    def _put(self, values: NDArray[Any], where: tuple[int | slice, ...], finite: NDArray[np.bool_]) -> None:
        """Store finished values; `finite` (b,) was computed before they were rounded."""
        self._finite[where[0]] &= finite
        cast("NDArray[Any]", self._map)[where] = values

    def output(self, index: int) -> Output:
        """Return the output of one sequence, each axis in the requested order."""

        def listed(array: NDArray[Any]) -> NDArray[Any]:
            one: NDArray[Any] = array[index]
            for axis, places in enumerate(self._places):
                one = one if places is None else one.take(places, axis)
            return one

        if self._map is not None:
            return Output(attention=listed(self._map), finite=bool(self._finite[index]))
        top = cast(Top, self._top)
        return Output(top=Top(listed(top.keys), listed(top.weights), listed(top.residual)))


def choose_collector(
    want: AttentionWant,
    count: int,
    axes: Sequence[tuple[int, IntArray | None]],
    rows: AxisSelection,
    columns: AxisSelection,
) -> Collector | EdgeCollector | ThumbnailCollector:
    """Make the collector of the maps of `count` sequences, or parts of them; arguments as for `Collector`."""
    kind: type[Collector | EdgeCollector | ThumbnailCollector] = Collector
    if want.edges is not None:
        kind = EdgeCollector
    elif want.thumbnail is not None:
        kind = ThumbnailCollector
    return kind(want, count, axes, rows, columns)
