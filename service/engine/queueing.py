"""The queue of one model: sequences of many requests, bounded in tokens. Safe for all threads."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from model.contract import Encoding, Output, Want
from service.engine.batching import Candidate, take_batch
from service.engine.fairness import FairLines, companions, is_light
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)


WORTH_A_LANE = 128
"""So many tokens wait before another lane runs them beside the first."""

EXPRESS = 1_000_000
"""The lane beside all others that runs what is light beside the batches in them."""

# Of so many sequences a batch is chosen: as many as fill it when each has a few tokens. All clients wait
# for the lock meanwhile.
_AHEAD, _MOST_AHEAD = 64, 1024
_SHORT_TEXT = 4
# After so long the first lane is at something long, and any other one that is free helps with little, too.
_LONG_S = 0.1
# For so long after a light client's batch another one is expected.
_CONTENDED_S = 2.0
# A request that was let in by an estimate of its tokens may exceed the limit by so much.
_TOLERANCE = 1.25


class OverloadedError(Exception):
    """The queue has no room for a request of `requested` tokens; all sizes are in tokens.

    `held` of what waits are the client's own. `retry_after` is in whole seconds, from the measured rate.
    """

    def __init__(self, *, requested: int, held: int, waiting: int, limit: int, retry_after: int) -> None:
        super().__init__(
            f"This request has about {requested} tokens, and {waiting} are waiting, {held} of them this "
            f"client's; the queue holds {limit}, of which no client may take more than it leaves free."
        )
        self.requested = requested
        self.held = held
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
    client: str = ""
    """Whose request it is; clients get equal shares."""

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

    @property
    def tokens(self) -> int:
        """Its length; one where a text has none, so that each sequence counts as work while it is there."""
        return max(1, len(self.encoding))


class WaitingQueue:
    """First come, first served within a client, but for gaps in a batch that later ones fill (`take_batch`).

    Between clients, the one that had least is first (`FairLines`). A client with little to do is not put into
    one batch with another's flood, and does not wait for it where there is an EXPRESS lane.
    """

    def __init__(self, name: str, metrics: Metrics, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self._name = name
        self._metrics = metrics
        self._lines: FairLines[Waiting] = FairLines()
        self._abandoned: deque[Job] = deque()
        self._closed = False
        self._light_at, self._lightest = -_CONTENDED_S, 0
        self._lock = threading.Lock()
        self._idle: dict[threading.Condition, int] = {}  # who waits for work, and in which lane

    @contextmanager
    def reserve(self, tokens: int, tokens_per_s: float, client: str = "") -> Iterator[None]:
        """Count about `tokens` as waiting meanwhile: a request that is still being tokenized.

        Raises OverloadedError when they do not fit; where nothing waits, they do.
        """
        with self._lock:
            self._check_room(client, tokens, tokens_per_s)
            self._lines.reserve(client, tokens)
        try:
            yield
        finally:
            with self._lock:
                self._lines.reserve(client, -tokens)

    def abandon(self, job: Job) -> None:
        """Let what is left of a job be dropped before it costs anything."""
        job.abandoned = True
        if job.remaining:
            self._abandoned.append(job)

    def add(self, sequences: Sequence[Waiting], tokens_per_s: float, *, expected: bool = False) -> None:
        """Queue all sequences of a request, or none; raises OverloadedError when they do not fit.

        An empty queue takes any request, however large. One that is `expected`, since tokens were reserved
        for it, may have some more than was estimated.
        """
        client = sequences[0].job.client
        tokens = sum(waiting.tokens for waiting in sequences)
        with self._lock:
            if self._lines.inputs:
                self._check_room(client, tokens, tokens_per_s, _TOLERANCE if expected else 1.0)
            self._lines.add(client, sequences)
            self._tell()
            self._wake()

    def check_room(self, tokens: int, tokens_per_s: float, client: str = "") -> None:
        """Raise OverloadedError when at least `tokens` more of a client would not fit now."""
        with self._lock:
            self._check_room(client, tokens, tokens_per_s)

    def wait(self, lane: int, still_needed: Callable[[], bool]) -> bool:
        """Wait until something waits to be run and no lower lane is free to run it.

        Higher lanes leave little to the first one, which is soon back: small batches are slow ones; EXPRESS
        waits for light clients. False when the queue is closed and nothing waits, or when the caller is
        `still_needed` no more.
        """
        with self._lock:
            woken = threading.Condition(self._lock)
            self._idle[woken] = lane
            try:
                while still_needed():
                    self._drop_abandoned()
                    if self._closed:
                        return lane != EXPRESS and not self.empty
                    if self._is_worth(lane) and lane == min(self._idle.values()):
                        return True
                    woken.wait()
            finally:
                del self._idle[woken]
            self._wake()  # whoever is next instead: it may be this one that was woken
        return False

    def take(
        self, budget: int, cost: Callable[[Sequence[int]], int], *, only_light: bool = False
    ) -> tuple[list[Waiting], bool]:
        """Take the next batch; empty when nothing waits any more, or nothing of a light client.

        Also says whether it is to step back for light clients. Say with `finish` when it has been run.
        """
        with self._lock:
            self._drop_abandoned()
            number = min(max(_AHEAD, budget // _SHORT_TEXT), _MOST_AHEAD)
            lines = self._lines
            due = lines.first_light(number, self._lightest_of_late) if only_light else lines.first(number)
            ahead = companions(due)
            chosen = take_batch([Candidate(w.tokens, w.overtaken) for _, w in ahead], budget, cost)
            steps_back = False
            if chosen:
                steps_back = self._steps_back(ahead[0][0].weight)
                members = set(chosen)
                for i in range(chosen[-1]):
                    ahead[i][1].overtaken += i not in members
                lines.take([ahead[i] for i in chosen])
                self._tell()
            self._wake()  # another lane may run what is left
            return [ahead[i][1] for i in chosen], steps_back

    def finish(self, batch: Sequence[Waiting]) -> None:
        """Count a batch as running no more."""
        with self._lock:
            self._lines.finish((waiting.job.client, waiting.tokens) for waiting in batch)

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self._lines.inputs

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

    @property
    def _lightest_of_late(self) -> int:
        """How much work there was of the lightest client that was served of late beside heavy ones; or 0."""
        return self._lightest if time.perf_counter() - self._light_at < _CONTENDED_S else 0

    def _steps_back(self, weight: int) -> bool:
        """Whether a batch of a client of so much work lets others go first; notes the lightest ones."""
        lightest = self._lightest_of_late
        if (not lightest or weight <= lightest) and self._lines.is_light(weight):
            self._light_at, self._lightest = time.perf_counter(), weight
        return lightest > 0 and is_light(lightest, weight)

    def _is_worth(self, lane: int) -> bool:
        """Whether what waits is worth this lane's while."""
        lines = self._lines
        if lane == EXPRESS:
            return lines.has_light(self._lightest_of_late)
        if not lines.inputs or lane == 0 or lines.tokens >= WORTH_A_LANE or lines.has_light():
            return bool(lines.inputs)
        return time.perf_counter() - min(w.job.enqueued for w in lines.oldest()) > _LONG_S

    def _wake(self) -> None:
        if self._lines.inputs and self._idle:
            woken, lane = min(self._idle.items(), key=lambda idle: idle[1])
            # EXPRESS is idle nearly always: woken for nothing, it would take the interpreter from the others.
            if lane != EXPRESS or self._is_worth(EXPRESS):
                woken.notify()

    def _check_room(self, client: str, tokens: int, tokens_per_s: float, tolerance: float = 1.0) -> None:
        """Raise OverloadedError where so many tokens of a client do not fit beside what waits."""
        limit = tolerance * self.max_tokens
        if not self._lines.may_hold(client, tokens, limit):
            self._drop_abandoned()
            if not self._lines.may_hold(client, tokens, limit):
                raise self._overloaded(client, tokens, tokens_per_s)

    def _drop_abandoned(self) -> None:
        clients = set()
        while self._abandoned:
            clients.add(self._abandoned.popleft().client)
        if clients:
            self._lines.drop(clients, lambda waiting: waiting.job.abandoned)
            self._tell()

    def _tell(self) -> None:
        self._metrics.queue(self._name, inputs=self._lines.inputs, tokens=self._lines.tokens)

    def _overloaded(self, client: str, tokens: int, tokens_per_s: float) -> OverloadedError:
        waiting, held = self._lines.tokens + self._lines.reserved, self._lines.held(client)
        seconds = waiting / tokens_per_s if tokens_per_s else 1.0
        retry_after = max(1, min(60, round(seconds)))
        return OverloadedError(
            requested=tokens, held=held, waiting=waiting, limit=self.max_tokens, retry_after=retry_after
        )
