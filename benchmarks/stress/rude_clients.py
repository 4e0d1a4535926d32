"""Rude clients in a process of their own, which `polite.py` starts.

Each connection sends its request again as soon as it is answered, whatever the answer, and is opened anew
where it was closed. Reads commands from standard input, and answers each with a line of JSON:

- `start {"port", "noise", "connections", "source", "key"}`: begin;
- `stop`: end; answers `outcomes` (status, or what came instead -> times), `seconds`, and `cpu_s`, the seconds
  of processor time that these clients took.

    python -m benchmarks.stress.rude_clients
"""

import gc
import json
import select
import sys
import time
from collections import Counter
from typing import Any

from benchmarks.kit.connections import CLOSED, NOT_OPENED, Answer, Connection, Loop
from benchmarks.stress.rude_requests import Noise, noises

_PAUSE_S = 0.02
"""Between two bytes of a request that is sent byte by byte, and before a failed connection is opened anew."""
_LEFT = "left"


def main() -> None:
    """Answer commands until the input ends."""
    gc.disable()  # no garbage has cycles, and its pauses would make the clients less rude
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command == "start":
            say(Clients(**json.loads(argument)).run())


def say(answer: Any) -> None:
    """Answer one line."""
    print(json.dumps(answer), flush=True)


class Clients:
    """The connections of one kind of noise."""

    def __init__(self, port: int, noise: str, connections: int, source: str, key: str | None) -> None:
        self._noise: Noise = noises(key)[noise]
        self._loop, self._port, self._source = Loop(), port, source
        self._first = self._noise.request[: len(self._noise.request) - self._noise.drip]
        self._outcomes: Counter[str] = Counter()
        self._connections: set[Connection] = set()
        self._over = False
        for _ in range(connections):
            self._open()

    def run(self) -> dict[str, Any]:
        """Go on until another line is read from standard input."""
        begun, cpu = time.monotonic(), time.process_time()
        self._loop.watch(sys.stdin.fileno(), select.EPOLLIN, self._stop)
        say("started")
        self._loop.run(lambda: self._over)
        sys.stdin.readline()
        seconds, cpu = time.monotonic() - begun, time.process_time() - cpu
        self._loop.forget(sys.stdin.fileno())
        for connection in list(self._connections):
            connection.close()
        self._loop.close()
        return {"outcomes": self._outcomes, "seconds": seconds, "cpu_s": cpu}

    def _stop(self, _: int) -> None:
        self._over = True

    def _open(self) -> None:
        connection = Connection(self._loop, self._port, self._finished, source=self._source)
        self._connections.add(connection)
        self._ask(connection)

    def _ask(self, connection: Connection) -> None:
        connection.ask(self._first)
        now = connection.asked_at or 0.0
        if self._noise.drip:
            self._loop.call_at(now + _PAUSE_S, lambda: self._drip(connection, now, len(self._first)))
        if self._noise.leave_s is not None:
            self._loop.call_at(now + self._noise.leave_s, lambda: self._leave(connection, now))

    def _drip(self, connection: Connection, asked_at: float, sent: int) -> None:
        """Send the next byte of the end, unless the request that was sent then was answered before that."""
        if connection.asked_at == asked_at and sent < len(self._noise.request):
            connection.more(self._noise.request[sent : sent + 1])
            due = time.monotonic() + _PAUSE_S
            self._loop.call_at(due, lambda: self._drip(connection, asked_at, sent + 1))

    def _leave(self, connection: Connection, asked_at: float) -> None:
        """Close a connection, unless the request that was sent then was answered."""
        if connection.asked_at == asked_at:
            self._outcomes[_LEFT] += 1
            connection.close()
            self._connections.discard(connection)
            self._open()

    def _finished(self, connection: Connection, answer: Answer) -> None:
        self._outcomes[answer.outcome] += 1
        if connection.is_open:
            self._ask(connection)
            return
        self._connections.discard(connection)
        if answer.outcome in (NOT_OPENED, CLOSED):
            self._loop.call_at(time.monotonic() + _PAUSE_S, self._open)
        else:
            self._open()


if __name__ == "__main__":
    main()
