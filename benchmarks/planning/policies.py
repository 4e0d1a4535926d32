"""Policies of load balancers: how they choose a replica for a request, and what they know about replicas.

A policy is made for a fleet and its future traffic, and then called for each request in turn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Choose = Callable[[int, float], int]
"""The index of a request and the time at which it comes -> the replica that it goes to."""


@dataclass(frozen=True)
class Fleet:
    """The current state of the replicas, one entry per replica.

    `requests` and `tokens` are in flight: sent and not yet answered. `waiting` are tokens in the queue, as in
    `headlight_queue_tokens`: running tokens do not count.
    """

    requests: list[int]
    tokens: list[int]
    waiting: list[int]

    @classmethod
    def of(cls, replicas: int) -> "Fleet":
        """Return an idle fleet."""
        return cls([0] * replicas, [0] * replicas, [0] * replicas)

    def __len__(self) -> int:
        return len(self.requests)


def at_random(fleet: Fleet, clients: Sequence[int], rng: np.random.Generator) -> Choose:
    """Any replica."""
    drawn = rng.integers(len(fleet), size=len(clients)).tolist()
    return lambda request, _: drawn[request]


def round_robin(fleet: Fleet, clients: Sequence[int], rng: np.random.Generator) -> Choose:  # noqa: ARG001
    """One replica after the other."""
    return lambda request, _: request % len(fleet)


def sticky(fleet: Fleet, clients: Sequence[int], rng: np.random.Generator) -> Choose:
    """Each client keeps its replica; replicas are assigned to clients in turn."""
    order = rng.permutation(max(clients) + 1).tolist()
    return lambda request, _: order[clients[request]] % len(fleet)


def least_requests(fleet: Fleet, clients: Sequence[int], rng: np.random.Generator) -> Choose:
    """The replica with the fewest requests in flight."""
    return _least(fleet.requests, len(clients), rng)


def least_tokens(fleet: Fleet, clients: Sequence[int], rng: np.random.Generator) -> Choose:
    """The replica with the fewest tokens in flight."""
    return _least(fleet.tokens, len(clients), rng)


def two_by_requests(fleet: Fleet, clients: Sequence[int], rng: np.random.Generator) -> Choose:
    """Of two replicas drawn at random, the one with fewer requests in flight."""
    return _two(fleet.requests, len(clients), rng)


def two_by_tokens(fleet: Fleet, clients: Sequence[int], rng: np.random.Generator) -> Choose:
    """Of two replicas drawn at random, the one with fewer tokens in flight (Mitzenmacher 2001)."""
    return _two(fleet.tokens, len(clients), rng)


def scraped_every(period_s: float) -> Callable[[Fleet, Sequence[int], np.random.Generator], Choose]:
    """Make the policy that chooses a shortest queue as of the last scrape."""

    def scraped(fleet: Fleet, clients: Sequence[int], rng: np.random.Generator) -> Choose:
        drawn = rng.random(len(clients)).tolist()
        shortest, due = list(range(len(fleet))), 0.0

        def choose(request: int, now: float) -> int:
            nonlocal shortest, due
            if now >= due:
                least = min(fleet.waiting)
                shortest = [i for i, tokens in enumerate(fleet.waiting) if tokens == least]
                due = (now // period_s + 1) * period_s
            return shortest[int(drawn[request] * len(shortest))]

        return choose

    return scraped


Policy = Callable[[Fleet, Sequence[int], np.random.Generator], Choose]

BASELINE = "least tokens"
POLICIES: dict[str, Policy] = {
    BASELINE: least_tokens,
    "two choices, tokens": two_by_tokens,
    "least requests": least_requests,
    "two choices, requests": two_by_requests,
    "round robin": round_robin,
    "random": at_random,
    "scraped each 1 s": scraped_every(1.0),
    "scraped each 5 s": scraped_every(5.0),
    "sticky connections": sticky,
}


def _least(of: Sequence[int], requests: int, rng: np.random.Generator) -> Choose:
    """Choose the least loaded; among equal ones, the next after a random position."""
    places = rng.integers(len(of), size=requests).tolist()

    def choose(request: int, _: float) -> int:
        least, place = min(of), places[request]
        try:
            return of.index(least, place)
        except ValueError:
            return of.index(least)

    return choose


def _two(of: Sequence[int], requests: int, rng: np.random.Generator) -> Choose:
    first = rng.integers(len(of), size=requests)
    other = (first + 1 + rng.integers(max(1, len(of) - 1), size=requests)) % len(of)
    pairs = list(zip(first.tolist(), other.tolist(), strict=True))

    def choose(request: int, _: float) -> int:
        one, two = pairs[request]
        return one if of[one] <= of[two] else two

    return choose
