"""How many cores there are, and how many batches run side by side."""

import math
import os
from pathlib import Path

from model.control_groups import group_files, read_lines

_MOST_LANES = 4


def count_cores(root: Path = Path("/")) -> int:
    """Count the cores that this process may use, by its affinity and by the quota of its control groups.

    A part of a core counts as one: with a quota of 1.5, two threads get more done than one.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min([cores, *map(math.ceil, _quotas(root))]))


def _quotas(root: Path) -> list[float]:
    """Read the CPU quotas of this process's control groups, in cores; groups without a limit are left out."""
    quotas = []
    for path in group_files(root, "cpu", v2="cpu.max", v1="cpu.cfs_quota_us"):
        words = [word for line in read_lines(path) for word in line.split()]
        if path.name == "cpu.cfs_quota_us":
            words += read_lines(path.with_name("cpu.cfs_period_us"))
        if len(words) == 2 and all(word.isdigit() for word in words) and words[1] != "0":
            quotas.append(int(words[0]) / int(words[1]))  # no limit is "max", or -1
    return quotas


def choose_lanes(cores: int) -> int:
    """Choose how many batches run side by side on a CPU: one per core, up to four, leaving few cores idle.

    A product on one core never waits for other cores, nor for the processes that share them: 7 to
    37 % faster than one batch on two cores (`benchmarks/passes/forward.py`). More than a few lanes would wait
    for the interpreter lock.
    """
    return max(range(1, min(cores, _MOST_LANES) + 1), key=lambda lanes: (cores // lanes * lanes, lanes))
