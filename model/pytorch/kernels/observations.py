"""Tells the native kernels what to record of a layer's attention while they compute it, and where."""

from collections.abc import Iterator, Sequence
from ctypes import addressof, sizeof
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.contract import FloatArray
from model.pytorch.kernels.structures import Observation

IntArray = NDArray[np.int64]


class Slots:
    """Maps each of `count` heads or query positions to its place in the result, or to none.

    `numbers` are the selected ones, all different. `places` are their places, by default 0, 1, 2, ….
    """

    def __init__(self, numbers: Sequence[int] | IntArray, count: int, places: IntArray | None = None) -> None:
        self._slots = np.full(count, -1, np.int32)  # -1: not selected
        self._slots[numbers] = np.arange(len(numbers)) if places is None else places
        self.wanted = len(numbers)
        self.address = self._slots.ctypes.data


class Observations:
    """The recordings of one layer with `heads` heads, for each sequence of a batch.

    Each method covers consecutive sequences of one length, from `first` on. Each entry on the first axis of
    `out` belongs to one sequence and is C-contiguous.
    """

    def __init__(self, sequences: int, heads: int) -> None:
        self.heads = heads
        self._array = (Observation * sequences)()
        self._alive: list[object] = []  # the kernel holds their addresses

    def address(self, sequence: int) -> int:
        """Return the address of a sequence's `Observation`; those of the sequences after it follow."""
        return addressof(self._array) + sequence * sizeof(Observation)

    def statistics(self, first: int, out: FloatArray, heads: Slots, special: FloatArray) -> None:
        """Make the kernel write statistics to `out`, float32 (b, heads, statistics).

        They are means over the rows, in the order of `model.contract.STATISTICS`. `special`, float32 (N,), is
        1 for special tokens, else 0.
        """
        self._alive += [out, heads, special]
        special_address = special.ctypes.data
        for one, address in self._each(first, out):
            one.statistics, one.special = address, special_address
            one.statistic_slots, one.statistic_heads = heads.address, heads.wanted

    def weights(
        self,
        first: int,
        out: NDArray[Any],
        heads: Slots,
        rows: Slots | None,
        finite: NDArray[np.bool_] | None = None,
    ) -> None:
        """Make the kernel write softmax weights to `out`, float32 or float16 (b, heads, rows, N).

        `rows` None means all queries. `finite` (b,) becomes False for a sequence with a NaN or an infinity.
        """
        self._alive += [out, heads, rows, finite]
        slots, count = (None, out.shape[2]) if rows is None else (rows.address, rows.wanted)
        half, first_flag = out.dtype == np.float16, None if finite is None else finite.ctypes.data
        for i, (one, address) in enumerate(self._each(first, out)):
            one.maps, one.half = address, half
            one.head_slots, one.map_heads = heads.address, heads.wanted
            one.row_slots, one.map_rows = slots, count
            one.finite = None if first_flag is None else first_flag + i

    def mean(self, first: int, out: FloatArray, shares: FloatArray, rows: Slots) -> None:
        """Make the kernel add all heads' weights, each times its share (H,), to `out`, (b, rows, N) of zeros.

        Heads whose share is 0 are not computed.
        """
        heads = Slots(np.flatnonzero(shares), self.heads)
        self._alive += [out, shares, heads, rows]
        for one, address in self._each(first, out):
            one.maps, one.shares = address, shares.ctypes.data
            one.head_slots, one.map_heads = heads.address, heads.wanted
            one.row_slots, one.map_rows = rows.address, rows.wanted

    def thumbnails(
        self, first: int, out: FloatArray, heads: Slots, rows: Slots, spans: NDArray[np.int32]
    ) -> None:
        """Make the kernel raise the cells of `out`, float32 (b, heads, cells, cells), to the largest weights.

        `rows` maps query positions to their cells; `spans` (runs, 3) are the keys of each cell: the cell, a
        start and a stop.
        """
        self._alive += [out, heads, rows, spans]
        for one, address in self._each(first, out):
            one.thumbnails = address
            one.thumbnail_slots, one.thumbnail_heads = heads.address, heads.wanted
            one.cell_of_row, one.columns, one.spans = rows.address, spans.ctypes.data, len(spans)
            one.row_cells, one.column_cells = out.shape[2:]

    def _each(self, first: int, out: NDArray[Any]) -> Iterator[tuple[Observation, int]]:
        start, step = out.ctypes.data, out.strides[0]
        for i in range(len(out)):
            yield self._array[first + i], start + i * step
