"""What the operating system and the metrics say of a service, and of other programs that take the cores."""

import os
import re
import resource
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import httpx

from benchmarks.kit.servers import Headlight

T = TypeVar("T")

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
# The fields of /proc/stat in which the core was free: idle, and waiting for a disk.
_IDLE_FIELDS = (3, 4)
_STAT_FIELDS = 8


@dataclass(frozen=True)
class Processes:
    """The processes of a service now: their number, memory, open files and processor time.

    `mib` is their proportional set size, which counts shared pages once.
    """

    pids: Sequence[int]
    mib: float
    files: int
    cpu_s: float


def processes(server: Headlight) -> Processes:
    """Look at a service and all processes that it has forked."""
    pids = family(server.process.pid)
    return Processes(
        pids,
        sum(_resident_mib(pid) for pid in pids),
        sum(_open_files(pid) for pid in pids),
        sum(_ran_s(pid) for pid in pids),
    )


def open_files(server: Headlight) -> int:
    """Count the open files of a service's processes, its connections among them."""
    return sum(_open_files(pid) for pid in family(server.process.pid))


def cpu_s(server: Headlight) -> float:
    """Return the seconds that a service's processes have run."""
    return sum(_ran_s(pid) for pid in family(server.process.pid))


def family(pid: int) -> list[int]:
    """List a process and its descendants."""
    found = [pid]
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
            found += family(int(child))
    return found


@dataclass(frozen=True)
class Failures:
    """What a service has lost so far: workers that were replaced, and requests with them.

    A service of one process has no workers; `ended` is its exit code if it has ended by itself.
    """

    replaced: float = 0
    lost: float = 0
    ended: int | None = None


def failures(server: Headlight) -> Failures:
    """Ask the metrics; NaN if they are not answered."""
    if (code := server.process.poll()) is not None:
        return Failures(ended=code)
    try:
        return Failures(
            server.total("headlight_worker_exits_total"), server.total("headlight_lost_requests_total")
        )
    except httpx.TransportError:
        return Failures(float("nan"), float("nan"), server.process.poll())


def _resident_mib(pid: int) -> float:
    with suppress(OSError):
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        if (found := re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)) is not None:
            return int(found[1]) / 1024
    return 0.0


def _open_files(pid: int) -> int:
    with suppress(OSError):
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return 0


def _ran_s(pid: int) -> float:
    with suppress(OSError):
        # After the name, which may have spaces in it: the state is field 3, and times are fields 14 and 15.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return _TICK_S * (int(fields[11]) + int(fields[12]))
    return 0.0


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


def with_idle_share(measure: Callable[[], T]) -> tuple[T, float]:
    """Measure something; also returns the share of the cores in which no program ran meanwhile."""
    busy, whole = _busy_s(), _whole_s()
    value = measure()
    busy, whole = _busy_s() - busy, _whole_s() - whole
    return value, max(0.0, 1 - busy / whole)


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
