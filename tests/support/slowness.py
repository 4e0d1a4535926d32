"""How slow the processor is at the moment, for bounds of processor time that are those of a usual one."""

import time
from collections.abc import Callable

_SQUARES, _SQUARES_S = 200_000, 0.012
"""A sum of so many squares, and how long it takes on the processor that the bounds are for."""


def slowness(clock: Callable[[], float] = time.perf_counter) -> float:
    """How much longer than expected the processor takes at the moment, at least 1."""
    start = clock()
    sum(i * i for i in range(_SQUARES))
    return max(1.0, (clock() - start) / _SQUARES_S)
