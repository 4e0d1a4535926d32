"""What a queue takes: what can be answered in time. And when what it does not take should come back."""

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from service.sharing.scoreboard import RETRY_AT, RETRY_AT_WHOLE, WORK, Counters, single_process

# Of the time in which requests must be answered, the part that light clients find free, whatever the others
# send; a client is light whose work takes no more than another part of that time.
_RESERVED, LIGHT = 1 / 8, 1 / 64
# Refused work is told to come back when no more waits than this part of what may wait for it to fit: no
# estimate is exact, and the device has work until it comes.
_LOW = 2 / 3
# Clients come back within a part of their own time, so that those of several processes do not come together.
_SPREAD = 1 / 10
_LONGEST_S = 600.0
"""The longest time after which a client is told to come back."""
_MINUTE_S = 59.0
"""The longest time that `retry-after-ms` names. Libraries that read it take a minute or more for a mistake,
and come back at once or never; with less they come back too early once a minute, and are told the rest."""
# Of what may come back at once, how much of one client's others wait for: half of what the queue takes.
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
            f"The queue has no room for this request of about {requested} tokens: it holds {waiting} tokens, "
            f"{client_tokens} of them from this client, and its limit is {limit}, which is what can be "
            "answered in time. A client may not occupy more of the queue than remains free."
        )
        self.requested = requested
        self.client_tokens = client_tokens
        self.waiting = waiting
        self.limit = limit
        self.retry = retry


class DeadlineTooShort(Exception):
    """A request of `tokens` tokens that takes `seconds` on an idle service, with a deadline of `within_s`."""

    def __init__(self, tokens: int, seconds: float, within_s: float) -> None:
        super().__init__(
            f"The {tokens} tokens of this request take about {seconds:.3g} s here, and it must be answered "
            f"within {within_s:g} s."
        )
        self.tokens = tokens
        self.seconds = seconds
        self.within_s = within_s


class Backlog:
    """How long the device would take to run all that waits for it or runs, of all models and processes."""

    def __init__(self, counters: Counters | None = None) -> None:
        self._counters = counters or single_process()
        self._by_model: dict[str, float] = {}
        self._seconds = 0.0
        """The part of all models in this process."""

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
        """Return how many processes share the device: this one, and siblings with more work than that."""
        return 1 + sum(other[WORK] > 1e9 * seconds for other in self._counters.others)

    def here(self, model: str) -> float:
        """Return the part of the other models of this process, in seconds."""
        return sum(seconds for name, seconds in self._by_model.items() if name != model)

    def beside(self, model: str | None = None) -> float:
        """Return the part of other models and processes, in seconds; without a model, that of all."""
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
    """Whether it comes back after a refusal, when it was told to."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is before a request."""

    seconds: float
    """Of work, on all cores."""
    own_s: float
    """Of that, the work of the request's own client."""
    clients: int
    """How many clients have work waiting."""
    here_s: float = 0.0
    """The work of this process, which alone runs it."""
    sharers: int = 1
    """How many processes share the device: each has but its part of it, whatever waits in the others."""


def exceeds(demand: Demand, load: Load, limit_s: float) -> bool:
    """Whether a request could not be answered in time behind what waits, or would take others' share.

    `limit_s` is within what time requests must be answered. An idle device takes any request. A shorter
    deadline is met if all that waits is run before, or all clients in equal shares.
    """
    if not load.seconds:
        return False
    if load.here_s > max(0.0, _allowed_here_s(demand, load, limit_s)):
        return True
    return load.seconds > _allowed_s(demand, load, limit_s) or _late_s(demand, load) > 0


def fits_beside_heaviest(demand: Demand, load: Load, others_s: float, limit_s: float) -> bool:
    """Whether a light client's request is taken although it `exceeds`, since one client has filled the time.

    An idle device takes any request, and several processes may each take one at the same moment; what is
    light is run beside these, not behind them. `others_s` is the work of all clients but the heaviest.
    """
    light = _is_light(demand, load, limit_s) and others_s + demand.seconds <= _RESERVED * limit_s
    return light and _late_s(demand, load) <= 0


def wait_s(demand: Demand, load: Load, limit_s: float) -> float:
    """Return after how many seconds a refused request would find room, if no other came before it."""
    soonest_s = load.seconds - _LOW * max(0.0, _allowed_s(demand, load, limit_s))
    soonest_here_s = load.here_s - _LOW * max(0.0, _allowed_here_s(demand, load, limit_s))
    return max(0.0, soonest_s, load.sharers * soonest_here_s, _late_s(demand, load))


def _late_s(demand: Demand, load: Load) -> float:
    """Return by how much a request would miss a deadline of its own, in seconds."""
    soonest_s = min(load.seconds + demand.seconds, (load.clients + 1) * (load.own_s + demand.seconds))
    return soonest_s - demand.within_s


def _allowed_s(demand: Demand, load: Load, limit_s: float) -> float:
    """Return how much may be before a request for it to fit, in seconds.

    The work of all clients fits within the limit, less a part that is for light ones; a client that has work
    waiting may have no more than it leaves free (Choudhury & Hahne 1998), unless the request comes back when
    it was told to: others, who did not wait, have filled the room that it was promised.
    """
    light = _is_light(demand, load, limit_s)
    allowed_s = (limit_s if light else (1 - _RESERVED) * limit_s) - demand.seconds
    if load.own_s > LIGHT * limit_s and not demand.returned:
        allowed_s = (allowed_s - demand.seconds) / (1 + load.own_s / load.seconds)
    return allowed_s


def _allowed_here_s(demand: Demand, load: Load, limit_s: float) -> float:
    """Return how much of its process's own work may be before a request, in seconds."""
    part = 1.0 if _is_light(demand, load, limit_s) else 1 - _RESERVED
    return part * limit_s / load.sharers - demand.seconds


def _is_light(demand: Demand, load: Load, limit_s: float) -> bool:
    return min(load.own_s + demand.seconds, load.seconds) <= LIGHT * limit_s


@dataclass(frozen=True, slots=True)
class Retry:
    """When a refused request should come back: in how many seconds, and in how many whole ones.

    The second may be more than the first rounded up: all that comes back in one second may come at once.
    """

    seconds: float
    whole: int

    @property
    def milliseconds(self) -> int:
        """The first, at least one millisecond, but less than a minute."""
        return max(1, math.ceil(1000 * min(self.seconds, _MINUTE_S)))

    def later(self, seconds: float) -> "Retry":
        """Return the same moment, told some seconds later."""
        return Retry(max(0.0, self.seconds - seconds), max(1, math.ceil(self.whole - seconds)))

    @classmethod
    def after(cls, seconds: float) -> "Retry":
        """Return the same time in both forms, but no more than the longest."""
        seconds = min(seconds, _LONGEST_S)
        return cls(seconds, max(1, math.ceil(seconds)))


@dataclass(frozen=True, slots=True)
class QueueFull:
    """Why a queue refuses a client's request, and others like it; times are in seconds."""

    client: str
    wait_s: float
    """After which it would find room."""
    seconds: float
    """That it would take to run."""
    burst_s: float
    """That requests may take together which come back at once."""
    times: "RetryTimes"
    sharers: int = 1
    """How many processes share the device."""

    def retry(self) -> Retry:
        """Give one of them a time to come back."""
        return self.times.after(self.client, self.wait_s, self.seconds, self.burst_s, sharers=self.sharers)


@dataclass(slots=True)
class _Given:
    """What a client was given: until when its times last, and for how much work from `since` on."""

    until: float = 0.0
    whole_until: float = 0.0
    seconds: float = 0.0
    since: float = 0.0


class RetryTimes:
    """Gives refused requests times to come back, one after the other, as the device will be free for them.

    The processes of a service tell each other by `counters` until when they have given times. A client that
    was given as much as it may have in the queue is given further times behind its own: so the others do not
    wait for what it only announces.
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
        """Return when a client's request that takes some seconds should come back.

        It would find room after `wait_s`, and requests of `burst_s` together fit at once; so many processes
        share the device.
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
        """Give a time that is not before `soonest`, and, unless that is too late, the seconds that follow."""
        counters = self._counters
        soonest = max(soonest, *(one[counter] / 1e9 for one in (counters.own, *counters.others)))
        at = _spread(soonest, seconds, latest)
        if at >= soonest:
            counters.own[counter] = int(1e9 * (at + seconds))
        return at


def _latest_whole(at: float, now: float) -> float:
    """Return the latest time at which a client due at `at` may be told to come back, in whole seconds.

    For the sake of whole seconds, one with a short request need not wait for more than a minute.
    """
    return min(max(at + 1, now + _MINUTE_S), now + _LONGEST_S)


def _spread(soonest: float, seconds: float, latest: float) -> float:
    """Return a time soon after the soonest, or in the last second before the latest that is told."""
    return min(soonest + _SPREAD * seconds * random.random(), latest - random.random())  # noqa: S311 - no secret
