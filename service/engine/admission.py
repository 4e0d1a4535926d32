"""What a queue takes: what can be answered in time. And when what it does not take should come back."""

import math
import random
import time
from dataclasses import dataclass

from service.sharing.board import WORK, Column, alone

# Of the time in which requests must be answered, the part that light clients find free, whatever the others
# send; a client is light whose work takes no more than another part of that time.
_RESERVED, _LIGHT = 1 / 8, 1 / 64
# Refused work is told to come back when the queue is down to this part of what it holds: the device then has
# work until it comes.
_LOW = 1 / 2
# It is spread over this part of its own time and of its wait, so that clients do not come back together.
_SPREAD_OWN, _SPREAD_WAIT = 1 / 4, 1 / 20
_LONGEST_S = 55.0
"""The longest time after which a client is told to come back: some give up if it is a minute or more."""


class OverloadedError(Exception):
    """The queue has no room for a request of `requested` tokens; all sizes are in tokens.

    `client_tokens` of the `waiting` tokens are the client's own. After `retry_s` seconds there should be room.
    """

    def __init__(
        self, *, requested: int, client_tokens: int, waiting: int, limit: int, retry_s: float
    ) -> None:
        super().__init__(
            f"This request has about {requested} tokens, and {waiting} are queued, {client_tokens} of them "
            f"this client's; the queue takes {limit}, which is what can be answered in time, and a client may "
            "use no more of it than it leaves free."
        )
        self.requested = requested
        self.client_tokens = client_tokens
        self.waiting = waiting
        self.limit = limit
        self.retry_s = retry_s


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

    def __init__(self, column: Column | None = None) -> None:
        self._column = column or alone()
        self._by_model: dict[str, float] = {}

    def set(self, model: str, seconds: float) -> None:
        """Set the part of one model in this process."""
        self._by_model[model] = seconds
        self._column.own[WORK] = int(1e9 * sum(self._by_model.values()))

    def beside(self, model: str) -> float:
        """Return the part of other models and processes, in seconds."""
        own = sum(seconds for name, seconds in self._by_model.items() if name != model)
        return own + self._column.elsewhere(WORK) / 1e9


@dataclass(frozen=True, slots=True)
class Demand:
    """What a request asks for: a client's work of some tokens and seconds, to be answered within a time."""

    client: str
    tokens: int
    seconds: float
    within_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Load:
    """What is before a request: seconds of work, of which some are its client's own, of so many clients."""

    seconds: float
    own_s: float
    clients: int


def exceeds(demand: Demand, load: Load, limit_s: float) -> bool:
    """Whether a request could not be answered in time behind what waits, or would take others' share.

    `limit_s` is within what time requests must be answered. An idle device takes any request. The work of all
    clients fits within the limit, less a part that is for light ones; a client that has work waiting may have
    no more than it leaves free (Choudhury & Hahne 1998). A shorter deadline is met if all that waits is run
    before, or all clients in equal shares.
    """
    if not load.seconds:
        return False
    own_s, after_s = load.own_s + demand.seconds, load.seconds + demand.seconds
    light_s = _LIGHT * limit_s
    allowed_s = limit_s if min(own_s, load.seconds) <= light_s else (1 - _RESERVED) * limit_s
    if after_s > allowed_s or (load.own_s > light_s and own_s > allowed_s - after_s):
        return True
    return min(after_s, (load.clients + 1) * own_s) > demand.within_s


def wait_s(demand: Demand, load: Load, limit_s: float) -> float:
    """Return after how many seconds a refused request would find room, if no other came before it."""
    return min(load.seconds, max(0.0, load.seconds + demand.seconds - _LOW * limit_s))


class Returns:
    """Gives refused requests times to come back, one after the other, as the device will be free for them.

    With several `processes`, each refuses a share of the requests, so as much work again comes to the others.
    """

    def __init__(self, processes: int = 1) -> None:
        self._processes = processes
        self._until = 0.0

    def after(self, wait_s: float, seconds: float, now: float | None = None) -> float:
        """Return when a request that takes some seconds should come back; it would find room after `wait_s`."""
        now = time.monotonic() if now is None else now
        at = max(now + wait_s, self._until)
        if at - now > _LONGEST_S:
            return random.uniform(_LONGEST_S / 2, _LONGEST_S)  # noqa: S311 - not a secret
        self._until = at + seconds * self._processes
        spread = _SPREAD_OWN * seconds + _SPREAD_WAIT * (at - now)
        return min(_LONGEST_S, at - now + random.uniform(0.0, spread))  # noqa: S311
