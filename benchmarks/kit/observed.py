"""What the operating system and the metrics say of the processes of a service."""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.kit.servers import Headlight

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


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
