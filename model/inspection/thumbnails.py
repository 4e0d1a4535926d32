"""Reduces maps to thumbnails while they are computed: a cell is the largest weight of its rows and columns.

A map of N tokens is never held as a whole: each block of rows is reduced as soon as it is computed.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from model.arrays import NUMPY, Array, IntArray, Operations, Places
from model.contract import AttentionWant, FloatArray, MapDtype, Output
from model.inspection import reduction
from model.inspection.selection import AxisSelection


class Cells:
    """Divides the listed rows or columns of a map, n of them, into m = min(most, n) cells.

    Cell i has the listed entries from ⌊i·n/m⌋ to before ⌊(i + 1)·n/m⌋.
    """

    def __init__(self, axis: AxisSelection, most: int) -> None:
        places = axis.places
        listed = len(axis) if places is None else len(places)
        self._bounds = np.arange(min(most, listed) + 1) * listed // max(1, min(most, listed))
        self._members: list[IntArray] | None = None
        """The distinct entries of each cell, in order; None if each entry is listed once and in order."""
        if places is not None:
            self._members = [np.unique(places[start:stop]) for start, stop in pairwise(self._bounds)]

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self._bounds) - 1

    @property
    def in_order(self) -> bool:
        """Whether each entry of the axis is in one cell, in the order of the cells."""
        return self._members is None

    @cached_property
    def members(self) -> list[IntArray]:
        """The distinct entries of each cell, in order."""
        if self._members is None:
            return [np.arange(start, stop) for start, stop in pairwise(self._bounds.tolist())]
        return self._members

    @property
    def apart(self) -> bool:
        """Whether no entry is in several cells."""
        return self.in_order or len(np.unique(every := np.concatenate(self.members))) == len(every)

    def reduce(self, ops: Operations, x: Array, part: slice, axis: int) -> tuple[Places, Array]:
        """Find the largest number of each cell along an axis of x, whose entries are those of `part`.

        Returns the cells with entries in `part`, and x with the length of that axis reduced to theirs.
        """
        if self._members is None:
            first = int(np.searchsorted(self._bounds, part.start, "right")) - 1
            last = int(np.searchsorted(self._bounds, part.stop, "left"))
            starts = np.maximum(self._bounds[first:last] - part.start, 0)
            return slice(first, last), ops.maxima(x, starts, axis)
        inside = [each[(part.start <= each) & (each < part.stop)] - part.start for each in self._members]
        cells = np.array([i for i, some in enumerate(inside) if len(some)], np.int64)
        # One cell after the other: together, repeated entries could take many times the memory of x.
        largest = [ops.largest(ops.take(x, inside[i], axis), axis) for i in cells]
        return cells, ops.join(largest, axis)


class ThumbnailCollector:
    """Collects the thumbnails of `count` sequences; its arguments and methods are those of `Collector`."""

    def __init__(
        self,
        want: AttentionWant,
        count: int,
        axes: Sequence[tuple[int, IntArray | None]],
        rows: AxisSelection,
        columns: AxisSelection,
    ) -> None:
        self.columns = None if columns.every else columns.tokens(slice(0, len(columns)))
        self.rows, self._keys = rows.positions, columns.positions
        self._rows, self._columns = (Cells(axis, cast(int, want.thumbnail)) for axis in (rows, columns))
        self._dtype: MapDtype = want.dtype
        self._units = columns
        self._places = [order for _, order in axes]
        self._every = slice(0, len(columns))
        self._starts = columns.merged(self._every)
        self._merges = rows.words or columns.words
        self._renormalizes = want.renormalize
        shape = (*(length for length, _ in axes), len(self._rows), len(self._columns))
        self._largest = np.full((count, *shape), -np.inf, np.float32)

    @property
    def plain(self) -> bool:
        """Whether a native kernel can collect them: unchanged weights, with each row in only one cell."""
        return not self._merges and not self._renormalizes and self._rows.apart

    def buffer(self, place: int) -> FloatArray:
        """Return the cells at one index of their first axis, (b, …), each the largest so far, at first −∞."""
        return self._largest[:, place]

    @property
    def cell_of_row(self) -> IntArray:
        """The cell of each of the query positions `rows`; only if `plain`."""
        cells = np.empty(len(self.rows), np.int64)
        for cell, some in enumerate(self._rows.members):
            cells[some] = cell
        return cells

    @cached_property
    def spans(self) -> NDArray[np.int32]:
        """The key positions of each cell as runs of neighbours: (runs, 3), a cell, a start and a stop."""
        found: list[tuple[int, int, int]] = []
        for cell, some in enumerate(self._columns.members):
            keys = self._keys[some]
            breaks = np.flatnonzero(np.diff(keys) != 1) + 1
            found += ((cell, int(run[0]), int(run[-1]) + 1) for run in np.split(keys, breaks) if len(run))
        return np.array(found, np.int32).reshape(-1, 3)

    def collect(
        self, ops: Operations, weights: Array, where: tuple[int | slice, ...], starts: IntArray | None
    ) -> None:
        """Reduce rows of weights (b, …, rows, N), merged and rescaled as requested, to their cells.

        `where` is the place of these rows among all; `starts` is where each word begins among them.
        """
        *leading, part = where
        if not isinstance(part, slice) or part.start == part.stop:
            return
        if self.columns is not None:
            weights = ops.take(weights, self.columns, -1)
        if self._merges or self._renormalizes:
            ops, weights = NUMPY, self._changed(ops.numpy(weights), starts)
        if self._rows.in_order:  # rows first: whole rows are compared fastest
            rows, pooled = self._rows.reduce(ops, weights, part, -2)
            _, pooled = self._columns.reduce(ops, pooled, self._every, -1)
        else:  # columns first: a row that is in many cells is then short
            _, pooled = self._columns.reduce(ops, weights, self._every, -1)
            rows, pooled = self._rows.reduce(ops, pooled, part, -2)
        largest = self._largest[tuple(leading)]
        largest[..., rows, :] = np.maximum(largest[..., rows, :], ops.numpy(pooled))

    def _changed(self, weights: FloatArray, starts: IntArray | None) -> FloatArray:
        if self._merges:
            weights = reduction.merge_pieces(weights, rows=starts, columns=self._starts)
        if self._renormalizes:
            weights = reduction.renormalize(weights, self._units.counts)
        return weights

    def output(self, index: int) -> Output:
        """Return the thumbnails of one sequence, each axis in the requested order."""
        one: NDArray[Any] = self._largest[index]
        for axis, places in enumerate(self._places):
            one = one if places is None else one.take(places, axis)
        finite = bool((one < np.inf).all())  # −inf where no key is seen; NaN < inf is false
        return Output(thumbnails=reduction.rounded(one, self._dtype), finite=finite)
