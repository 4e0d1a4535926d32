"""Tokenizes for many requests at a time: they take turns, so that a long text does not delay the others."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

TURN_S = 0.005
"""A turn ends after the first step that reaches this many seconds; a step takes at most as long."""


@dataclass(slots=True, eq=False)
class _Job:
    steps: Generator[None, None, Any]
    done: Future[Any] = field(default_factory=Future)


class Tokenizing:
    """A thread that runs a few steps of one request, then of the next.

    A new request gets its first turn before requests in progress, which get at least every second turn: short
    requests finish at once, and long ones still finish. A cancelled request is dropped before its next step.
    """

    def __init__(self, name: str) -> None:
        self.idle_since = 0.0
        """When the last request was finished, in `time.perf_counter` seconds."""
        self._new: deque[_Job] = deque()
        self._started: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._work, name=f"tokenize-{name}", daemon=True).start()

    async def run(self, steps: Generator[None, None, T]) -> T:
        """Run all steps, interleaved with other requests'; returns and raises what they return and raise."""
        job = _Job(steps)
        with self._changed:
            if self._closed:
                raise RuntimeError("the service has stopped")
            self._new.append(job)
            self._changed.notify()
        return await asyncio.wrap_future(job.done)

    def close(self) -> None:
        """Cancel what is left and end the thread."""
        with self._changed:
            self._closed = True
            for job in (*self._new, *self._started):
                job.done.cancel()
            self._changed.notify()

    def _work(self) -> None:
        new = True
        while (job := self._next(first_new=new)) is not None:
            new = not new
            if not self._turn(job):
                with self._changed:
                    self._started.append(job)
            else:
                self.idle_since = time.perf_counter()

    def _next(self, *, first_new: bool) -> _Job | None:
        with self._changed:
            while not (self._new or self._started):
                if self._closed:
                    return None
                self._changed.wait()
            queue = self._new if self._new and (first_new or not self._started) else self._started
            return queue.popleft()

    def _turn(self, job: _Job) -> bool:
        """Run steps of a request until its turn is over; True if it is finished."""
        until = time.perf_counter() + TURN_S
        try:
            while time.perf_counter() < until:
                if job.done.cancelled():
                    job.steps.close()
                    return True
                next(job.steps)
        except StopIteration as end:
            _settle(job, end.value, None)
        except BaseException as error:  # a panic of the Rust library is not an Exception
            _settle(job, None, error)
        else:
            return False
        return True


def _settle(job: _Job, value: object, error: BaseException | None) -> None:
    with suppress(InvalidStateError):  # it has been cancelled
        if error is None:
            job.done.set_result(value)
        else:
            job.done.set_exception(error)
