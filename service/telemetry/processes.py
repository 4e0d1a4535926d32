"""Metrics of a service that has several processes: one exposition, whichever of them is scraped.

Each process keeps its values in files of its own that all can read (prometheus_client's multiprocess mode).
The files are named after the worker's number, not its process id: a worker that replaces another continues
its counters, so that sums stay true and no files pile up.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, PlatformCollector, generate_latest, values
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Fields of /proc/PID/stat after the command's name (proc(5)).
_TIMES, _CHILDRENS_TIMES, _START, _VIRTUAL = slice(11, 13), slice(13, 15), 19, 20


def share_values(folder: Path, process: str) -> None:
    """Keep the values of all metrics created from here on in files in a folder, named after the process."""
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    values.ValueClass = values.MultiProcessValue(lambda: process)  # type: ignore[no-untyped-call]


def expose(folder: Path, keys: frozenset[str]) -> bytes:
    """Write the metrics of all processes in the Prometheus text format.

    Series of API keys other than `keys` are left out: those keys have been revoked.
    """
    registry = CollectorRegistry()
    registry.register(_Shared(folder, keys))
    registry.register(_Processes(os.getppid()))
    PlatformCollector(registry=registry)
    return generate_latest(registry)


class _Shared(Collector):
    def __init__(self, folder: Path, keys: frozenset[str]) -> None:
        self._values = MultiProcessCollector(None, str(folder))  # type: ignore[no-untyped-call]
        self._keys = keys

    def collect(self) -> Iterator[Metric]:
        for metric in self._values.collect():  # type: ignore[no-untyped-call]
            metric.samples = [s for s in metric.samples if s.labels.get("key") in (None, *self._keys)]
            yield metric


class _Processes(Collector):
    """What `ProcessCollector` exposes of one process, summed over the supervisor and its workers."""

    def __init__(self, supervisor: int) -> None:
        self._supervisor = supervisor

    def collect(self) -> Iterator[Metric]:
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
            sum(map(_proportional_bytes, folders)),
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


def _read(path: Path) -> str:
    """Read a file of /proc; empty if the process has ended."""
    with suppress(OSError):
        return path.read_text(encoding="ascii", errors="replace")
    return ""


def _proportional_bytes(folder: Path) -> int:
    """Return a process's memory, of which what n processes share counts 1/n."""
    for line in _read(folder / "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    fields = _read(folder / "statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def _files(folder: Path) -> int:
    with suppress(OSError):
        return sum(1 for _ in folder.joinpath("fd").iterdir())
    return 0


def _limit_of_files(folder: Path) -> float:
    for line in _read(folder / "limits").splitlines():
        if line.startswith("Max open files"):
            return float(line.split()[3].replace("unlimited", "inf"))
    return 0.0


def _boot_time() -> float:
    for line in _read(Path("/proc/stat")).splitlines():
        if line.startswith("btime"):
            return float(line.split()[1])
    return 0.0
