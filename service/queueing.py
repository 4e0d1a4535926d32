"""The queue of one model: sequences of many requests, bounded in tokens. Safe for all threads."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from model.types import Encoding, Output, Want
from service.batching import Candidate, take_batch
from service.metrics import Metrics

log = logging.getLogger(__name__)


WORTH_A_LANE = 128
"""So many tokens wait before another lane runs them beside the first."""

# Of so many sequences a batch is chosen: as many as fill it when each has a few tokens. All clients wait
# for the lock meanwhile.
_AHEAD, _MOST_AHEAD = 64, 1024
_SHORT_TEXT = 4
# After so long the first lane is at something long, and any other one that is free helps with little, too.
_LONG_S = 0.1
# A request that was let in by an estimate of its tokens may exceed the limit by so much.
_TOLERANCE = 1.25


class OverloadedError(Exception):
    """The queue is full; `retry_after` is in whole seconds, from the measured rate."""

    def __init__(self, *, waiting: int, limit: int, retry_after: int) -> None:
        super().__init__(f"{waiting} tokens are waiting and the queue holds {limit}.")
        self.waiting = waiting
        self.limit = limit
        self.retry_after = retry_after


@dataclass(slots=True, eq=False)
class Job:
    """What one request waits for: the outputs of its sequences. Times are `time.perf_counter` seconds."""

    outputs: list[Output | None]
    done: asyncio.Future[None]
    enqueued: float
    remaining: int
    started: float | None = None
    finished: float | None = None
    abandoned: bool = False
    """Set when nobody waits any more; what is left of the job is then skipped."""
    arrived: Callable[[int, Output], None] | None = None
    """Takes each output on the event loop, in the order in which they come; `outputs` has then none."""

    @property
    def waited_s(self) -> float:
        """For how long the first of its sequences waited to be run."""
        return (self.started or self.enqueued) - self.enqueued

    def complete(self, index: int, output: Output) -> None:
        """Take the output of one sequence; the last one wakes the request."""
        if self.arrived is None:
            self.outputs[index] = output
        else:
            self._on_loop(self.arrived, index, output)
        self.remaining -= 1
        if not self.remaining:
            self.finish()

    def finish(self, error: Exception | None = None) -> None:
        """Wake the request, from any thread; later calls change nothing."""
        self.finished = self.finished or time.perf_counter()
        self._on_loop(_settle, self.done, error)

    def _on_loop(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            self.done.get_loop().call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop is closed: the service has ended and nobody waits
            log.debug("an output came after the end of the service")


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


@dataclass(slots=True, eq=False)
class Waiting:
    """One sequence in the queue; `overtaken` counts the batches that took later ones before it."""

    job: Job
    index: int
    encoding: Encoding
    want: Want
    overtaken: int = 0


class WaitingQueue:
    """First come, first served, but for gaps in a batch that later ones fill (`take_batch`)."""

    def __init__(self, name: str, metrics: Metrics, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self._name = name
        self._metrics = metrics
        self._waiting: deque[Waiting] = deque()
        self._tokens = 0
        self._reserved = 0
        self._stale = False
        self._closed = False
        self._lock = threading.Lock()
        self._idle: dict[threading.Condition, int] = {}  # who waits for work, and in which lane

    @contextmanager
    def reserve(self, tokens: int, tokens_per_s: float) -> Iterator[None]:
        """Count about `tokens` as waiting meanwhile: a request that is still being tokenized.

        Raises OverloadedError when they do not fit; where nothing waits, they do.
        """
        with self._lock:
            if not self._has_room(tokens):
                raise self._overloaded(tokens_per_s)
            self._reserved += tokens
        try:
            yield
        finally:
            with self._lock:
                self._reserved -= tokens

    def abandon(self, job: Job) -> None:
        """Let what is left of a job be dropped before it costs anything."""
        job.abandoned = True
        if job.remaining:
            self._stale = True

    def add(self, sequences: Sequence[Waiting], tokens_per_s: float, *, expected: bool = False) -> None:
        """Queue all sequences of a request, or none; raises OverloadedError when they do not fit.

        An empty queue takes any request, however large. One that is `expected`, since tokens were reserved
        for it, may have some more than was estimated.
        """
        tokens = sum(len(w.encoding) for w in sequences)
        with self._lock:
            if self._waiting and not self._has_room(tokens, _TOLERANCE if expected else 1.0):
                raise self._overloaded(tokens_per_s)
            self._waiting.extend(sequences)
            self._count(tokens)
            self._wake()

    def check_room(self, tokens: int, tokens_per_s: float) -> None:
        """Raise OverloadedError when at least `tokens` more would not fit now."""
        with self._lock:
            if not self._has_room(tokens):
                raise self._overloaded(tokens_per_s)

    def wait(self, lane: int, still_needed: Callable[[], bool]) -> bool:
        """Wait until something waits to be run and no lower lane is free to run it.

        Higher lanes leave little to the first one, which is soon back: small batches are slow ones. False
        when the queue is closed and nothing waits, or when the caller is `still_needed` no more.
        """
        with self._lock:
            woken = threading.Condition(self._lock)
            self._idle[woken] = lane
            try:
                while still_needed():
                    self._drop_abandoned()
                    if self._closed or (self._is_worth(lane) and lane == min(self._idle.values())):
                        return bool(self._waiting)
                    woken.wait()
            finally:
                del self._idle[woken]
            self._wake()  # whoever is next instead: it may be this one that was woken
        return False

    def take(self, budget: int, cost: Callable[[Sequence[int]], int]) -> list[Waiting]:
        """Take the next batch; empty when nothing waits any more."""
        with self._lock:
            self._drop_abandoned()
            ahead = list(islice(self._waiting, min(max(_AHEAD, budget // _SHORT_TEXT), _MOST_AHEAD)))
            chosen = take_batch([Candidate(len(w.encoding), w.overtaken) for w in ahead], budget, cost)
            batch = self._remove(ahead, chosen) if chosen else []
            self._wake()  # another lane may run what is left
            return batch

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    @property
    def closed(self) -> bool:
        """Whether the queue takes nothing more."""
        return self._closed

    def close(self) -> None:
        """Let `take` return empty once nothing waits."""
        with self._lock:
            self._closed = True
            for woken in self._idle:
                woken.notify()

    def look_again(self) -> None:
        """Have a lane that is free look whether there is something for it by now; called now and then."""
        with self._lock:
            self._wake()

    def _is_worth(self, lane: int) -> bool:
        """Whether what waits is worth this lane's while."""
        if not self._waiting or lane == 0 or self._tokens >= WORTH_A_LANE:
            return bool(self._waiting)
        return time.perf_counter() - self._waiting[0].job.enqueued > _LONG_S

    def _wake(self) -> None:
        if self._waiting and self._idle:
            min(self._idle, key=self._idle.__getitem__).notify()

    def _remove(self, ahead: Sequence[Waiting], chosen: Sequence[int]) -> list[Waiting]:
        last, members = chosen[-1], set(chosen)
        for _ in range(last + 1):
            self._waiting.popleft()
        left = [w for i, w in enumerate(ahead[: last + 1]) if i not in members]
        for waiting in left:
            waiting.overtaken += 1
        self._waiting.extendleft(reversed(left))
        batch = [ahead[i] for i in chosen]
        self._count(-sum(len(w.encoding) for w in batch))
        return batch

    def _has_room(self, tokens: int, tolerance: float = 1.0) -> bool:
        """Whether so many tokens fit beside what waits; where nothing waits, any number does."""
        limit = tolerance * self.max_tokens
        if self._tokens + self._reserved + tokens > limit:
            self._drop_abandoned()
        taken = self._tokens + self._reserved
        return taken == 0 or tokens == 0 or taken + tokens <= limit

    def _drop_abandoned(self) -> None:
        if self._stale:
            self._stale = False
            self._waiting = deque(w for w in self._waiting if not w.job.abandoned)
            self._count(sum(len(w.encoding) for w in self._waiting) - self._tokens)

    def _count(self, change: int) -> None:
        self._tokens += change
        self._metrics.queue(self._name, inputs=len(self._waiting), tokens=self._tokens)

    def _overloaded(self, tokens_per_s: float) -> OverloadedError:
        waiting = self._tokens + self._reserved
        seconds = waiting / tokens_per_s if tokens_per_s else 1.0
        retry_after = max(1, min(60, round(seconds)))
        return OverloadedError(waiting=waiting, limit=self.max_tokens, retry_after=retry_after)
