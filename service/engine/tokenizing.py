"""Tokenizes for many requests at a time: they take turns, so that a long text does not delay the others."""

import asyncio
import threading
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from model.errors import InferenceError
from service.system.priority import BESIDE_LOOP, lower_priority

T = TypeVar("T")

TURN_S = 0.005
"""A turn ends with the piece during which it reaches this many seconds; a piece takes at most as long."""
# A request counts as short until it has taken this many seconds.
_SHORT_S = 0.1
# A piece that takes longer than this hangs. In an unusual tokenizer, a text with no place to cut it takes a
# second or two.
_STALL_S = 5.0
# The weight of one request in the average rate; bodies of fewer bytes say little about the rate.
_WEIGHT, _MIN_BYTES = 0.2, 4096


@dataclass(slots=True, eq=False)
class _Job:
    pieces: Generator[None, None, Any]
    client: str
    size: int
    number: int
    done: "asyncio.Future[Any]"
    used_s: float = 0.0
    """How long its pieces have taken."""


class Tokenizing:
    """A thread that tokenizes a few pieces of one request, then of another.

    A new request gets its first turn before requests in progress, which get at least every second turn, so
    short requests finish at once. Among requests in progress, the client that has used the thread least goes
    first; among one client's, short requests do, then the one that came first, so that some long texts finish
    in time even if not all can. A cancelled request is dropped before its next piece.
    """

    def __init__(self, name: str) -> None:
        self.idle_since = 0.0
        """When the last request was finished, in `time.perf_counter` seconds."""
        self._numbers = count()
        self._new: list[_Job] = []
        self._started: list[_Job] = []
        self._used: dict[str, float] = {}
        """How long the thread has worked for each client, since it was last idle."""
        self._bytes_per_s = 0.0
        self._running: tuple[_Job, float] | None = None
        """The request whose piece is being tokenized, and since when."""
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._work, name=f"tokenize-{name}", daemon=True).start()

    async def run(self, pieces: Generator[None, None, T], client: str = "", size: int = 0) -> T:
        """Tokenize all pieces, interleaved with other requests'; returns and raises what `pieces` does.

        `size` is the size of the client's body in bytes.
        """
        done = asyncio.get_running_loop().create_future()
        job = _Job(pieces, client, size, next(self._numbers), done)
        with self._changed:
            if self._closed:
                raise RuntimeError("the service has stopped")
            self._meet(client)
            self._new.append(job)
            self._changed.notify()
        result: T = await done
        return result

    def _meet(self, client: str) -> None:
        """Give a newly arriving client no advantage over those that already have requests here."""
        here = {job.client for job in (*self._new, *self._started)}
        if self._running is not None:
            here.add(self._running[0].client)
        least = min((self._used.get(name, 0.0) for name in here), default=0.0)
        self._used = {name: used for name, used in self._used.items() if used > least or name in here}
        self._used[client] = max(self._used.get(client, 0.0), least)

    def wait_s(self, client: str, size: int) -> float:
        """Estimate how long a new request of a client would take; 0 if no others wait or no rate is known."""
        with self._changed:
            rate, jobs = self._bytes_per_s, [*self._started, *self._new]
            if not (rate and jobs):
                return 0.0
            left = [(job.client, max(0.0, job.size / rate - job.used_s)) for job in jobs]
        own_s = size / rate + sum(seconds for name, seconds in left if name == client)
        others = {name for name, _ in left} - {client}
        return min(size / rate + sum(seconds for _, seconds in left), (1 + len(others)) * own_s)

    def supervise(self, stopped_s: float = 0.0) -> bool:
        """Fail the request whose current piece hangs; returns whether there was one."""
        with self._changed:
            if self._running is None:
                return False
            job, since = self._running
            self._running = job, since + stopped_s
            if time.perf_counter() - since - stopped_s < _STALL_S:
                return False
            self._running = None  # reported only once
        _settle(job, None, InferenceError("This text could not be tokenized in time."))
        return True

    def close(self) -> None:
        """Cancel what is left and end the thread."""
        with self._changed:
            self._closed = True
            for job in (*self._new, *self._started):
                job.done.cancel()
            self._changed.notify()

    def _work(self) -> None:
        lower_priority(BESIDE_LOOP)
        new = True
        while (job := self._next(first_new=new)) is not None:
            new = not new
            start = time.perf_counter()
            outcome = self._turn(job)
            self._end_turn(job, time.perf_counter() - start, ended=outcome is not None)
            if outcome is not None:
                _settle(job, *outcome)
            del job, outcome  # its tokens are not kept until the next request

    def _next(self, *, first_new: bool) -> _Job | None:
        with self._changed:
            while not (self._new or self._started):
                if self._closed:
                    return None
                self._used.clear()
                self._changed.wait()
            jobs = self._new if self._new and (first_new or not self._started) else self._started
            job = min(jobs, key=self._order)
            jobs.remove(job)
            self._running = job, time.perf_counter()
            return job

    def _order(self, job: _Job) -> tuple[float, bool, int]:
        return self._used.get(job.client, 0.0), job.used_s > _SHORT_S, job.number

    def _end_turn(self, job: _Job, seconds: float, *, ended: bool) -> None:
        """Count a turn."""
        with self._changed:
            self._running = None
            job.used_s += seconds
            self._used[job.client] = self._used.get(job.client, 0.0) + seconds
            if not ended:
                self._started.append(job)
                return
            if job.size >= _MIN_BYTES and not job.done.cancelled():
                rate = job.size / max(job.used_s, 1e-6)
                self._bytes_per_s += (rate - self._bytes_per_s) * (_WEIGHT if self._bytes_per_s else 1.0)
            self.idle_since = time.perf_counter()

    def _turn(self, job: _Job) -> tuple[object, BaseException | None] | None:
        """Tokenize pieces until the turn is over; returns result and error, None if there is more to do."""
        until = time.perf_counter() + TURN_S
        try:
            while time.perf_counter() < until:
                if job.done.cancelled():
                    job.pieces.close()
                    return None, None
                next(job.pieces)
        except StopIteration as end:
            return end.value, None
        except BaseException as error:  # a panic of the Rust library is not an Exception
            return None, error
        return None


def _settle(job: _Job, value: object, error: BaseException | None) -> None:
    """Have the event loop tell the request how it ended, from any thread."""
    with suppress(RuntimeError):  # the loop is closed: the service has stopped
        job.done.get_loop().call_soon_threadsafe(_tell, job.done, value, error)


def _tell(done: "asyncio.Future[Any]", value: object, error: BaseException | None) -> None:
    if done.done():  # it has been cancelled, or a piece hung
        return
    if error is None:
        done.set_result(value)
    else:
        done.set_exception(error)
