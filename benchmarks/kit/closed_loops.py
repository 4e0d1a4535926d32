"""Clients that send a request again when it is answered, and wait as refusals say, or do not."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.kit.connections import UNANSWERED, Answer, Connection, Loop
from benchmarks.kit.observed import failures
from benchmarks.kit.servers import Headlight

REFUSED = ("429", "503")
_START_S, _DRAIN_S = 300.0, 90.0
_RECONNECT_S, _PAUSE_S = 0.1, 0.2


@dataclass(frozen=True)
class Asked:
    """A request, what became of it, and whether it was sent after a wait that an answer had named."""

    answer: Answer
    is_retry: bool
    done: float
    """When it was answered, in `time.monotonic` seconds."""


class Client:
    """Sends one request at a time, until a time, a number of answers, or more refusals than it may retry."""

    def __init__(
        self,
        loop: Loop,
        port: int,
        request: bytes,
        *,
        until: float,
        source: str = "127.0.0.1",
        rude: bool = False,
        requests: float = float("inf"),
        retries: float = float("inf"),
    ) -> None:
        self._loop, self._port, self._request, self._source = loop, port, request, source
        self._until, self._rude = until, rude
        self._requests, self._most_retries, self._retries = requests, retries, 0
        self._is_retry = False
        self._connection: Connection | None = None
        self.asked: list[Asked] = []
        self.is_over = False
        self._ask()

    def close(self) -> None:
        """End the connection, whatever waits."""
        self.is_over = True
        if self._connection is not None:
            self._connection.close()

    def _ask(self) -> None:
        if self._connection is None or not self._connection.is_open:
            self._connection = Connection(self._loop, self._port, self._finished, source=self._source)
        self._connection.ask(self._request)

    def _finished(self, _: Connection, answer: Answer) -> None:
        self.asked.append(Asked(answer, self._is_retry, time.monotonic()))
        refused, wait_s = answer.outcome in REFUSED, 0.0
        self._is_retry = refused and not self._rude
        if refused:
            self._retries += 1
            wait_s = (answer.retry_s or 0.0) if self._is_retry else 0.0
        else:
            self._retries, self._requests = 0, self._requests - 1
            wait_s = _RECONNECT_S if answer.outcome in UNANSWERED else 0.0
        again = time.monotonic() + wait_s
        if again >= self._until or not self._requests or self._retries > self._most_retries:
            self.close()
        else:
            self._loop.call_at(again, self._ask)


@dataclass
class Seen:
    """What some clients saw together."""

    asked: list[Asked] = field(default_factory=list)
    started: float = 0.0
    unanswered: int = 0
    """Requests without an answer even long after their deadline."""
    replaced: float = 0
    """Workers that were replaced, or services of one process that ended."""

    def of(self, *outcomes: str) -> list[Asked]:
        """Select requests by what became of them."""
        return [asked for asked in self.asked if asked.answer.outcome in outcomes]

    @property
    def outcomes(self) -> str:
        """How often requests had which outcome, as text."""
        counts = Counter(asked.answer.outcome for asked in self.asked)
        shown = [f"{outcome}: {times}" for outcome, times in counts.most_common()]
        return ", ".join([*shown, f"never: {self.unanswered}"] if self.unanswered else shown)

    @property
    def seconds(self) -> float:
        """The time from the first request to the last good answer."""
        return max((asked.done for asked in self.of("200")), default=float("nan")) - self.started

    @property
    def true_waits(self) -> float:
        """The percentage of retries after the named time that were not refused; NaN without any."""
        retries = [asked for asked in self.asked if asked.is_retry]
        refused = sum(asked.answer.outcome in REFUSED for asked in retries)
        return 100 * (1 - refused / len(retries)) if retries else float("nan")


class Restarting:
    """A service that is started anew where it has ended."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._server: Headlight | None = None

    def running(self) -> Headlight:
        """Return the service, ready and without work."""
        if self._server is None or self._server.process.poll() is not None:
            self._server = Headlight(**self._settings)
            self._server.wait_until_ready(_START_S)
        until = time.monotonic() + _DRAIN_S
        while time.monotonic() < until and self._server.process.poll() is None:
            try:
                if not self._server.total("headlight_requests_in_flight"):
                    break
            except httpx.TransportError:
                pass
            time.sleep(_PAUSE_S)
        return self._server

    def end(self) -> None:
        """End it."""
        if self._server is not None:
            self._server.end()


def together(server: Headlight, number: int, patience_s: float, make: Callable[[Loop, int], Client]) -> Seen:
    """Run clients until all are over, or until a time; `make` gets the number of each."""
    loop, before = Loop(), failures(server)
    seen = Seen(started=time.monotonic())
    clients = [make(loop, i) for i in range(number)]
    loop.run(lambda: all(client.is_over for client in clients), seen.started + patience_s)
    seen.unanswered = sum(not client.is_over for client in clients)
    for client in clients:
        client.close()
        seen.asked += client.asked
    loop.close()
    after = failures(server)
    seen.replaced = after.replaced - before.replaced if after.ended is None else 1
    return seen
