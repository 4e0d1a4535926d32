"""Exposes, for a service of several processes, what Prometheus's clients tell about one process."""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from prometheus_client import Metric, ProcessCollector
from prometheus_client.registry import Collector

from service.system.process import proportional_bytes

_TICKS = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat after the command's name (proc(5)).
_CHILDRENS_TIMES = slice(13, 15)


class Processes(Collector):
    """What `ProcessCollector` exposes of one process, summed over the supervisor and its workers.

    CPU time includes ended workers, shared memory counts once, and the start is the supervisor's.
    """

    def __init__(self, supervisor: int) -> None:
        self._supervisor = supervisor

    def collect(self) -> Iterator[Metric]:
        """Read the numbers from /proc."""
        folder = Path("/proc", str(self._supervisor))
        children = _read(folder / "task" / folder.name / "children").split()
        processes = [self._supervisor, *map(int, children)]
        collectors = [ProcessCollector(pid=partial(int, process), registry=None) for process in processes]
        each = [{metric.name: metric for metric in collector.collect()} for collector in collectors]
        for name, metric in each[0].items():
            value = sum(one[name].samples[0].value for one in each if name in one)
            if name == "process_start_time_seconds":
                value = metric.samples[0].value
            elif name == "process_cpu_seconds":
                times = _read(folder / "stat").rpartition(")")[2].split()[_CHILDRENS_TIMES]
                value += sum(map(int, times)) / _TICKS
            elif name == "process_resident_memory_bytes":
                value = sum(map(proportional_bytes, processes)) or value
            metric.samples = [metric.samples[0]._replace(value=value)]
            yield metric


def _read(path: Path) -> str:
    """Read a file of /proc; empty if the process has ended."""
    with suppress(OSError):
        return path.read_text(encoding="ascii", errors="replace")
    return ""
