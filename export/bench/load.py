"""Sends requests on kept-alive connections, each as soon as the last is answered, and measures the answers.

One thread without an event loop or a library for HTTP: the generator shares the cores with what it measures.
"""

import re
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle

import numpy as np

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_OK = 200
_RECEIVED_BYTES = 1 << 18
_ANSWER_S = 60.0
_SHOWN = 200


class LoadError(Exception):
    """The service cannot be measured; the message says why."""


@dataclass(frozen=True)
class Measured:
    """The answers to requests of one text each; latencies are those of answers with a 200."""

    texts_per_s: float
    p50_ms: float
    p99_ms: float
    refused: int
    """Answers with another status."""


def measure(
    address: tuple[str, int], requests: Sequence[bytes], connections: int, seconds: float
) -> Measured:
    """Send requests in turn on this many connections for `seconds`, after a fifth of that as a warm-up.

    Raises LoadError if none is answered with a 200, and OSError without a connection.
    """
    turns = cycle(requests)
    latencies_s: list[float] = []
    refused, last = 0, b""
    with ExitStack() as opened:
        selector = opened.enter_context(selectors.DefaultSelector())
        for _ in range(connections):
            connection = opened.enter_context(_Connection(address))
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send(next(turns))
        begin = time.perf_counter() + seconds / 5
        end = begin + seconds
        while time.perf_counter() < end:
            for answered, now in _answered(selector):
                if now >= begin and answered.status == _OK:
                    latencies_s.append(now - answered.sent_at)
                elif now >= begin:
                    refused, last = refused + 1, answered.received
                answered.send(next(turns))
    if not latencies_s:
        raise LoadError(f"the service encoded no text: {last[:_SHOWN].decode(errors='replace')}")
    p50, p99 = 1e3 * np.quantile(latencies_s, [0.5, 0.99])
    return Measured(len(latencies_s) / seconds, float(p50), float(p99), refused)


def _answered(selector: selectors.BaseSelector) -> Iterator[tuple["_Connection", float]]:
    """Wait for bytes; yield each connection whose answer they complete, and the time."""
    ready = selector.select(_ANSWER_S)
    if not ready:
        raise LoadError(f"the service answered nothing within {_ANSWER_S:g} s")
    for key, _ in ready:
        connection: _Connection = key.data
        if connection.receive():
            yield connection, time.perf_counter()


class _Connection:
    """A connection with one request at a time."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=_ANSWER_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(None)  # with a timeout, each call would ask the system twice
        self.received = b""
        self.sent_at = 0.0
        self._size = 0

    def __enter__(self) -> "_Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, request: bytes) -> None:
        """Send the next request."""
        self.received, self._size = b"", 0
        self.sent_at = time.perf_counter()
        self.socket.sendall(request)

    def receive(self) -> bool:
        """Read what has arrived; returns whether the answer is complete."""
        data = self.socket.recv(_RECEIVED_BYTES)
        if not data:
            raise LoadError("the service closed a connection")
        self.received += data
        if not self._size:
            self._size = self._read_size()
        return len(self.received) >= self._size > 0

    @property
    def status(self) -> int:
        """The status of a complete answer."""
        return int(self.received[9:12])

    def _read_size(self) -> int:
        """Return the size of the whole answer; 0 until its head is complete."""
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return 0
        length = _LENGTH.search(self.received, 0, end)
        if length is None:
            raise LoadError("an answer has no Content-Length: is this headlight?")
        return end + 4 + int(length[1])
