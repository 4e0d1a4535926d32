"""What sequences want to know of a layer's attention, as the kernels take it."""

from collections.abc import Iterator, Sequence
from ctypes import addressof
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.contract import FloatArray
from model.pytorch.kernels.structures import Look

IntArray = NDArray[np.int64]


class Slots:
    """Which of `count` heads or query positions are wanted, distinct ones, and where each of them goes."""

    def __init__(self, numbers: Sequence[int] | IntArray, count: int) -> None:
        self._slots = np.full(count, -1, np.int32)  # -1: nowhere
        self._slots[numbers] = np.arange(len(numbers))
        self.wanted = len(numbers)
        self.address = self._slots.ctypes.data


class Looks:
    """What the sequences of a batch want to know of the attention of one layer with `heads` heads.

    Each method speaks of neighbouring sequences of one length, from `first` on; of its `out` every sequence
    has one entry of the first axis, in which nothing lies apart.
    """

    def __init__(self, sequences: int, heads: int) -> None:
        self.heads = heads
        self._array = (Look * sequences)()
        self._kept: list[object] = []  # what the kernel is given the addresses of

    @property
    def address(self) -> int:
        """Where the kernel finds them."""
        return addressof(self._array)

    def statistics(self, first: int, out: FloatArray, heads: Slots, special: FloatArray) -> None:
        """Have statistics written to `out`, float32 (b, heads, 10).

        They stand in the order of `model.contract.STATISTICS` and are means over the rows. `special`, float32
        (N,), is 1 where a token is special.
        """
        self._kept += [out, heads, special]
        place = special.ctypes.data
        for look, address in self._each(first, out):
            look.statistics, look.special = address, place
            look.statistic_slots, look.statistic_heads = heads.address, heads.wanted

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
        self._kept += [out, heads, rows, finite]
        slots, count = (None, out.shape[2]) if rows is None else (rows.address, rows.wanted)
        half, told = out.dtype == np.float16, 0 if finite is None else finite.ctypes.data
        for i, (look, address) in enumerate(self._each(first, out)):
            look.maps, look.half = address, half
            look.head_slots, look.map_heads = heads.address, heads.wanted
            look.row_slots, look.map_rows = slots, count
            look.finite = told + i if told else None

    def _each(self, first: int, out: NDArray[Any]) -> Iterator[tuple[Look, int]]:
        start, step = out.ctypes.data, out.strides[0]
        for i in range(len(out)):
            yield self._array[first + i], start + i * step
