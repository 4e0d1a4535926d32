"""Thousands of connections in one thread: raw sockets, epoll and timers, at little cost beside the service.

It imports little, so that a program that only sends starts quickly.
"""

import heapq
import re
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

from benchmarks.kit.wire import LAST_CHUNK, Head, read_head

RESET, CLOSED, NO_ANSWER, NOT_OPENED = "reset", "closed", "no answer", "not opened"
"""What may happen to a request instead of an answer: its connection was reset or closed, or nothing came."""
UNANSWERED = (RESET, CLOSED, NO_ANSWER, NOT_OPENED)

_READ, _WRITE = select.EPOLLIN, select.EPOLLOUT
_RECEIVED_BYTES = 1 << 20
_RETRY_AFTER_MS = re.compile(rb"\r\nretry-after-ms: *(\d+)", re.IGNORECASE)
_MINUTE_S = 60
# Linux: choose the port when connecting, by both addresses, not when binding.
_IP_BIND_ADDRESS_NO_PORT = 24


class Loop:
    """Waits for sockets and timers, and calls what is ready."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[int], object]] = {}
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._number = count()
        self.buffer = memoryview(bytearray(_RECEIVED_BYTES))

    def watch(self, file: int, events: int, ready: Callable[[int], object]) -> None:
        """Call `ready` with the events whenever one of `events` occurs to a file."""
        self._epoll.register(file, events)
        self._ready[file] = ready

    def change(self, file: int, events: int) -> None:
        """Wait for other events from now on."""
        self._epoll.modify(file, events)

    def forget(self, file: int) -> None:
        """Watch a file no longer."""
        del self._ready[file]
        self._epoll.unregister(file)

    def call_at(self, when: float, call: Callable[[], object]) -> None:
        """Call something once, at a time of `time.monotonic`."""
        heapq.heappush(self._timers, (when, next(self._number), call))

    def run(self, is_over: Callable[[], bool], until: float = float("inf")) -> None:
        """Go on until something is over, or until a time of `time.monotonic`."""
        while not is_over() and (now := time.monotonic()) < until:
            due = min(until, self._timers[0][0] if self._timers else now + 1)
            for file, events in self._epoll.poll(max(0.0, due - now)):
                if (ready := self._ready.get(file)) is not None:
                    ready(events)
            while self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2]()

    def close(self) -> None:
        """End it; connections must be closed before."""
        self._epoll.close()


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request: its status as text, or one of `UNANSWERED`, and after how many seconds.

    `retry_s` is the wait that the answer names, from `retry-after-ms` where it has that header.
    """

    outcome: str
    seconds: float
    retry_s: float | None = None


class Connection:
    """A connection with one request at a time, which reads answers and throws their bodies away.

    `finished` is called with the outcome of each request, or if the connection cannot be opened; one that is
    lost while nothing waits is only closed. `opened` is called once it is connected; a request that was given
    before is sent then.
    """

    def __init__(
        self,
        loop: Loop,
        port: int,
        finished: Callable[["Connection", Answer], object],
        *,
        source: str = "127.0.0.1",
        opened: Callable[["Connection"], object] = lambda _: None,
    ) -> None:
        self._loop, self._finished, self._on_open = loop, finished, opened
        self.is_open = False
        self.asked_at: float | None = None
        """When the request that waits was sent, in `time.monotonic` seconds; None if none waits."""
        self._left: memoryview | bytes = b""
        self._forget_answer()
        self._events = _READ | _WRITE
        self._started = time.monotonic()
        self._socket = socket.socket()
        self._socket.setblocking(False)  # noqa: FBT003
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
        self._socket.bind((source, 0))
        self._socket.connect_ex(("127.0.0.1", port))  # an error is reported as an event
        loop.watch(self._socket.fileno(), self._events, self._ready)

    def ask(self, request: bytes) -> None:
        """Send a request, or the beginning of one that `more` goes on with."""
        self.asked_at = time.monotonic()
        self._forget_answer()
        self.more(request)

    def more(self, piece: bytes) -> None:
        """Send more of the request."""
        self._left = memoryview(bytes(self._left) + piece if self._left else piece)
        if self.is_open:
            self._send()

    def close(self) -> None:
        """End the connection; a request that waits is not reported."""
        self.is_open, self.asked_at, self._left = False, None, b""
        if (file := self._socket.fileno()) >= 0:
            self._loop.forget(file)
            self._socket.close()

    def _forget_answer(self) -> None:
        self._start = bytearray()
        self._head: Head | None = None
        self._read = 0
        self._end = b""

    def _ready(self, events: int) -> None:
        if not self.is_open:
            if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._lost(NOT_OPENED)
                return
            with suppress(OSError):  # an event of a closed socket that had the same number
                self._socket.getpeername()
                self.is_open = True
                self._on_open(self)
            if self.is_open:
                self._send()
            return
        if events & _WRITE:
            self._send()
        if events & ~_WRITE:
            self._receive()

    def _send(self) -> None:
        try:
            while self._left:
                self._left = self._left[self._socket.send(self._left) :]
        except BlockingIOError:
            pass
        except OSError:
            self._left = b""  # the answer may have come all the same
        events = _READ | _WRITE if self._left else _READ
        if events != self._events:
            self._events = events
            self._loop.change(self._socket.fileno(), events)

    def _receive(self) -> None:
        try:
            size = self._socket.recv_into(self._loop.buffer)
        except BlockingIOError:
            return
        except OSError:
            self._lost(RESET)
            return
        if not size:
            self._lost(CLOSED)
        else:
            self._take(self._loop.buffer[:size])

    def _take(self, piece: memoryview) -> None:
        self._read += len(piece)
        if self._head is None:
            self._start += piece
            self._head = read_head(self._start)
        self._end = (self._end + bytes(piece[-len(LAST_CHUNK) :]))[-len(LAST_CHUNK) :]
        head = self._head
        if head is None:
            return
        if self._end == LAST_CHUNK if head.size is None else self._read >= head.size:
            if self.asked_at is None:  # such as a 408, before anything was asked
                self.close()
            elif head.closes or self._left:
                self._end_with(str(head.status), head)
            else:
                seconds, self.asked_at = time.monotonic() - self.asked_at, None
                self._finished(self, Answer(str(head.status), seconds, self._retry_s(head)))

    def _retry_s(self, head: Head) -> float | None:
        if head.retry_after is None:
            return None
        milliseconds, seconds = _RETRY_AFTER_MS.search(self._start), float(head.retry_after)
        return int(milliseconds[1]) / 1000 if milliseconds and seconds < _MINUTE_S else seconds

    def _lost(self, outcome: str) -> None:
        if self.asked_at is None and outcome != NOT_OPENED:
            self.close()
        else:
            self._end_with(outcome)

    def _end_with(self, outcome: str, head: Head | None = None) -> None:
        start = self._started if self.asked_at is None else self.asked_at
        answer = Answer(outcome, time.monotonic() - start, self._retry_s(head) if head else None)
        self.close()
        self._finished(self, answer)
