"""Requests that are refused because of the load, and when their clients should come back."""

from collections.abc import Callable
from dataclasses import dataclass

from service.engine.admission import OverloadedError, Retry
from service.engine.engine import Engine
from service.problems import Problem, retry_after


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused on arrival, and when its client should come back."""

    kind: str
    retry: Retry
    problem: Callable[[], Problem]


def overloaded(error: OverloadedError) -> Problem:
    """Make the 429 of a request that a queue has no room for."""
    return Problem(
        "overloaded",
        f"{error} Retry when Retry-After says, or send fewer texts per request.",
        headers=retry_after(error.retry.seconds, error.retry.whole),
        members={"limit": error.limit, "actual": error.waiting, "requested": error.requested},
    )


def full(engine: Engine, client: str, body_bytes: int, retry: Retry) -> Problem:
    """Make the 429 of a request of so many bytes that an engine has no room for."""
    return overloaded(engine.overloaded(client, body_bytes, retry))


def crowded(wait_s: float) -> Problem:
    """Make the 429 of a request that would wait too long for the event loop."""
    return Problem(
        "overloaded",
        f"So many requests have arrived that this one would be begun in {wait_s:.2g} s: retry when "
        "Retry-After says, or use fewer connections.",
        headers=retry_after(wait_s),
    )
