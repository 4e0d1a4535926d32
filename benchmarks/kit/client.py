"""A lightweight client: many requests in flight at once, reading only what is measured of an answer."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import cast

from benchmarks.kit.wire import LAST_CHUNK, Head, read_head, request_bytes

_STALE_S = 4.0
NO_ANSWER = 0
"""Replaces the status if the connection was refused or closed, or no answer came in time."""


@dataclass(slots=True, eq=False)
class Asked:
    """A request: when it was due, sent and answered, in seconds of `time.perf_counter`, and the answer."""

    due: float
    sent: float
    finish: Callable[["Asked"], None]
    done: float = 0.0
    status: int = NO_ANSWER
    retry_after: str | None = None

    def end(self, head: Head | None = None) -> None:
        """Take the answer, or that none came."""
        self.done = time.perf_counter()
        if head is not None:
            self.status, self.retry_after = head.status, head.retry_after
        self.finish(self)


class Connection(asyncio.Protocol):
    """A kept-alive connection with one request at a time; it waits in `idle` for the next."""

    def __init__(self, idle: list["Connection"]) -> None:
        self._idle = idle
        self._asked: Asked | None = None
        self._start = bytearray()
        self._head: Head | None = None
        self._read = 0
        self._end = b""
        self._idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, request: bytes, asked: Asked) -> None:
        """Send a request; `asked` is told when its answer was read."""
        self._asked = asked
        asked.sent = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Read on: the head, and of the body only how long it is."""
        self._read += len(data)
        self._end = (self._end + data)[-len(LAST_CHUNK) :]
        if self._head is None:
            self._start += data
            self._head = read_head(self._start)
        if self._head is not None and self._is_whole(self._head):
            self._answered(self._head)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """End; a request that waits gets no answer."""
        if self in self._idle:
            self._idle.remove(self)
        if self._asked is not None:
            self._asked.end()

    @property
    def stale(self) -> bool:
        """Whether the connection was idle for so long that the service may close it at any moment."""
        return time.perf_counter() - self._idle_since > _STALE_S

    def abort(self) -> None:
        """Close the connection, whatever waits."""
        self._transport.abort()

    def _is_whole(self, head: Head) -> bool:
        return self._end == LAST_CHUNK if head.size is None else self._read >= head.size

    def _answered(self, head: Head) -> None:
        asked, self._asked, self._head, self._read = self._asked, None, None, 0
        self._start.clear()
        self._end = b""
        if head.closes:
            self._transport.close()
        else:
            self._idle_since = time.perf_counter()
            self._idle.append(self)
        if asked is not None:
            asked.end(head)


class Client:
    """Sends requests over kept-alive connections, and opens a new one if none is free."""

    def __init__(self, port: int, bodies: Sequence[bytes]) -> None:
        self._port = port
        self._requests = cycle([request_bytes(port, "/encode", body) for body in bodies])
        self._idle: list[Connection] = []
        self._opened: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, due: float, finish: Callable[[Asked], None], body: bytes | None = None) -> Asked:
        """Send a body, or the next of those there are, now.

        `finish` is called when it has its answer, or will have none.
        """
        asked = Asked(due, time.perf_counter(), finish)
        request = next(self._requests) if body is None else request_bytes(self._port, "/encode", body)
        while self._idle and self._idle[-1].stale:
            self._idle.pop().abort()
        if self._idle:
            self._idle.pop().ask(request, asked)
        else:
            task = asyncio.create_task(self._ask_anew(request, asked))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return asked

    async def _ask_anew(self, request: bytes, asked: Asked) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: Connection(self._idle), "127.0.0.1", self._port
            )
        except OSError:
            asked.end()
            return
        self._opened.append(connection)
        connection.ask(request, asked)

    def abort(self) -> None:
        """Close every connection: what still waits gets no answer."""
        for connection in self._opened:
            connection.abort()
