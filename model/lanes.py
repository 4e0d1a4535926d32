"""How many batches run side by side."""

import os

_MOST_LANES = 4


def count_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def choose_lanes(cores: int) -> int:
    """Say how many batches should run side by side on a CPU: one for each core, or up to four that use most.

    A product on one core waits neither for another core nor for other processes on it: 7 to
    37 % faster than one batch on two cores (`benchmarks/forward.py`). Beyond a few lanes, the interpreter
    would be what they wait for.
    """
    return max(range(1, min(cores, _MOST_LANES) + 1), key=lambda lanes: (cores // lanes * lanes, lanes))
