"""What the kernels record of a layer's attention while it is computed, and where they put it."""

from collections.abc import Iterator, Sequence
from ctypes import addressof
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.contract import FloatArray
from model.pytorch.kernels.structures import Observation

IntArray = NDArray[np.int64]


class Slots:
    """Which of `count` heads or query positions are wanted, distinct ones, and where each of them goes."""

    def __init__(self, numbers: Sequence[int] | IntArray, count: int) -> None:
        self._slots = np.full(count, -1, np.int32)  # -1: nowhere
        self._slots[numbers] = np.arange(len(numbers))
        self.wanted = len(numbers)
        self.address = self._slots.ctypes.data


class Observations:
    """What is recorded of the attention of one layer with `heads` heads, for each sequence of a batch.

    Each method is for neighbouring sequences of one length, from `first` on; of its `out` every sequence
    has one entry of the first axis, which is C-contiguous.
    """

    def __init__(self, sequences: int, heads: int) -> None:
        self.heads = heads
        self._array = (Observation * sequences)()
        self._alive: list[object] = []  # what the kernel is given the addresses of

    @property
    def address(self) -> int:
        """Where the kernel finds them."""
        return addressof(self._array)

    def statistics(self, first: int, out: FloatArray, heads: Slots, special: FloatArray) -> None:
        """Have statistics written to `out`, float32 (b, heads, 10).

        They stand in the order of `model.contract.STATISTICS` and are means over the rows. `special`, float32
        (N,), is 1 where a token is special.
        """
        self._alive += [out, heads, special]
        place = special.ctypes.data
        for one, address in self._each(first, out):
            one.statistics, one.special = address, place
            one.statistic_slots, one.statistic_heads = heads.address, heads.wanted

    def weights(
        self,
        first: int,
        out: NDArray[Any],
        heads: Slots,
        rows: Slots | None,
        finite: NDArray[np.bool_] | None = None,
    ) -> None:
        """Have softmax weights written to `out`, float32 or float16 (b, heads, rows, N).

        Without `rows` they are those of all queries. `finite` (b,) becomes False where not all of them are
        numbers.
        """
        self._alive += [out, heads, rows, finite]
        slots, count = (None, out.shape[2]) if rows is None else (rows.address, rows.wanted)
        half, first_flag = out.dtype == np.float16, None if finite is None else finite.ctypes.data
        for i, (one, address) in enumerate(self._each(first, out)):
            one.maps, one.half = address, half
            one.head_slots, one.map_heads = heads.address, heads.wanted
            one.row_slots, one.map_rows = slots, count
            one.finite = None if first_flag is None else first_flag + i

    def _each(self, first: int, out: NDArray[Any]) -> Iterator[tuple[Observation, int]]:
        start, step = out.ctypes.data, out.strides[0]
        for i in range(len(out)):
            yield self._array[first + i], start + i * step
