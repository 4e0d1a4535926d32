"""Memory is given back in each rest, where there is any to give."""

import logging
import time
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, cast

import pytest

from service.engine import trimming
from service.engine.engine import Engine
from service.engine.lane_scheduler import LaneScheduler
from service.engine.trimming import IDLE_S, MemoryTrimmer
from service.system.process import own_bytes, resident_bytes

SMALL = 500 * 2**20


class Inline(Executor):
    """Runs everything at once."""

    def submit(self, call: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        call(*arguments, **options)
        return Future()


class Process:
    """A process of which the size, the time and what its engines did are made up; one engine keeps memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.size, self.now, self.calls = SMALL, 1000.0, 0
        self.files = 20 * 2**20
        self.idle_since: float | None = self.now
        self.fails = False
        monkeypatch.setattr(trimming, "resident_bytes", lambda: self.size)
        monkeypatch.setattr(trimming, "own_bytes", lambda: self.size - self.files)
        monkeypatch.setattr(trimming, "trim_memory", self.trim)
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        self.trims, self.answering = 0, False
        self.trimmer = MemoryTrimmer(
            [cast("Engine", self)], Inline(), answering=lambda: self.answering, given=2 * SMALL
        )

    def trim_memory(self) -> None:
        self.calls += 1
        if self.fails:
            raise RuntimeError("no")
        self.size = SMALL

    def trim(self) -> None:
        self.trims += 1

    def run(self, grows: int) -> None:
        """Run something that leaves so many bytes behind."""
        self.idle_since = self.now
        self.size += grows

    def look_after(self, seconds: float) -> int:
        """Look again so many seconds later, and count how often memory has been given back."""
        self.now += seconds
        self.trimmer.check()
        return self.calls


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    return Process(monkeypatch)


def test_what_has_grown_is_given_back_once_in_each_rest(process: Process) -> None:
    """Not at once, not twice, and again after the next batches."""
    for rest in range(3):
        process.run(grows=100 * 2**20)
        assert process.look_after(0.5) == rest
        assert process.look_after(IDLE_S) == rest + 1
        assert process.look_after(IDLE_S) == rest + 1


def test_a_process_that_works_or_is_small_is_left_alone(process: Process) -> None:
    """What runs may need its memory, and little is not worth it."""
    process.run(grows=2**20)
    assert process.look_after(IDLE_S) == 0
    process.run(grows=100 * 2**20)
    process.idle_since = None
    assert process.look_after(100) == 0


def test_what_stays_is_not_asked_for_again(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that is in use for good counts as the size of the process from then on."""
    monkeypatch.setattr(trimming, "trim_memory", lambda: setattr(process, "size", SMALL + 90 * 2**20))
    process.run(grows=100 * 2**20)
    assert process.look_after(IDLE_S) == 1
    assert [process.look_after(1) for _ in range(4)] == [2, 3, 3, 3]
    process.run(grows=2**20)
    assert process.look_after(IDLE_S) == 3


def test_what_requests_without_batches_leave_is_given_back_too(process: Process) -> None:
    """Thousands of refusals leave memory though no engine has run; not while more are being answered."""
    process.run(grows=100 * 2**20)
    process.look_after(IDLE_S)
    calls = [process.look_after(1) for _ in range(4)][-1]
    process.size += 100 * 2**20
    process.answering = True
    assert [process.look_after(1) for _ in range(4)][-1] == calls
    process.answering = False
    assert [process.look_after(1) for _ in range(4)][-1] == calls + 1
    assert process.size == SMALL


def test_what_is_freed_a_moment_after_the_first_trim_is_given_back(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response that was still held then must not raise the size of the process for good."""
    left = iter((SMALL + 90 * 2**20, SMALL))
    monkeypatch.setattr(trimming, "trim_memory", lambda: setattr(process, "size", next(left)))
    process.run(grows=100 * 2**20)
    assert process.look_after(IDLE_S) == 1
    assert process.look_after(1) == 2
    assert process.size == SMALL
    assert [process.look_after(1) for _ in range(3)] == [2, 2, 2]


def test_what_the_start_released_does_not_count_as_the_size_of_the_process(process: Process) -> None:
    """Released after the first look, it would otherwise hide as much that is kept later."""
    process.size = SMALL - 60 * 2**20
    assert process.look_after(0.5) == 0
    process.run(grows=50 * 2**20)
    assert process.look_after(IDLE_S) == 1


def test_a_failure_is_logged_and_nothing_else(process: Process, caplog: pytest.LogCaptureFixture) -> None:
    """It is no fault of a request."""
    process.fails = True
    process.run(grows=100 * 2**20)
    with caplog.at_level(logging.ERROR):
        assert process.look_after(IDLE_S) == 1
    assert "could not trim memory" in caplog.text


def test_a_device_says_since_when_it_is_idle() -> None:
    """From the end of the last turn on, and not while one is held or waited for."""
    scheduler = LaneScheduler(2)
    idle_times = [scheduler.idle_since]
    with scheduler.turn("a"):
        idle_times.append(scheduler.idle_since)
        with scheduler.turn("a"):
            pass
        idle_times.append(scheduler.idle_since)
    assert idle_times == [0, None, None]
    since = scheduler.idle_since
    assert since is not None
    assert 0 <= time.perf_counter() - since < 5


def test_the_size_of_a_process_is_what_the_system_says() -> None:
    """The kernel counts in pages here, and in kilobytes there."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    numbers = dict(line.split(":") for line in status.splitlines() if line.endswith(" kB"))
    expected, anonymous = (int(numbers[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon"))
    assert abs(resident_bytes() - expected) < 2**24
    assert abs(own_bytes() - anonymous) < 2**24
    assert resident_bytes() - own_bytes() > 2**24


def test_memory_that_runs_short_is_trimmed_without_a_rest(process: Process) -> None:
    """While requests never cease: freed memory is given back once a second, from two thirds of all on."""
    process.idle_since = None
    process.size = int(1.2 * SMALL)
    assert (process.look_after(5), process.trims) == (0, 0)
    process.size = int(1.4 * SMALL)
    assert (process.look_after(0.25), process.trims) == (0, 1)
    assert (process.look_after(0.25), process.trims) == (0, 1)
    assert (process.look_after(1), process.trims) == (0, 2)


def test_files_that_are_read_do_not_make_memory_short(process: Process) -> None:
    """Trimming would not give their pages back."""
    process.idle_since = None
    process.size += 2 * SMALL
    process.files += 2 * SMALL
    assert (process.look_after(5), process.trims) == (0, 0)
