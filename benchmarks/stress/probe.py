"""Asks `/livez` on new connections, several times a second, as a kubelet does; `bursts.py` starts it.

A probe is due whether or not those before it were answered, and waits far longer than a kubelet would, so
that its true latency is seen. Reads commands from standard input and answers each with a line of JSON:

- `start PORT`: begin;
- `stop`: end once every probe is answered; answers the seconds of each, from connecting until the answer was
  read, and the number of probes that were not answered with 200.

    python -m benchmarks.stress.probe
"""

import json
import select
import sys
import time

from benchmarks.kit.connections import Answer, Connection, Loop

_EVERY_S = 0.2
_PATIENCE_S = 60.0
_REQUEST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def main() -> None:
    """Answer commands until the input ends."""
    for line in sys.stdin:
        command, _, port = line.strip().partition(" ")
        if command == "start":
            say("started")
            say(Probing(int(port)).run())


def say(answer: object) -> None:
    """Answer one line."""
    print(json.dumps(answer), flush=True)


class Probing:
    """Probes one service until another line is read from standard input."""

    def __init__(self, port: int) -> None:
        self._loop, self._port = Loop(), port
        self._waiting: dict[Connection, float] = {}
        self._seconds: list[float] = []
        self._failed = 0

    def run(self) -> dict[str, object]:
        """Probe until told to stop, and wait for the last answers."""
        self._loop.watch(sys.stdin.fileno(), select.EPOLLIN, lambda _: None)
        due = time.monotonic()
        while not select.select([sys.stdin], [], [], 0)[0]:
            self._begin()
            due += _EVERY_S
            self._loop.run(lambda: bool(select.select([sys.stdin], [], [], 0)[0]), due)
        sys.stdin.readline()
        self._loop.forget(sys.stdin.fileno())
        self._loop.run(lambda: not self._waiting, time.monotonic() + _PATIENCE_S)
        for connection, begun in self._waiting.items():
            connection.close()
            self._seconds.append(time.monotonic() - begun)
        self._loop.close()
        return {"seconds": self._seconds, "failed": self._failed + len(self._waiting)}

    def _begin(self) -> None:
        connection = Connection(self._loop, self._port, self._finished)
        self._waiting[connection] = time.monotonic()
        connection.ask(_REQUEST)

    def _finished(self, connection: Connection, answer: Answer) -> None:
        self._seconds.append(time.monotonic() - self._waiting.pop(connection))
        self._failed += answer.outcome != "200"


if __name__ == "__main__":
    main()
