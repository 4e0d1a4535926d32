"""Shares the event loop between clients, in turns of a bounded length.

What clients send makes work for the event loop: requests are read, refused or begun. That work waits here
while there is more of it than fits into one turn of the loop, and the client that has used the loop least
goes first: start-time fair queueing (Goyal, Vin & Cheng 1996) over seconds on the event loop, just as the
queue of a model shares tokens (`service/engine/fairness.py`). Between two turns the loop serves its timers
and new arrivals, so it never stands still for long, however many requests arrive at the same moment.

Requests to be read and requests to be begun wait in two separate lines, and each turn takes some of both. So
whatever cannot be served is refused at once, and refusals leave time for the requests that are served.

However short each turn is, a flood of turns would take the cores from everyone's passes. So a client whose
requests are refused, or need no model, rests after each of them while other clients send requests: passes can
use the cores between turns only if nothing else wants them.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Protocol, TypeVar

from service.clients.line import Client, Line, Step
from service.clients.presence import Presence

T = TypeVar("T")

TURN_S = 0.0003
"""A turn ends with the step of reading during which reading reaches this many seconds."""
# While requests are served and more has arrived than fits into a turn, the loop leaves the interpreter to
# other threads for _YIELD_S between two turns, and may keep them waiting for _SWITCH_S within one. A thread
# that computes takes the interpreter a dozen times per batch: otherwise, each system call of the loop would
# wake it only to find the interpreter taken again. With this, a batch beside refused requests takes half as
# long, and sixteen clients with short texts get a tenth more.
_YIELD_S, _SWITCH_S = 0.00003, 0.0005
# One turn begins requests until they are expected to take this long; they run right after it. Many are begun
# together so that their texts share a batch.
_BEGIN_S = 0.005
# The least time that a request is assumed to take: before any has ended, nothing is known.
_LEAST_S = 0.0003
# After a request that no queue took, a client rests for _REST times as long as the request took, and at most
# for _LONGEST_REST_S. So it has a fifth of the event loop: a client beside forty connections that send
# unknown fields waits twice as long for its answers as alone, and 13 times as long if they never rest.
_REST, _LONGEST_REST_S = 4.0, 0.25
# The least time that reading a request takes (measured).
_READ_S = 0.0001
# The weight of one request in the average time that requests take on the event loop.
_WEIGHT = 0.05
# The recent use of at least this many clients is remembered.
_REMEMBERED = 4096


class Served(Protocol):
    """A request that is being served."""

    client: str
    """Who is charged for it; known for certain once its key is checked."""
    queued: bool
    """Whether a model's queue has taken it."""


class Turns:
    """The work that waits for the event loop. Used on the event loop only.

    `presence` knows which clients the whole service has. `yields` says whether it gives way to other threads
    between turns. Where several processes share the cores, one that gave way would lose its core to another.
    """

    def __init__(self, presence: Presence | None = None, *, yields: bool = False) -> None:
        self._presence = presence or Presence()
        self._yields = yields
        self.on_turn: Step = lambda: None
        """Called in every turn, as a sign that the event loop makes progress."""
        self.held_bytes = 0
        """Bytes that connections hold until they are read."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._clients: dict[str, Client] = {}
        self._forget_at = _REMEMBERED
        self._reading, self._beginning = Line(), Line()
        self._probes = Line(rests=False)
        self._lines = (self._probes, self._beginning, self._reading)
        self.waiting = 0
        """How many steps wait, of requests that are not served yet."""
        self._wakes: asyncio.TimerHandle | None = None
        """Fires when the first client has rested, if there is nothing to do before."""
        self._clock = self._latest = 0.0
        """The virtual time: of the client that went last, and the latest of any."""
        self._scheduled = False
        self._read_s = 0.0
        """Seconds of reading since the last turn."""
        self._begun = 0
        """Requests begun since the last turn."""
        self._request_s = 0.0
        """How long a request occupies the event loop, on average."""
        self._served = 0
        """How many requests are being served."""
        self._switch_s = 0.0
        """The interpreter's usual switch interval, kept while a shorter one is set; otherwise 0."""

    def wait_s(self, name: str) -> float:
        """Estimate how long another request of a client would wait until it is begun, in seconds."""
        line = self._beginning
        client = self._clients.get(name)
        own = len(line.steps.get(client, ())) if client is not None else 0
        return self._request_s * min(line.waiting, (own + 1) * len(line.steps))

    def read(self, name: str, step: Step, *, later: bool = False) -> bool:
        """Read what a client sent: now if nothing waits and the turn has time left, else in another turn.

        Returns whether it was read. `later` says to leave the rest of this turn to others.
        """
        self._schedule()
        client = self._client(name)
        waits = self._reading.ready or client.rests or client in self._reading.steps
        if later or waits or self._read_s >= TURN_S:
            self._append(self._reading, client, step)
            return False
        self._read(client, step)
        return True

    def begin(self, name: str, step: Step) -> None:
        """Begin to serve a request, in a task of its own: now or in another turn, as `read` does."""
        self._schedule()
        client = self._client(name)
        waits = self._beginning.ready or client.rests or client in self._beginning.steps
        if waits or not self._may_begin:
            self._append(self._beginning, client, step)
        else:
            self._begun += 1
            step()

    def probe(self, name: str, step: Step) -> None:
        """Serve a health probe ahead of all other requests: one in each turn."""
        self._schedule()
        self._append(self._probes, self._client(name), step)

    def charge(self, name: str, seconds: float) -> None:
        """Charge a client for time that the event loop has spent on it."""
        self._charge(self._client(name), seconds)

    def timed(self, served: Served, work: Coroutine[Any, Any, T]) -> "Timed[T]":
        """Return a coroutine that does the work of a request, and charges its steps to its client.

        The request is being served from here on, until the coroutine ends.
        """
        self._served += 1
        return Timed(self, served, work)

    def ended(self, served: Served, seconds: float) -> None:
        """Record that a request has been served, and how long it took on the event loop."""
        if not served.queued:
            self.rest(served.client, seconds)
        else:
            self._client(served.client).read_s = 0.0
        self._served -= 1
        self._request_s += (seconds - self._request_s) * (_WEIGHT if self._request_s else 1.0)

    def rest(self, name: str, seconds: float) -> None:
        """Have a client rest after a request that no queue took, unless it is the only client.

        `seconds` is how long the request took on the event loop; the time to read it counts, too.
        """
        client = self._client(name)
        if self._presence.has_others(name):
            now = time.monotonic()
            rested = max(client.rests_until, now) + _REST * (max(_READ_S, client.read_s) + seconds)
            client.rests_until = min(rested, now + _LONGEST_REST_S)
        client.read_s = 0.0

    @property
    def _may_begin(self) -> bool:
        return not self._begun or self._begun * max(self._request_s, _LEAST_S) < _BEGIN_S

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Do some of the steps that wait, and leave the others to the next turn."""
        self._scheduled, self._read_s, self._begun = False, 0.0, 0
        try:
            self.on_turn()
            if self.waiting:
                self._take_some()
        finally:
            if self.waiting and any(line.ready for line in self._lines):
                self._schedule()
            elif self.waiting:
                self._schedule_after_rest()
            self._yield_if_crowded()

    def _take_some(self) -> None:
        if taken := self._take(self._probes):
            taken[1]()
        while self._may_begin and (taken := self._take(self._beginning)):
            self._begun += 1
            taken[1]()
        while self._read_s < TURN_S and (taken := self._take(self._reading)):
            self._read(*taken)

    def _schedule_after_rest(self) -> None:
        if self._wakes is not None:
            self._wakes.cancel()
        rested = min(line.rests_until for line in self._lines) - time.monotonic()
        self._wakes = asyncio.get_running_loop().call_later(max(0.0, rested), self._schedule)

    def _yield_if_crowded(self) -> None:
        """Let other threads run between two turns."""
        if self._yields and self._served and self._reading.ready:
            if not self._switch_s:
                self._switch_s = sys.getswitchinterval()
                sys.setswitchinterval(_SWITCH_S)
            time.sleep(_YIELD_S)
        elif self._switch_s:
            sys.setswitchinterval(self._switch_s)
            self._switch_s = 0.0

    def _take(self, line: Line) -> tuple[Client, Step] | None:
        taken = line.take()
        if taken is not None:
            self.waiting -= 1
            self._clock = max(self._clock, taken[0].tag)
        return taken

    def _read(self, client: Client, step: Step) -> None:
        start = time.perf_counter()
        step()
        seconds = time.perf_counter() - start
        self._read_s += seconds
        client.read_s += seconds
        self._charge(client, seconds)

    def _charge(self, client: Client, seconds: float) -> None:
        if not self.waiting:  # no client has to wait for another, so all are equal again
            self._clock = self._latest = client.tag = self._latest + seconds
            return
        client.tag = max(client.tag, self._clock) + seconds
        self._latest = max(self._latest, client.tag)
        # It advances while any client is served, so that newcomers do not stay ahead of all others.
        self._clock += seconds / (1 + max(1, len(self._reading.steps) + len(self._beginning.steps)))

    def _append(self, line: Line, client: Client, step: Step) -> None:
        client.tag = max(client.tag, self._clock)
        line.append(client, step)
        self.waiting += 1

    def _client(self, name: str) -> Client:
        client = self._clients.get(name)
        if client is None:
            if len(self._clients) >= self._forget_at:
                self._forget()
            client = self._clients[name] = Client(name, self._clock)
        return client

    def _forget(self) -> None:
        """Forget clients that have nothing waiting."""
        waiting = {client for line in self._lines for client in line.steps}
        self._clients = {client.name: client for client in waiting}
        self._forget_at = max(_REMEMBERED, 2 * len(self._clients))


class Timed(Coroutine[Any, Any, T]):
    """A request's coroutine whose steps are charged to a client, who may become known while it runs."""

    __slots__ = ("_seconds", "_served", "_turns", "_work")

    def __init__(self, turns: Turns, served: Served, work: Coroutine[Any, Any, T]) -> None:
        self._turns = turns
        self._served = served
        self._work = work
        self._seconds = 0.0

    def send(self, value: Any) -> Any:
        """Run to the next point where it waits."""
        return self._run(self._work.send, value)

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> Any:
        """Raise an error where it waits."""
        return self._run(self._work.throw, kind, value, traceback)

    def close(self) -> None:
        """End it where it waits."""
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()

    def _run(self, resume: Callable[..., Any], *arguments: Any) -> Any:
        start, ended = time.perf_counter(), True
        try:
            waits_for = resume(*arguments)
            ended = False
            return waits_for
        finally:
            seconds = time.perf_counter() - start
            self._seconds += seconds
            self._turns.charge(self._served.client, seconds)
            if ended:
                self._turns.ended(self._served, self._seconds)
