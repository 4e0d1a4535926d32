"""The queue of one model: sequences of many requests, bounded in tokens. Thread-safe."""

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
from service.engine.fairness import ClientQueues, companions, is_light
from service.sharing.board import Ledger, alone
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)


WORTH_A_LANE = 128
"""Waiting tokens at which another lane starts running beside the first."""

EXPRESS = 1_000_000
"""The extra lane that runs light clients' batches beside all other lanes."""

# How many sequences are considered for a batch: enough to fill it with texts of a few tokens each. Bounded,
# because all clients wait for the lock meanwhile.
_MIN_CONSIDERED, _MAX_CONSIDERED = 64, 1024
_SHORT_TEXT = 4
# When a sequence has waited this long, the first lane is busy with a long batch, and other free lanes take
# small batches too.
_LONG_S = 0.1
# For this long after a light client's batch, another one is expected.
_CONTENDED_S = 2.0
# A request admitted on an estimate of its tokens may exceed the limit by this factor.
_TOLERANCE = 1.25


class OverloadedError(Exception):
    """The queue has no room for a request of `requested` tokens; all sizes are in tokens.

    `client_tokens` of the `waiting` tokens are the client's own. `retry_after` is in whole seconds, from the
    measured throughput.
    """

    def __init__(
        self, *, requested: int, client_tokens: int, waiting: int, limit: int, retry_after: int
    ) -> None:
        super().__init__(
            f"This request has about {requested} tokens, and {waiting} are queued, {client_tokens} of them "
            f"this client's; the queue holds {limit}, and a client may use no more of it than it leaves free."
        )
        self.requested = requested
        self.client_tokens = client_tokens
        self.waiting = waiting
        self.limit = limit
        self.retry_after = retry_after


@dataclass(slots=True, eq=False)
class Job:
    """One request's sequences and their outputs. Times are `time.perf_counter` seconds."""

    outputs: list[Output | None]
    done: asyncio.Future[None]
    enqueued: float
    remaining: int
    started: float | None = None
    finished: float | None = None
    abandoned: bool = False
    """Set when the caller no longer waits; the rest of the job is then skipped."""
    arrived: Callable[[int, Output], None] | None = None
    """Called with each output on the event loop, in order of completion; `outputs` then stays empty."""
    client: str = ""
    """Whose request it is; clients get equal shares."""

    @property
    def waited_s(self) -> float:
        """How long the first of its sequences waited in the queue."""
        return (self.started or self.enqueued) - self.enqueued

    def complete(self, index: int, output: Output) -> None:
        """Store the output of one sequence; the last one wakes the request."""
        if self.arrived is None:
            self.outputs[index] = output
        else:
            self._on_loop(self.arrived, index, output)
        self.remaining -= 1
        if not self.remaining:
            self.finish()

    def finish(self, error: Exception | None = None) -> None:
        """Wake the request, from any thread; later calls have no effect."""
        self.finished = self.finished or time.perf_counter()
        self._on_loop(_settle, self.done, error)

    def _on_loop(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            self.done.get_loop().call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop is closed: the service has stopped, so no request waits
            log.debug("an output arrived after the service had stopped")


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
        """Its length; at least 1, so that an empty text counts as work too."""
        return max(1, len(self.encoding))


class WaitingQueue:
    """First come, first served within a client, except that later sequences may fill gaps (`take_batch`).

    Between clients, the one that has used least goes first (`ClientQueues`). Light clients do not share
    batches with heavy ones, and do not wait for them where there is an EXPRESS lane.

    The `ledger` counts what waits in all processes of the service, which share `max_tokens`. `allows` says
    whether a lane may run now.
    """

    def __init__(
        self,
        name: str,
        metrics: Metrics,
        max_tokens: int,
        ledger: Ledger | None = None,
        allows: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self.max_tokens = max_tokens
        self._name = name
        self._metrics = metrics
        self._ledger = ledger or alone().ledger()
        self._allows = allows
        self._clients: ClientQueues[Waiting] = ClientQueues(self._ledger)
        self._abandoned: deque[Job] = deque()
        self._closed = False
        self._light_at, self._lightest = -_CONTENDED_S, 0
        self._lock = threading.Lock()
        self._idle: dict[threading.Condition, int] = {}  # the lane of each thread that waits for work

    @contextmanager
    def reserve(self, tokens: int, tokens_per_s: float, client: str = "") -> Iterator[None]:
        """Count about `tokens` as waiting inside the `with` block, for a request still being tokenized.

        Raises OverloadedError if they do not fit; an empty queue takes any number.
        """
        with self._lock:
            self._check_room(client, tokens, tokens_per_s)
            self._clients.reserve(client, tokens)
        try:
            yield
        finally:
            with self._lock:
                self._clients.reserve(client, -tokens)

    def abandon(self, job: Job) -> None:
        """Have the rest of a job dropped before it runs."""
        job.abandoned = True
        if job.remaining:
            self._abandoned.append(job)

    def add(self, sequences: Sequence[Waiting], tokens_per_s: float, *, expected: bool = False) -> None:
        """Queue all sequences of a request, or none; raises OverloadedError if they do not fit.

        An empty queue takes any request, however large. An `expected` request, for which tokens were
        reserved, may exceed its estimate slightly.
        """
        client = sequences[0].job.client
        tokens = sum(waiting.tokens for waiting in sequences)
        with self._lock:
            if self._clients.inputs or self._ledger.elsewhere:
                self._check_room(client, tokens, tokens_per_s, _TOLERANCE if expected else 1.0)
            self._clients.add(client, sequences)
            self._report()
            self._wake()

    def check_room(self, tokens: int, tokens_per_s: float, client: str = "") -> None:
        """Raise OverloadedError if `tokens` more of a client would not fit now."""
        with self._lock:
            self._check_room(client, tokens, tokens_per_s)

    def wait(self, lane: int, still_needed: Callable[[], bool]) -> bool:
        """Wait until there is work for this lane that no lower lane is free to run.

        Higher lanes leave small batches, which run less efficiently, to the first lane, which is soon free;
        EXPRESS waits for light clients. Returns False when the queue is closed and empty, or when the caller
        is no longer `still_needed`.
        """
        with self._lock:
            woken = threading.Condition(self._lock)
            self._idle[woken] = lane
            try:
                while still_needed():
                    self._drop_abandoned()
                    if self._closed:
                        return lane != EXPRESS and not self.empty
                    if self._next_lane() == lane:
                        return True
                    woken.wait()
            finally:
                del self._idle[woken]
            self._wake()  # this thread may have consumed the notification: pass it on to the next lane
        return False

    def take(
        self, budget: int, cost: Callable[[Sequence[int]], int], *, only_light: bool = False
    ) -> tuple[list[Waiting], bool]:
        """Take the next batch; empty when nothing is left, or with `only_light` nothing of a light client.

        Also returns whether it should run at low priority, yielding to light clients. Call `finish` after
        running it.
        """
        with self._lock:
            self._drop_abandoned()
            number = min(max(_MIN_CONSIDERED, budget // _SHORT_TEXT), _MAX_CONSIDERED)
            clients = self._clients
            due = clients.first_light(number, self._lightest_of_late) if only_light else clients.first(number)
            ahead = companions(due)
            chosen = take_batch([Candidate(w.tokens, w.overtaken) for _, w in ahead], budget, cost)
            yields = False
            if chosen:
                yields = self._yields(ahead[0][0].weight)
                members = set(chosen)
                for i in range(chosen[-1]):
                    ahead[i][1].overtaken += i not in members
                clients.take([ahead[i] for i in chosen])
                self._report()
            self._wake()  # another lane may run what is left
            return [ahead[i][1] for i in chosen], yields

    def finish(self, batch: Sequence[Waiting]) -> None:
        """Stop counting a batch as running."""
        with self._lock:
            self._clients.finish((waiting.job.client, waiting.tokens) for waiting in batch)

    @property
    def empty(self) -> bool:
        """Whether nothing is waiting."""
        return not self._clients.inputs

    @property
    def closed(self) -> bool:
        """Whether the queue has been closed."""
        return self._closed

    def close(self) -> None:
        """Have `wait` return False once nothing is waiting."""
        with self._lock:
            self._closed = True
            for woken in self._idle:
                woken.notify()

    def wake_idle_lane(self) -> None:
        """Wake an idle lane if there is work for it by now; called several times a second."""
        with self._lock:
            self._wake()

    @property
    def _lightest_of_late(self) -> int:
        """The weight of the lightest client served recently beside heavy ones; 0 if none."""
        return self._lightest if time.perf_counter() - self._light_at < _CONTENDED_S else 0

    def _yields(self, weight: int) -> bool:
        """Whether a batch of a client of this weight yields to light ones; records the lightest client."""
        lightest = self._lightest_of_late
        if (not lightest or weight <= lightest) and self._clients.is_light(weight):
            self._light_at, self._lightest = time.perf_counter(), weight
        return lightest > 0 and is_light(lightest, weight)

    def _is_worth(self, lane: int) -> bool:
        """Whether there is enough waiting work to use this lane."""
        clients = self._clients
        if lane == EXPRESS:
            return clients.has_light(self._lightest_of_late)
        if not self._allows(lane):
            return False
        if not clients.inputs or lane == 0 or clients.tokens >= WORTH_A_LANE or clients.has_light():
            return bool(clients.inputs)
        return time.perf_counter() - min(w.job.enqueued for w in clients.oldest()) > _LONG_S

    def _wake(self) -> None:
        """Wake the thread that should run what waits; a needless wake-up would take the interpreter."""
        if self._clients.inputs and self._idle:
            next_lane = self._next_lane()
            for woken, lane in self._idle.items():
                if lane == next_lane:
                    woken.notify()

    def _next_lane(self) -> int | None:
        """Return the lowest idle lane for which there is enough work."""
        return next((lane for lane in sorted(self._idle.values()) if self._is_worth(lane)), None)

    def _check_room(self, client: str, tokens: int, tokens_per_s: float, tolerance: float = 1.0) -> None:
        """Raise OverloadedError if `tokens` more of a client do not fit."""
        limit = tolerance * self.max_tokens
        if not self._clients.may_hold(client, tokens, limit):
            self._drop_abandoned()
            if not self._clients.may_hold(client, tokens, limit):
                raise self._overloaded(client, tokens, tokens_per_s)

    def _drop_abandoned(self) -> None:
        clients = set()
        while self._abandoned:
            clients.add(self._abandoned.popleft().client)
        if clients:
            self._clients.drop(clients, lambda waiting: waiting.job.abandoned)
            self._report()

    def _report(self) -> None:
        self._metrics.queue(self._name, inputs=self._clients.inputs, tokens=self._clients.tokens)

    def _overloaded(self, client: str, tokens: int, tokens_per_s: float) -> OverloadedError:
        waiting, client_tokens = (
            self._clients.occupied,
            self._clients.occupancy(client),
        )
        seconds = waiting / tokens_per_s if tokens_per_s else 1.0
        retry_after = max(1, min(60, round(seconds)))
        return OverloadedError(
            requested=tokens,
            client_tokens=client_tokens,
            waiting=waiting,
            limit=self.max_tokens,
            retry_after=retry_after,
        )
