"""Measures the share of the cores that other programs took, and repeats disturbed measurements."""

import os
import resource
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
# The fields of /proc/stat in which the core was free: idle, and waiting for a disk.
_IDLE_FIELDS = (3, 4)
_STAT_FIELDS = 8


@dataclass(frozen=True)
class Undisturbed(Generic[T]):
    """A measurement, and the share of the cores that other programs took during it."""

    value: T
    others: float


def least_disturbed(
    measure: Callable[[], T], pids: Iterable[int], turns: int, *, at_most: float = 0.03
) -> Undisturbed[T]:
    """Repeat a measurement until others take at most a share of the cores, or a number of turns is reached.

    Returns the least disturbed turn. The processes of `pids`, this program and its finished children do not
    count as others.
    """
    own = list(pids)
    best: Undisturbed[T] | None = None
    for _ in range(turns):
        busy, ours, whole = _busy_s(), _own_s(own), _whole_s()
        value = measure()
        busy, ours, whole = _busy_s() - busy, _own_s(own) - ours, _whole_s() - whole
        turn = Undisturbed(value, max(0.0, busy - ours) / whole)
        if best is None or turn.others < best.others:
            best = turn
        if best.others <= at_most:
            break
    assert best is not None, "at least one turn"
    return best


def _fields() -> list[int]:
    first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    return [int(field) for field in first.split()[1 : 1 + _STAT_FIELDS]]


def _busy_s() -> float:
    """Seconds of all cores in which any program ran, the host's other guests included."""
    return _TICK_S * sum(ticks for i, ticks in enumerate(_fields()) if i not in _IDLE_FIELDS)


def _whole_s() -> float:
    """Seconds of all cores."""
    return _TICK_S * sum(_fields())


def _own_s(pids: Iterable[int]) -> float:
    """Seconds that these processes, this one and its finished children have run."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used) + sum(_ran_s(pid) for pid in pids)


def _ran_s(pid: int) -> float:
    # After the name, which may have spaces in it: the state is field 3, and times are fields 14 and 15.
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return _TICK_S * (int(fields[11]) + int(fields[12]))
