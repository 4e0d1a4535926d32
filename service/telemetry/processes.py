"""What Prometheus's clients tell of a process, of a service that has several."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from service.system.process import proportional_bytes

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Fields of /proc/PID/stat after the command's name (proc(5)).
_TIMES, _CHILDRENS_TIMES, _START, _VIRTUAL = slice(11, 13), slice(13, 15), 19, 20


# Linux walks through all pages of a process to say how many of them it shares: 5 ms per GiB.
_WALK_S = 60.0


class Processes(Collector):
    """What `ProcessCollector` exposes of one process, summed over the supervisor and its workers."""

    def __init__(self, supervisor: int) -> None:
        self._supervisor = supervisor
        self._walked: Sequence[Path] = ()
        self._walked_at, self._walked_bytes = 0.0, 0
        self._counted_twice = 0
        """Bytes of shared pages that the sum of the processes' sizes counts more than once."""

    def collect(self) -> Iterator[Metric]:
        """Read them from /proc."""
        supervisor = Path("/proc", str(self._supervisor))
        children = supervisor.joinpath("task", supervisor.name, "children")
        folders = [supervisor, *(Path("/proc", pid) for pid in _read(children).split())]
        stats = [_read(folder / "stat").rpartition(")")[2].split() for folder in folders]
        stats = [stat for stat in stats if len(stat) > _VIRTUAL]
        ticks = sum(int(ticks) for stat in stats for ticks in stat[_TIMES])
        ticks += sum(int(ticks) for stat in stats[:1] for ticks in stat[_CHILDRENS_TIMES])
        yield CounterMetricFamily(
            "process_cpu_seconds", "CPU time of all processes, ended workers included.", ticks / _TICKS
        )
        yield GaugeMetricFamily(
            "process_virtual_memory_bytes",
            "Virtual memory of all processes.",
            sum(int(stat[_VIRTUAL]) for stat in stats),
        )
        yield GaugeMetricFamily(
            "process_resident_memory_bytes",
            "Resident memory of all processes, with what they share counted once.",
            self._resident_bytes(folders),
        )
        yield GaugeMetricFamily(
            "process_start_time_seconds",
            "When the supervisor started, in seconds since the epoch.",
            _boot_time() + sum(int(stat[_START]) for stat in stats[:1]) / _TICKS,
        )
        yield GaugeMetricFamily("process_open_fds", "Open files of all processes.", sum(map(_files, folders)))
        yield GaugeMetricFamily(
            "process_max_fds",
            "Limit of open files of all processes.",
            len(folders) * _limit_of_files(supervisor),
        )

    def _resident_bytes(self, folders: Sequence[Path]) -> int:
        """Return the memory of the processes; how much of it they share is as of the last minute.

        If they have become smaller since, it may be what they share that has.
        """
        each_by_itself = sum(map(_resident_bytes, folders))
        old = time.monotonic() - self._walked_at > _WALK_S or each_by_itself < self._walked_bytes
        if folders != self._walked or old:
            shares = (proportional_bytes(int(folder.name)) or _resident_bytes(folder) for folder in folders)
            self._counted_twice = each_by_itself - sum(shares)
            self._walked, self._walked_at = folders, time.monotonic()
            self._walked_bytes = each_by_itself
        return each_by_itself - self._counted_twice


def _read(path: Path) -> str:
    """Read a file of /proc; empty if the process has ended."""
    with suppress(OSError):
        return path.read_text(encoding="ascii", errors="replace")
    return ""


def _resident_bytes(folder: Path) -> int:
    fields = _read(folder / "statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def _files(folder: Path) -> int:
    with suppress(OSError):
        # Since Linux 6.2 the size of the folder is their number; before, it is 0.
        return folder.joinpath("fd").stat().st_size or sum(1 for _ in folder.joinpath("fd").iterdir())
    return 0


def _limit_of_files(folder: Path) -> float:
    for line in _read(folder / "limits").splitlines():
        if line.startswith("Max open files"):
            return float(line.split()[3].replace("unlimited", "inf"))
    return 0.0


@cache
def _boot_time() -> float:
    for line in _read(Path("/proc/stat")).splitlines():
        if line.startswith("btime"):
            return float(line.split()[1])
    return 0.0
