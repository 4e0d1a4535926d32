"""The queue of one model: sequences of many requests, as many as can be answered in time. Thread-safe."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from service.engine.admission import (
    LIGHT,
    Backlog,
    Demand,
    Load,
    OverloadedError,
    QueueFull,
    Retry,
    RetryTimes,
    exceeds,
    fits_beside_heaviest,
    wait_s,
)
from service.engine.batching import Candidate, take_batch
from service.engine.fairness import ClientQueue, ClientQueues, companions, is_light
from service.engine.jobs import Deadlines, Job, Waiting
from service.engine.throughput import Throughput
from service.sharing.scoreboard import Counters, single_process
from service.telemetry.metrics import Metrics

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
# Work that is due earlier goes first once the time left is less than this many times what it needs: no
# estimate is exact.
_MARGIN = 1.1
# Requests that may come back at once take up to this part of the time within which requests must be answered.
_AT_ONCE = 1 / 4
_LOADED = 1 / 8
"""While less than this part of the queue's capacity is used, a small request of any client has room."""


class WaitingQueue:
    """First come, first served within a client, except that later sequences may fill gaps (`take_batch`).

    Between clients, the one that has used least goes first (`ClientQueues`), but a request that would
    otherwise be late goes before all others. Light clients do not share batches with heavy ones, and do not
    wait for them where there is an EXPRESS lane.

    It takes as much work as can be done within `timeout_s`, and at most `max_tokens` tokens. Both limits hold
    for all processes of the service together, which tell each other through `counters` how much they hold;
    the `backlog` includes the work of the device's other models. `allows` says whether a lane may run now.
    """

    def __init__(
        self,
        name: str,
        metrics: Metrics,
        throughput: Throughput,
        max_tokens: int,
        *,
        counters: Counters | None = None,
        backlog: Backlog | None = None,
        allows: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self.max_tokens = max_tokens
        self.timeout_s = math.inf
        self._name = name
        self._metrics = metrics
        self._throughput = throughput
        counters = counters or single_process([name])
        self._client_totals = counters.client_totals(name)
        self._backlog = backlog or Backlog(counters)
        self._retry_times = RetryTimes(counters)
        self._allows = allows
        self._clients: ClientQueues[Waiting] = ClientQueues(self._client_totals)
        self._waiting_s = 0.0
        self._running: dict[int, tuple[float, float]] = {}
        """How long each running batch should take, and when it began, by the batch's id."""
        self._deadlines = Deadlines()
        self._abandoned: deque[Job] = deque()
        self._closed = False
        self._light_at, self._lightest = -_CONTENDED_S, 0
        self._lock = threading.Lock()
        self._idle: dict[threading.Condition, int] = {}  # the lane of each thread that waits for work

    @contextmanager
    def reserve(self, demand: Demand) -> Iterator[None]:
        """Count a request as waiting inside the `with` block, while it is tokenized.

        Raises OverloadedError if it does not fit; an empty queue takes any.
        """
        with self._lock:
            self._check_capacity(demand)
            self._clients.reserve(demand.client, demand.tokens)
        try:
            yield
        finally:
            with self._lock:
                self._clients.reserve(demand.client, -demand.tokens)

    def abandon(self, job: Job) -> None:
        """Have the rest of a job dropped before it runs."""
        job.abandoned = True
        if job.remaining:
            self._abandoned.append(job)

    def add(self, sequences: Sequence[Waiting], *, expected: bool = False) -> None:
        """Queue all sequences of a request, or none; raises OverloadedError if they do not fit.

        An empty queue takes any request, however large. An `expected` request, for which tokens were
        reserved, may exceed its estimate slightly.
        """
        job, now = sequences[0].job, time.perf_counter()
        seconds = sum(waiting.seconds for waiting in sequences)
        tokens = sum(waiting.tokens for waiting in sequences)
        with self._lock:
            demand = Demand(job.client, tokens, seconds, job.until - now, job.returned)
            if self._clients.inputs or self._client_totals.elsewhere or self._running:
                self._check_capacity(demand, _TOLERANCE if expected else 1.0)
            self._clients.add(job.client, sequences)
            job.waiting_s = seconds
            self._waiting_s += seconds
            self._deadlines.add(job.until, seconds)
            self._report()
            self._wake()

    @property
    def loaded(self) -> bool:
        """Whether more than a small part of the room is taken: if not, small requests need no check."""
        tokens, seconds = self._clients.occupied, self._backlog.beside()
        return tokens > _LOADED * self.max_tokens or seconds > _LOADED * self.timeout_s

    def refusal(self, demand: Demand) -> QueueFull | None:
        """Return why a request does not fit now, or None if it does."""
        with self._lock:
            return self._refusal(demand)

    @property
    def limit(self) -> int:
        """How many tokens the queue takes now: `max_tokens`, or fewer if fewer can be run in time."""
        rate = self._throughput.tokens_per_s
        return int(min(self.max_tokens, self.timeout_s * rate)) if rate else self.max_tokens

    def overloaded(self, demand: Demand, retry: Callable[[], Retry]) -> OverloadedError:
        """Return an error that says why a request does not fit."""
        return OverloadedError(
            requested=demand.tokens,
            client_tokens=self._clients.occupancy(demand.client),
            waiting=self._clients.occupied,
            limit=self.limit,
            retry=retry,
        )

    def wait(self, lane: int) -> bool:
        """Wait until there is work for this lane that no lower lane is free to run.

        Higher lanes leave small batches, which run less efficiently, to the first lane, which is soon free;
        EXPRESS waits for light clients. Returns False when the queue is closed and empty.
        """
        with self._lock:
            woken = threading.Condition(self._lock)
            self._idle[woken] = lane
            try:
                while True:
                    self._drop_abandoned()
                    if self._closed:
                        return lane != EXPRESS and not self.empty
                    if self._next_lane() == lane:
                        return True
                    woken.wait()
            finally:
                del self._idle[woken]

    def take(
        self, budget: int, cost: Callable[[Sequence[int]], int], *, only_light: bool = False
    ) -> tuple[list[Waiting], bool]:
        """Take the next batch; with `only_light`, only light clients' work. Empty when nothing is left.

        Also returns whether it should run at low priority, yielding to light clients. Call `finish` after
        running it.
        """
        with self._lock:
            self._drop_abandoned()
            number = min(max(_MIN_CONSIDERED, budget // _SHORT_TEXT), _MAX_CONSIDERED)
            clients = self._clients
            if only_light:
                ahead = companions(clients.first_light(number, self._lightest_of_late))
            else:
                ahead = companions(clients.first(number))
            chosen = _choose(ahead, budget, cost)
            if not only_light and self._makes_late([ahead[i][1] for i in chosen], budget):
                ahead = companions(clients.first_by(_until, number))
                chosen = _choose(ahead, budget, cost)
            yields = False
            if chosen:
                yields = self._yields(ahead[0][0].weight)
                members = set(chosen)
                for i in range(chosen[-1]):
                    ahead[i][1].overtaken += i not in members
                clients.take([ahead[i] for i in chosen])
            batch = [ahead[i][1] for i in chosen]
            if batch:
                self._begin(batch)
            self._wake()  # another lane may run what is left
            return batch, yields

    def finish(self, batch: Sequence[Waiting]) -> None:
        """Stop counting a batch as running."""
        with self._lock:
            self._running.pop(id(batch), None)
            self._clients.finish((waiting.job.client, waiting.tokens) for waiting in batch)
            self._report()

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

    def refresh(self) -> None:
        """Wake an idle lane if there is work for it by now, and tell other processes how much there is.

        Called several times a second.
        """
        with self._lock:
            self._wake()
            self._backlog.set(self._name, self._work_s())

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
        return (
            time.perf_counter() - min(queue.waiting[0].job.enqueued for queue in clients.queues()) > _LONG_S
        )

    def _wake(self) -> None:
        """Wake only the thread that should run what waits: others would take the interpreter for nothing."""
        if self._clients.inputs and self._idle:
            next_lane = self._next_lane()
            for woken, lane in self._idle.items():
                if lane == next_lane:
                    woken.notify()

    def _next_lane(self) -> int | None:
        """Return the lowest idle lane for which there is enough work."""
        return next((lane for lane in sorted(self._idle.values()) if self._is_worth(lane)), None)

    def _begin(self, batch: list[Waiting]) -> None:
        """Count a batch as running."""
        by_job: dict[Job, float] = {}
        for waiting in batch:
            by_job[waiting.job] = by_job.get(waiting.job, 0.0) + waiting.seconds
        for job, of_job in by_job.items():
            job.waiting_s -= of_job
            self._deadlines.add(job.until, -of_job)
        seconds = sum(by_job.values())
        self._waiting_s = self._waiting_s - seconds if self._clients.inputs else 0.0
        self._running[id(batch)] = seconds, time.perf_counter()
        self._report()

    def _makes_late(self, chosen: Sequence[Waiting], budget: int) -> bool:
        """Whether a request that is due earlier would be late if the chosen sequences ran before it.

        It may then have to share a full batch with others.
        """
        seconds = sum(waiting.seconds for waiting in chosen) + self._throughput.seconds(budget)
        until = max((waiting.job.until for waiting in chosen), default=math.inf)
        return not self._deadlines.permit(seconds, until, _MARGIN * (1 + self._backlog.busy_siblings))

    def _work_s(self) -> float:
        """Estimate how long the device takes for what waits and runs here."""
        now, lanes = time.perf_counter(), len(self._running)
        running = sum(max(0.0, s - (now - began) / lanes) for s, began in self._running.values())
        return self._waiting_s + running + self._throughput.seconds(self._clients.reserved)

    def _load(self, client: str) -> Load:
        """Return the work that is ahead of another request of a client."""
        clients = self._clients
        work_s = self._work_s()
        here_s = work_s + self._backlog.here(self._name)
        seconds = work_s + self._backlog.beside(self._name)
        own_s = self._throughput.seconds(clients.occupancy(client))
        sharers = self._backlog.sharers(LIGHT * self.timeout_s)
        return Load(seconds, min(own_s, seconds), clients.backlogged, here_s, sharers)

    def _check_capacity(self, demand: Demand, tolerance: float = 1.0) -> None:
        if (refusal := self._refusal(demand, tolerance)) is not None:
            raise self.overloaded(demand, refusal.retry)

    def _refusal(self, demand: Demand, tolerance: float = 1.0) -> QueueFull | None:
        if self._fits(demand, tolerance):
            return None
        if self._abandoned:
            self._drop_abandoned()
            if self._fits(demand, tolerance):
                return None
        rate = self._throughput.tokens_per_s
        limit_s = min(self.timeout_s, self.max_tokens / rate) if rate else self.timeout_s
        # A request that was admitted on arrival for the time of one text mostly takes that of all its tokens.
        expected_s = min(self._throughput.seconds(demand.tokens), limit_s)
        whole = replace(demand, seconds=max(demand.seconds, expected_s))
        load = self._load(demand.client)
        soonest_s, burst_s = wait_s(whole, load, limit_s), _AT_ONCE * limit_s
        return QueueFull(demand.client, soonest_s, whole.seconds, burst_s, self._retry_times, load.sharers)

    def _fits(self, demand: Demand, tolerance: float) -> bool:
        limit = tolerance * self.max_tokens
        if not self._clients.may_hold(demand.client, demand.tokens, limit, returned=demand.returned):
            return False
        load, limit_s = self._load(demand.client), tolerance * self.timeout_s
        if not exceeds(demand, load, limit_s):
            return True
        others_s = self._throughput.seconds(self._clients.beside_heaviest)
        return fits_beside_heaviest(demand, load, others_s, limit_s)

    def _drop_abandoned(self) -> None:
        clients = set()
        while self._abandoned:
            job = self._abandoned.popleft()
            clients.add(job.client)
            self._waiting_s = max(0.0, self._waiting_s - job.waiting_s)
            self._deadlines.add(job.until, -job.waiting_s)
            job.waiting_s = 0.0
        if clients:
            self._clients.drop(clients, lambda waiting: waiting.job.abandoned)
            self._report()

    def _report(self) -> None:
        self._metrics.queue(self._name, inputs=self._clients.inputs, tokens=self._clients.tokens)
        self._backlog.set(self._name, self._work_s())


def _until(waiting: Waiting) -> float:
    return waiting.job.until


def _choose(
    ahead: "Sequence[tuple[ClientQueue[Waiting], Waiting]]",
    budget: int,
    cost: Callable[[Sequence[int]], int],
) -> list[int]:
    return take_batch([Candidate(waiting.tokens, waiting.overtaken) for _, waiting in ahead], budget, cost)
