"""Slow readers: a client that makes progress reading its response is waited for, a stalled one is cut off.

Progress is measured by the bytes the client's side has acknowledged, not by those our kernel accepts: with a
send buffer of a few megabytes it accepts more only when a third is free, which takes a slow reader minutes.
"""

import asyncio
import fcntl
import struct
import termios
from collections.abc import Callable

# How often a connection is checked within its patience.
_CHECKS = 4


class Reader:
    """Tracks how one connection's client reads its responses. Used on the event loop.

    The client is watched from `expect` to `has_read`. If it reads nothing for `patience_s`, `cut_off` is
    called with the reason and must close the connection.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        readers: "Readers",
        *,
        patience_s: float,
        cut_off: Callable[[str], None],
        held_bytes: Callable[[], int],
    ) -> None:
        self.held_bytes = held_bytes
        """How much memory is reserved for the response it is reading."""
        self._transport = transport
        self._readers = readers
        self._patience_s = patience_s
        self._cut_off = cut_off
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._since: float | None = None
        self._progressed = 0.0
        self._left = 0
        self._read = 0

    def begin(self) -> None:
        """Start tracking another response."""
        self._since, self._read = None, 0

    def expect(self) -> None:
        """Start watching: the client has yet to read bytes that were sent."""
        self._stop()
        self._progressed = self._loop.time()
        if self._since is None:
            self._since = self._progressed
        self._left = unacknowledged(self._transport)
        self._timer = self._loop.call_later(self._patience_s / _CHECKS, self._check)
        self._readers.watched.add(self)

    def has_read(self) -> None:
        """Stop watching: the client has read most of what was sent."""
        if self._timer is not None:
            self._note_progress()
            self._stop()

    def forget(self) -> None:
        """Stop watching, and forget the connection: it is closed."""
        self._stop()
        self._cut_off, self.held_bytes = lambda _: None, lambda: 0

    @property
    def overdue(self) -> bool:
        """Whether it has been reading the same response for longer than a request may take."""
        return self._since is not None and self._loop.time() - self._since > self._patience_s

    @property
    def rate(self) -> float:
        """Bytes per second it has read of this response."""
        self._note_progress()
        return self._read / max(self._loop.time() - (self._since or 0.0), 1e-3)

    def cut_off(self, why: str) -> None:
        """Close its connection, even if it is still reading."""
        self._stop()
        self._cut_off(f"{why}; {self._left} bytes were still to be sent")

    def _check(self) -> None:
        self._note_progress()
        if self._loop.time() - self._progressed >= self._patience_s:
            self.cut_off(f"it has read nothing for {self._patience_s:g} s")
        else:
            self._timer = self._loop.call_later(self._patience_s / _CHECKS, self._check)

    def _note_progress(self) -> None:
        left = unacknowledged(self._transport)
        if left < self._left:
            self._read += self._left - left
            self._progressed = self._loop.time()
        self._left = left

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._readers.watched.discard(self)


class Readers:
    """The slow readers of all connections."""

    def __init__(self) -> None:
        self.watched: set[Reader] = set()

    def make_room(self) -> None:
        """Cut off the slowest reader that has held memory for longer than a request may take, if any.

        Called when there is no room for a response: a moment later there is.
        """
        overdue = [reader for reader in self.watched if reader.overdue and reader.held_bytes()]
        if overdue:
            slowest = min(overdue, key=lambda reader: reader.rate)
            slowest.cut_off(
                f"it read {slowest.rate:.0f} bytes/s while there was no memory for other responses"
            )


def unacknowledged(transport: asyncio.Transport) -> int:
    """Count the bytes written but not yet acknowledged by the client: in our buffer and the kernel's."""
    return transport.get_write_buffer_size() + _of_socket(transport, termios.TIOCOUTQ)


def unread(transport: asyncio.Transport) -> int:
    """Count the bytes that have arrived but that we have not read."""
    return _of_socket(transport, termios.FIONREAD)


def _of_socket(transport: asyncio.Transport, question: int) -> int:
    """Ask the kernel for a number of bytes; 0 if it does not know."""
    try:
        answer = fcntl.ioctl(transport.get_extra_info("socket").fileno(), question, b"\0\0\0\0")
    except (OSError, ValueError, AttributeError):  # a closed socket has no file descriptor
        return 0
    return int(struct.unpack("i", answer)[0])
