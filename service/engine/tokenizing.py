"""Tokenizing for many requests at a time: they take turns, so that a long text holds nobody up."""

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
"""A turn ends with the first step after so long; a step takes as long at most."""


@dataclass(slots=True, eq=False)
class _Job:
    steps: Generator[None, None, Any]
    done: Future[Any] = field(default_factory=Future)


class Tokenizing:
    """A thread that takes steps of one request, then of the next.

    A request that has just come has its first turn before those that go on, and these have every second turn
    at least: what is short is done at once, and what is long is done in the end. What is waited for no more
    is dropped before its next step.
    """

    def __init__(self, name: str) -> None:
        self.idle_since = 0.0
        """When the last request was done, in `time.perf_counter` seconds."""
        self._new: deque[_Job] = deque()
        self._begun: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._work, name=f"tokenize-{name}", daemon=True).start()

    async def run(self, steps: Generator[None, None, T]) -> T:
        """Take all steps, between those of others; returns what they return, and raises what they raise."""
        job = _Job(steps)
        with self._changed:
            if self._closed:
                raise RuntimeError("the service has ended")
            self._new.append(job)
            self._changed.notify()
        return await asyncio.wrap_future(job.done)

    def close(self) -> None:
        """Drop what is left, and end the thread."""
        with self._changed:
            self._closed = True
            for job in (*self._new, *self._begun):
                job.done.cancel()
            self._changed.notify()

    def _work(self) -> None:
        new = True
        while (job := self._next(first_new=new)) is not None:
            new = not new
            if not self._turn(job):
                with self._changed:
                    self._begun.append(job)
            else:
                self.idle_since = time.perf_counter()

    def _next(self, *, first_new: bool) -> _Job | None:
        with self._changed:
            while not (self._new or self._begun):
                if self._closed:
                    return None
                self._changed.wait()
            queue = self._new if self._new and (first_new or not self._begun) else self._begun
            return queue.popleft()

    def _turn(self, job: _Job) -> bool:
        """Take steps of a request until its turn is over; True when there are no more."""
        until = time.perf_counter() + TURN_S
        try:
            while time.perf_counter() < until:
                if job.done.cancelled():
                    job.steps.close()
                    return True
                next(job.steps)
        except StopIteration as end:
            _settle(job, end.value, None)
        except BaseException as error:  # a panic of the library is none of Exception's
            _settle(job, None, error)
        else:
            return False
        return True


def _settle(job: _Job, value: object, error: BaseException | None) -> None:
    with suppress(InvalidStateError):  # it was cancelled meanwhile
        if error is None:
            job.done.set_result(value)
        else:
            job.done.set_exception(error)
