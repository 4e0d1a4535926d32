"""Requests that are refused because of the load, and when their clients should come back."""

import random
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from service.clients.turns import Turns
from service.engine.admission import DeadlineTooShort, OverloadedError, Retry
from service.engine.engine import Engine
from service.engine.permit import AS_LARGE, Permit
from service.problems import Problem

# While at most this many steps wait for the event loop, it has time for further requests.
_CROWD = 100
# How long, in seconds, a refusal is reused for further requests of the client that are at least as large.
_HOLDS_S = 0.005
# How many clients are remembered for that.
_REMEMBERED = 1024

# How many refusals of a client are remembered after their connections were closed.
_ABSENT = 64

_loaded = attrgetter("loaded")


class Told(NamedTuple):
    """When a client was told to come back."""

    client: str
    at: float
    """When it was told, in `time.monotonic` seconds."""
    retry: Retry
    size: int = 0
    """The size of the refused body, in bytes."""
    asked: float = 0.0
    """When it last asked again too soon, in `time.monotonic` seconds; 0 if it never did."""
    patient: bool = True
    """Whether it has never asked again sooner than both headers said."""

    def waits(self, now: float) -> bool:
        """Whether it should still wait."""
        return now < self.at + self.retry.seconds

    def is_early(self, now: float) -> bool:
        """Whether it comes sooner than both headers said; the milliseconds never say more than a minute."""
        last = max(self.at, self.asked)
        return now < last + self.retry.later(last - self.at).milliseconds / 1000

    def left(self, now: float) -> Retry | None:
        """Return what is left of the wait; None if it is over."""
        return self.retry.later(now - self.at) if self.waits(now) else None

    def again(self, now: float) -> "Told":
        """Return what holds after a request that came too soon."""
        return self._replace(asked=now, patient=self.patient and not self.is_early(now))

    def admitted(self, permit: Permit, now: float) -> "Told | None":
        """Note in a permit whether its request comes as told; returns what holds if it is still refused."""
        permit.returned_bytes, permit.promised = self.size if self.returns(now) else 0, self.left(now)
        return None if permit.promised is None else self.again(now)

    def covers(self, size: int, now: float) -> bool:
        """Whether a body of this size comes when it was told to."""
        return size <= AS_LARGE * self.size and self.returns(now)

    def returns(self, now: float) -> bool:
        """Whether a request that comes now comes when it was told to; some clients round that time.

        A client that asked again meanwhile did not wait: a flood of repeated requests would fill the queue.
        """
        return self.patient and not self.waits(now) and not self.over(now)

    def over(self, now: float) -> bool:
        """Whether it is too late for the client to come back in time."""
        return now > self.at + 2 * self.retry.whole + 1


def told_after(permit: Permit, told: Told | None, now: float) -> Told | None:
    """Return what a client has been told after a request was answered, given what it was `told` before."""
    if permit.promised is not None:
        return None if permit.retry is None else told
    return told if permit.retry is None else Told(permit.client, now, permit.retry, permit.body_bytes)


class Absent:
    """Clients that were told to come back, and whose connections have been closed since.

    Many libraries close a connection that has been idle for five seconds.
    """

    def __init__(self) -> None:
        self._told: dict[str, deque[Told]] = {}

    def remember(self, told: Told) -> None:
        """Remember a client until it comes back."""
        if len(self._told) >= _REMEMBERED and told.client not in self._told:
            del self._told[next(iter(self._told))]
        self._told.setdefault(told.client, deque(maxlen=_ABSENT)).append(told)

    def claim(self, client: str) -> Told | None:
        """Return what a client that opens a connection was told, unless it comes back too early or too late.

        If it was told several times, one for which it comes in time is preferred.
        """
        now = time.monotonic()
        waiting = deque((one for one in self._told.pop(client, ()) if not one.over(now)), _ABSENT)
        due = [one for one in waiting if not one.is_early(now)]
        claimed = next((one for one in due if one.returns(now)), due[0] if due else None)
        if claimed is not None:
            waiting.remove(claimed)
        if waiting:
            self._told[client] = waiting
        return claimed


@dataclass(frozen=True, slots=True, eq=False)
class Refusal:
    """Why requests are refused on arrival."""

    kind: str
    retry: Callable[[], Retry]
    """Returns when one of them should come back."""
    problem: Callable[[Retry], Problem]
    made: dict[str, Any] = field(default_factory=dict)
    """Path of a route -> what has been made of this refusal for it."""


class Overload:
    """Knows what must be refused because of the load: no queue has room for it, or the event loop no time."""

    def __init__(self, turns: Turns) -> None:
        self.engines: Collection[Engine] = ()
        self._turns = turns
        self._lately: dict[str, tuple[float, int, Refusal]] = {}
        """Client -> until when its last refusal holds, the size of body that was refused, and the refusal."""
        self._likely_until = 0.0

    @property
    def may_refuse(self) -> bool:
        """Whether `refusal` might return one: False most of the time, at little cost."""
        if time.monotonic() < self._likely_until or self._turns.waiting > _CROWD:
            return True
        return any(map(_loaded, self.engines))

    def refusal(self, client: str, body_bytes: int, *, returned: bool = False) -> Refusal | None:
        """Return why a client's request of this size must be refused, None if it may be served."""
        if returned:
            return self._refusal(client, body_bytes, returned=True)
        until, refused_bytes, lately = self._lately.get(client, (0.0, 0, None))
        now = time.monotonic()
        if lately is not None and now < until and body_bytes >= refused_bytes:
            return lately
        refusal = self._refusal(client, body_bytes, returned=False)
        if refusal is not None:
            if len(self._lately) >= _REMEMBERED:
                self._lately.clear()
            self._likely_until = now + _HOLDS_S
            self._lately[client] = self._likely_until, body_bytes, refusal
        return refusal

    def _refusal(self, client: str, body_bytes: int, *, returned: bool) -> Refusal | None:
        wait_s = self._turns.wait_s(client)
        if self.engines and wait_s > min(engine.timeout_s for engine in self.engines) / 2:
            spread = partial(random.uniform, wait_s / 2, wait_s)
            return Refusal("overloaded", lambda: Retry.after(spread()), partial(_crowded, wait_s))
        return self.full(client, body_bytes, returned=returned)

    def full(self, client: str, body_bytes: int, *, returned: bool = False) -> Refusal | None:
        """Return why no queue has room for a request, None if one has."""
        full = []
        for engine in self.engines:
            refused = engine.refusal(client, body_bytes, returned=returned)
            if refused is None:
                return None
            full.append((refused.wait_s, refused, engine))
        if not full:
            return None
        _, refused, engine = min(full, key=lambda one: one[0])
        return Refusal("overloaded", refused.retry, partial(_full, engine, client, body_bytes))


def retry_after(retry: Retry) -> dict[str, str]:
    """Say in headers when to come back: in whole seconds (RFC 9110 §10.2.3), and in milliseconds.

    OpenAI's libraries read the milliseconds first, which are always less than a minute.
    """
    return {"Retry-After": str(retry.whole), "retry-after-ms": str(retry.milliseconds)}


def overloaded(error: OverloadedError, retry: Retry) -> Problem:
    """Make the 429 for a request that a queue has no room for; `retry` is when it should come back."""
    return Problem(
        "overloaded",
        f"{error} Retry after the time in Retry-After, or send fewer texts per request.",
        headers=retry_after(retry),
        members={"limit": error.limit, "actual": error.waiting, "requested": error.requested},
    )


def _full(engine: Engine, client: str, body_bytes: int, retry: Retry) -> Problem:
    return overloaded(engine.overloaded(client, body_bytes, lambda: retry), retry)


def _crowded(wait_s: float, retry: Retry) -> Problem:
    return Problem(
        "overloaded",
        f"Too many requests are waiting: this one could not start for another {wait_s:.2g} s. Retry "
        "after the time in Retry-After, or use fewer connections.",
        headers=retry_after(retry),
    )


def deadline_too_short(error: DeadlineTooShort) -> Problem:
    """Make the 422 for a request that even an idle service could not answer within its deadline."""
    return Problem(
        "deadline-too-short",
        f"{error} Shorten the texts, send fewer, or allow more time with the header X-Request-Timeout-Ms, "
        "up to the setting HEADLIGHT_REQUEST_TIMEOUT_S.",
        members={
            "field": "X-Request-Timeout-Ms",
            "limit": error.within_s,
            "actual": round(error.seconds, 3),
            "tokens": error.tokens,
        },
    )
