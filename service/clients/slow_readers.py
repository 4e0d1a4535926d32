"""Clients that take long to read their answers: who makes progress is waited for, who stands still is not.

What counts is what the client's side has acknowledged, not what the kernel takes from us: of a buffer of some
megabytes it takes more only when a third of it is free, which a slow reader needs minutes for.
"""

import asyncio
import fcntl
import struct
import termios
from collections.abc import Callable

# So many times within its patience a connection is looked at.
_LOOKS = 4


class Reader:
    """How the client of one connection takes what is sent to it. Used on the event loop.

    It is watched from `expect` to `has_read`. When it has taken nothing for `patience_s`, `cut_off` is called
    with a sentence that says so, and has to end the connection.
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
        """How much of the memory for answers is held for what it reads."""
        self._transport = transport
        self._readers = readers
        self._patience_s = patience_s
        self._cut_off = cut_off
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._since: float | None = None
        self._moved = 0.0
        self._left = 0
        self._taken = 0

    def begin(self) -> None:
        """Begin another answer."""
        self._since, self._taken = None, 0

    def expect(self) -> None:
        """Watch from now on: something is sent that the client has yet to take."""
        self._stop()
        self._moved = self._loop.time()
        if self._since is None:
            self._since = self._moved
        self._left = unacknowledged(self._transport)
        self._timer = self._loop.call_later(self._patience_s / _LOOKS, self._look)
        self._readers.watched.add(self)

    def has_read(self) -> None:
        """Watch no longer: little is left of what was sent."""
        if self._timer is not None:
            self._note_progress()
            self._stop()

    def forget(self) -> None:
        """Watch no longer: the connection has ended."""
        self._stop()

    @property
    def overdue(self) -> bool:
        """Whether it has been at the same answer for longer than a request may take."""
        return self._since is not None and self._loop.time() - self._since > self._patience_s

    @property
    def rate(self) -> float:
        """Bytes per second that it took of this answer."""
        self._note_progress()
        return self._taken / max(self._loop.time() - (self._since or 0.0), 1e-3)

    def cut_off(self, why: str) -> None:
        """Let it go, though it reads."""
        self._stop()
        self._cut_off(f"{why}, and {self._left} bytes are left")

    def _look(self) -> None:
        self._note_progress()
        if self._loop.time() - self._moved >= self._patience_s:
            self.cut_off(f"it has taken nothing for {self._patience_s:g} s")
        else:
            self._timer = self._loop.call_later(self._patience_s / _LOOKS, self._look)

    def _note_progress(self) -> None:
        left = unacknowledged(self._transport)
        if left < self._left:
            self._taken += self._left - left
            self._moved = self._loop.time()
        self._left = left

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._readers.watched.discard(self)


class Readers:
    """The readers that are behind."""

    def __init__(self) -> None:
        self.watched: set[Reader] = set()

    def make_room(self) -> None:
        """Cut off the slowest of those that hold memory for longer than a request may take, if there is one.

        Called when an answer finds no room: there is some a moment later.
        """
        overdue = [reader for reader in self.watched if reader.overdue and reader.held_bytes()]
        if overdue:
            slowest = min(overdue, key=lambda reader: reader.rate)
            slowest.cut_off(f"it took {slowest.rate:.0f} bytes/s while other answers had no room")


def unacknowledged(transport: asyncio.Transport) -> int:
    """Count the bytes that were sent and that the client's side has not got: ours and the kernel's."""
    return transport.get_write_buffer_size() + _of_socket(transport, termios.TIOCOUTQ)


def unread(transport: asyncio.Transport) -> int:
    """Count the bytes that have come and that we have not read."""
    return _of_socket(transport, termios.FIONREAD)


def _of_socket(transport: asyncio.Transport, question: int) -> int:
    """Ask the kernel; 0 where it does not know."""
    try:
        answer = fcntl.ioctl(transport.get_extra_info("socket").fileno(), question, b"\0\0\0\0")
    except (OSError, ValueError, AttributeError):  # a socket that is closed has no number
        return 0
    return int(struct.unpack("i", answer)[0])
