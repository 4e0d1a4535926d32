"""How many batches run side by side."""

import os

_MOST_LANES = 4


def count_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def choose_lanes(cores: int) -> int:
    """Choose how many batches run side by side on a CPU: one per core, up to four, leaving few cores idle.

    A product on one core never waits for other cores, nor for the processes that share them: 7 to
    37 % faster than one batch on two cores (`benchmarks/forward.py`). With more than a few lanes, they would
    wait for the interpreter lock.
    """
    return max(range(1, min(cores, _MOST_LANES) + 1), key=lambda lanes: (cores // lanes * lanes, lanes))
