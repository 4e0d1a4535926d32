"""Collects the weights of chosen edges while maps are computed: a map is never held as a whole."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from model.arrays import NUMPY, Array, IntArray, Operations
from model.contract import AttentionWant, Output
from model.inspection import reduction
from model.inspection.selection import AxisSelection


class EdgeCollector:
    """Collects the edges of `count` sequences; its arguments and methods are those of `Collector`.

    The rows must include the query of each edge, and the columns its key.
    """

    plain = False
    """Whether a native kernel can collect edges; it cannot, as it writes whole rows."""

    def __init__(
        self,
        want: AttentionWant,
        count: int,
        axes: Sequence[tuple[int, IntArray | None]],
        rows: AxisSelection,
        columns: AxisSelection,
    ) -> None:
        edges = np.array(cast("tuple[tuple[int, int], ...]", want.edges), np.int64).reshape(-1, 2)
        places = np.searchsorted(rows.positions, edges[:, 0])
        self._order = np.argsort(places, kind="stable")  # of edges, by their row
        self._rows = places[self._order]
        self._columns = np.searchsorted(columns.positions, edges[self._order, 1])
        self._want = want
        self._keys = None if columns.every else columns.tokens(slice(0, len(columns)))
        self._starts = columns.merged(slice(0, len(columns)))
        self._places = [order for _, order in axes]
        self._finite = np.ones(count, bool)
        shape = (*(length for length, _ in axes), len(edges))
        self._weights: NDArray[Any] = np.empty((count, *shape), want.dtype)

    def collect(
        self, ops: Operations, weights: Array, where: tuple[int | slice, ...], starts: IntArray | None
    ) -> None:
        """Take the edges from rows of weights (b, …, rows, N), merged and rescaled as requested.

        `where` is the place of these rows among all; `starts` is where each word begins among them.
        """
        *leading, part = where
        part = cast(slice, part)
        first, last = np.searchsorted(self._rows, (part.start, part.stop))
        if first == last:
            return
        if self._keys is not None:
            weights = ops.take(weights, self._keys, -1)
        weights = reduction.merge_pieces(ops.numpy(weights), rows=starts, columns=self._starts)
        if self._want.renormalize:
            weights = reduction.renormalize(weights)
        some = slice(int(first), int(last))
        found = weights[..., self._rows[some] - part.start, self._columns[some]]  # (b, …, edges)
        self._finite[leading[0]] &= NUMPY.finite(found)
        self._weights[tuple(leading)][..., self._order[some]] = reduction.rounded(found, self._want.dtype)

    def output(self, index: int) -> Output:
        """Return the edges of one sequence, each axis in the requested order."""
        one: NDArray[Any] = self._weights[index]
        for axis, places in enumerate(self._places):
            one = one if places is None else one.take(places, axis)
        return Output(attention=np.ascontiguousarray(one), finite=bool(self._finite[index]))
