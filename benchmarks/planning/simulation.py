"""Simulates replicas behind a load balancer, event by event: an arrival, or the end of a batch."""

import heapq
from dataclasses import dataclass

import numpy as np

from benchmarks.planning.policies import Fleet, Policy
from benchmarks.planning.replica import Batch, Costs, Replica, Work
from benchmarks.planning.traffic import Floats, Sizes, Traffic

_FAR_APART_S = 1e4


@dataclass(frozen=True)
class Outcome:
    """The outcome of each request, in order of arrival: its latency in seconds, NaN if it was refused.

    `replicas` is where each was sent, and `queued` how many tokens then waited, on average per replica.
    """

    latency: Floats
    replicas: list[int]
    queued: Floats

    @property
    def answered(self) -> Floats:
        """The latencies of those that were answered, in seconds."""
        return self.latency[~np.isnan(self.latency)]

    @property
    def refused(self) -> float:
        """The share of requests that were refused with 429."""
        return float(np.isnan(self.latency).mean())

    def after(self, share: float) -> "Outcome":
        """Leave out the first requests, which found idle replicas."""
        begin = int(share * len(self.latency))
        return Outcome(self.latency[begin:], self.replicas[begin:], self.queued[begin:])

    def percentile(self, percent: float) -> float:
        """A percentile of the latency of those that were answered, in seconds; NaN without any."""
        return float(np.percentile(self.answered, percent)) if len(self.answered) else float("nan")


def simulate(traffic: Traffic, replicas: int, policy: Policy, costs: Costs, seed: int = 0) -> Outcome:
    """Send the traffic to a number of replicas, and run until every request is answered."""
    fleet = Fleet.of(replicas)
    choose = policy(fleet, traffic.clients.tolist(), np.random.default_rng(seed))
    run = _Run(traffic, fleet, costs)
    for request, now in enumerate(traffic.arrivals.tolist()):
        run.until(now)
        run.arrive(request, choose(request, now), now)
    run.until(float("inf"))
    latency = np.array(run.ended) - traffic.arrivals + costs.fixed_s
    return Outcome(latency, run.sent_to, np.array(run.queued) / replicas)


def each_alone(sizes: Sizes, costs: Costs) -> Outcome:
    """Give each request an idle replica: the lower bound of the latency for any load balancer."""
    traffic = Traffic(
        _FAR_APART_S * np.arange(len(sizes), dtype=np.float64), sizes, np.zeros(len(sizes), np.int64)
    )
    return simulate(traffic, 1, lambda *_: lambda *_: 0, costs)


class _Run:
    """The state of a simulation. `ended` are times, NaN for refused requests."""

    def __init__(self, traffic: Traffic, fleet: Fleet, costs: Costs) -> None:
        self._fleet = fleet
        self._work = Work(traffic.sizes.tokens.tolist(), traffic.sizes.texts.tolist(), costs)
        self._replicas = [Replica(costs, self._work) for _ in range(len(fleet))]
        self._running: list[tuple[float, int, int, Batch]] = []
        self.ended = [float("nan")] * len(traffic.arrivals)
        self.sent_to: list[int] = []
        self.queued: list[int] = []
        self._waiting = 0

    def until(self, now: float) -> None:
        """End every batch that is due by now, and start batches in the free lanes."""
        running, fleet, tokens = self._running, self._fleet, self._work.tokens
        while running and running[0][0] <= now:
            time, number, lane, batch = heapq.heappop(running)
            for request in self._replicas[number].finish(lane, batch):
                self.ended[request] = time
                fleet.requests[number] -= 1
                fleet.tokens[number] -= tokens[request]
            self._start(number, time)

    def arrive(self, request: int, number: int, now: float) -> None:
        """Send a request to a replica, which accepts or refuses it."""
        self.sent_to.append(number)
        self.queued.append(self._waiting)
        if self._replicas[number].accept(request, now):
            self._fleet.requests[number] += 1
            self._fleet.tokens[number] += self._work.tokens[request]
            self._start(number, now)

    def _start(self, number: int, now: float) -> None:
        replica = self._replicas[number]
        while (started := replica.start(now)) is not None:
            end, lane, batch = started
            heapq.heappush(self._running, (end, number, lane, batch))
        self._waiting += replica.waiting_tokens - self._fleet.waiting[number]
        self._fleet.waiting[number] = replica.waiting_tokens
