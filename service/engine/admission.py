"""Decides which requests a queue can answer in time, and when those that it refuses should come back."""

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from service.sharing.scoreboard import RETRY_AT, RETRY_AT_WHOLE, WORK, Counters, single_process

# Parts of the time within which requests must be answered: the first is kept free for light clients, whatever
# the others send; a client is light if its work takes no more than the second.
_RESERVED, LIGHT = 1 / 8, 1 / 64
# Refused work is told to come back once what waits has shrunk to this part of the most with which it fits: no
# estimate is exact, and the device still has work until it comes.
_LOW = 2 / 3
# Times to come back vary by this part of the request's own time, so that not all processes name the same one.
_SPREAD = 1 / 10
_LONGEST_S = 600.0
"""The longest time after which a client is told to come back."""
_MINUTE_S = 59.0
"""The longest time that `retry-after-ms` names. Libraries that read it treat a minute or more as a mistake,
and come back at once or never; given less, they come back too early once a minute, and are told the rest."""
# Others wait for at most this many times `burst_s` of one client's work: half of what the queue takes.
_SHARE = 2
# How many clients are remembered for that.
_REMEMBERED = 1024


class OverloadedError(Exception):
    """The queue has no room for a request of `requested` tokens; all sizes are in tokens.

    `client_tokens` of the `waiting` tokens are the client's own; `retry` gives a time when there is room.
    """

    def __init__(
        self, *, requested: int, client_tokens: int, waiting: int, limit: int, retry: "Callable[[], Retry]"
    ) -> None:
        super().__init__(
            f"The queue has no room for this request of about {requested} tokens. It holds {waiting} tokens, "
            f"{client_tokens} of them from this client; at most {limit} can be answered in time. One client "
            "may use at most as much of the queue as remains free."
        )
        self.requested = requested
        self.client_tokens = client_tokens
        self.waiting = waiting
        self.limit = limit
        self.retry = retry


class DeadlineTooShort(Exception):
    """A request of `tokens` tokens takes `seconds` on an idle service, more than its deadline `within_s`."""

    def __init__(self, tokens: int, seconds: float, within_s: float) -> None:
        super().__init__(
            f"This request has {tokens} tokens, which take about {seconds:.3g} s here, but it must be "
            f"answered within {within_s:g} s."
        )
        self.tokens = tokens
        self.seconds = seconds
        self.within_s = within_s


class Backlog:
    """How long the device would take for all that waits for it or runs, of all models and processes."""

    def __init__(self, counters: Counters | None = None) -> None:
        self._counters = counters or single_process()
        self._by_model: dict[str, float] = {}
        self._seconds = 0.0
        """The part of this process, for all its models."""

    def set(self, model: str, seconds: float) -> None:
        """Set the part of one model in this process."""
        self._by_model[model] = seconds
        self._seconds = sum(self._by_model.values())
        self._counters.own[WORK] = int(1e9 * self._seconds)

    @property
    def busy_siblings(self) -> int:
        """How many other processes have work for the device."""
        return sum(other[WORK] > 0 for other in self._counters.others)

    def sharers(self, seconds: float) -> int:
        """Return how many processes share the device: this one and siblings with more work than `seconds`."""
        return 1 + sum(other[WORK] > 1e9 * seconds for other in self._counters.others)

    def here(self, model: str) -> float:
        """Return the part of this process's other models, in seconds."""
        return sum(seconds for name, seconds in self._by_model.items() if name != model)

    def beside(self, model: str | None = None) -> float:
        """Return the part of other models and processes, in seconds; without a model, the whole."""
        own = self._seconds if model is None else self.here(model)
        return own + self._counters.elsewhere(WORK) / 1e9


@dataclass(frozen=True, slots=True)
class Demand:
    """What a request asks for: a client's work of some tokens and seconds, to be answered within a time."""

    client: str
    tokens: int
    seconds: float
    within_s: float = math.inf
    returned: bool = False
    """Whether it was refused before, and has come back when it was told to."""


@dataclass(frozen=True, slots=True)
class Load:
    """The work that is ahead of a request."""

    seconds: float
    """How long all of it takes on all cores."""
    own_s: float
    """How long the part of the request's own client takes."""
    clients: int
    """How many clients have work waiting."""
    here_s: float = 0.0
    """How long the part of this process takes, which no other process can run."""
    sharers: int = 1
    """How many processes share the device: each has only its part of it, whatever waits in the others."""


def exceeds(demand: Demand, load: Load, limit_s: float) -> bool:
    """Whether a request could not be answered in time behind what waits, or would take others' share.

    `limit_s` is the time within which requests must be answered. An idle device takes any request. A shorter
    deadline must be met either with all that waits run first, or with all clients served in equal shares.
    """
    if not load.seconds:
        return False
    if load.here_s > max(0.0, _allowed_here_s(demand, load, limit_s)):
        return True
    return load.seconds > _allowed_s(demand, load, limit_s) or _late_s(demand, load) > 0


def fits_beside_heaviest(demand: Demand, load: Load, others_s: float, limit_s: float) -> bool:
    """Whether a light client's request is taken although it `exceeds`, since one client has filled the time.

    An idle device takes any request, and several processes may each take one at the same moment; light work
    runs beside these, not behind them. `others_s` is the work of all clients except the heaviest.
    """
    light = _is_light(demand, load, limit_s) and others_s + demand.seconds <= _RESERVED * limit_s
    return light and _late_s(demand, load) <= 0


def wait_s(demand: Demand, load: Load, limit_s: float) -> float:
    """Return after how many seconds a refused request would find room, if no other came before it."""
    soonest_s = load.seconds - _LOW * max(0.0, _allowed_s(demand, load, limit_s))
    soonest_here_s = load.here_s - _LOW * max(0.0, _allowed_here_s(demand, load, limit_s))
    return max(0.0, soonest_s, load.sharers * soonest_here_s, _late_s(demand, load))


def _late_s(demand: Demand, load: Load) -> float:
    """Return how late a request would be for its own deadline, in seconds; negative if it is in time."""
    soonest_s = min(load.seconds + demand.seconds, (load.clients + 1) * (load.own_s + demand.seconds))
    return soonest_s - demand.within_s


def _allowed_s(demand: Demand, load: Load, limit_s: float) -> float:
    """Return how much work may be ahead of a request for it to fit, in seconds.

    The work of all clients must fit within the limit, less a part kept for light ones. A client with work
    waiting may have no more than it leaves free (Choudhury & Hahne 1998), unless the request comes back when
    it was told to: then others, who did not wait, have taken the room that it was promised.
    """
    light = _is_light(demand, load, limit_s)
    allowed_s = (limit_s if light else (1 - _RESERVED) * limit_s) - demand.seconds
    if load.own_s > LIGHT * limit_s and not demand.returned:
        allowed_s = (allowed_s - demand.seconds) / (1 + load.own_s / load.seconds)
    return allowed_s


def _allowed_here_s(demand: Demand, load: Load, limit_s: float) -> float:
    """Return how much of its process's own work may be ahead of a request for it to fit, in seconds."""
    part = 1.0 if _is_light(demand, load, limit_s) else 1 - _RESERVED
    return part * limit_s / load.sharers - demand.seconds


def _is_light(demand: Demand, load: Load, limit_s: float) -> bool:
    return min(load.own_s + demand.seconds, load.seconds) <= LIGHT * limit_s


@dataclass(frozen=True, slots=True)
class Retry:
    """When a refused request should come back: in how many seconds, and in how many whole ones.

    `whole` may be more than `seconds` rounded up: all that are told the same second may come at once.
    """

    seconds: float
    whole: int

    @property
    def milliseconds(self) -> int:
        """The seconds in milliseconds: at least one, but less than a minute."""
        return max(1, math.ceil(1000 * min(self.seconds, _MINUTE_S)))

    def later(self, seconds: float) -> "Retry":
        """Return the same moment, counted from `seconds` later."""
        return Retry(max(0.0, self.seconds - seconds), max(1, math.ceil(self.whole - seconds)))

    @classmethod
    def after(cls, seconds: float) -> "Retry":
        """Return the same time in both forms, but no more than the longest that clients are told."""
        seconds = min(seconds, _LONGEST_S)
        return cls(seconds, max(1, math.ceil(seconds)))


@dataclass(frozen=True, slots=True)
class QueueFull:
    """Why a queue refuses a client's request, and others like it; times are in seconds."""

    client: str
    wait_s: float
    """How long until it would find room."""
    seconds: float
    """How long it would take to run."""
    burst_s: float
    """How long requests that come back at once may take together."""
    times: "RetryTimes"
    sharers: int = 1
    """How many processes share the device."""

    def retry(self) -> Retry:
        """Give one such request a time to come back."""
        return self.times.after(self.client, self.wait_s, self.seconds, self.burst_s, sharers=self.sharers)


@dataclass(slots=True)
class _Given:
    """What a client was given: when its times end, and how many `seconds` of work from `since` on."""

    until: float = 0.0
    whole_until: float = 0.0
    seconds: float = 0.0
    since: float = 0.0


class RetryTimes:
    """Gives refused requests times to come back, one after the other, as the device will be free for them.

    The processes of a service tell each other through `counters` until when they have given times. A client
    that was given times for as much work as it may have in the queue gets further times after its own, so
    that others do not wait for work that it only announces.
    """

    def __init__(self, counters: Counters | None = None) -> None:
        self._counters = counters or single_process()
        self._clients: dict[str, _Given] = {}

    def after(
        self,
        client: str,
        wait_s: float,
        seconds: float,
        burst_s: float,
        now: float | None = None,
        *,
        sharers: int = 1,
    ) -> Retry:
        """Return when a client's request that takes `seconds` to run should come back.

        It would find room after `wait_s`, and requests that take `burst_s` together fit at once; `sharers`
        processes share the device.
        """
        now = time.monotonic() if now is None else now
        if len(self._clients) >= _REMEMBERED:
            self._clients.clear()
        own = self._clients.setdefault(client, _Given())
        waiting_s = max(0.0, own.seconds - (now - own.since))
        behind_own = waiting_s > 0 and waiting_s + seconds > _SHARE * burst_s
        own.seconds, own.since = waiting_s + seconds, now
        whole_s = seconds / min(1.0, max(burst_s, seconds, 1e-3))
        if behind_own:
            at = _spread(max(now + wait_s, own.until), seconds, now + _LONGEST_S)
            whole = _spread(max(at, own.whole_until), whole_s, _latest_whole(at, now))
            seconds, whole_s = sharers * seconds, sharers * whole_s
        else:
            at = self._book(RETRY_AT, now + wait_s, seconds, now + _LONGEST_S)
            whole = self._book(RETRY_AT_WHOLE, at, whole_s, _latest_whole(at, now))
        own.until, own.whole_until = at + seconds, whole + whole_s
        return Retry(at - now, max(1, math.ceil(whole - now)))

    def _book(self, counter: int, soonest: float, seconds: float, latest: float) -> float:
        """Return a time not before `soonest`, and reserve the seconds that follow unless it is too late."""
        counters = self._counters
        soonest = max(soonest, *(one[counter] / 1e9 for one in (counters.own, *counters.others)))
        at = _spread(soonest, seconds, latest)
        if at >= soonest:
            counters.own[counter] = int(1e9 * (at + seconds))
        return at


def _latest_whole(at: float, now: float) -> float:
    """Return the latest time at which a client due at `at` may be told to come back, in whole seconds.

    Whole seconds alone make no client wait for more than a minute.
    """
    return min(max(at + 1, now + _MINUTE_S), now + _LONGEST_S)


def _spread(soonest: float, seconds: float, latest: float) -> float:
    """Return a random time soon after `soonest`, or in the last second before `latest` if that is earlier."""
    return min(soonest + _SPREAD * seconds * random.random(), latest - random.random())  # noqa: S311 - no secret
