"""One hostile exchange: the bytes, how they are sent, and what may come back."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

OK = frozenset((200,))
BAD = frozenset((400,))
INVALID = frozenset((422,))
LARGE = frozenset((413,))
UNTYPED = frozenset((415,))
UNFIT = frozenset((424,))
"""text-embeddings-inference's answer where the model has no such head."""
UNFOUND = frozenset((404,))
BUSY = frozenset((429,))
LATE = frozenset((504,))
SLOW = frozenset((408,))
UNSERVED = frozenset((501, 505))
"""Transfer codings and versions of HTTP that the service does not know."""
REFUSED = frozenset((400, 404, 405, 406, 413, 415, 422))
"""Every refusal of what a client sends; neither 429, nor anything that begins with 5."""


class End(enum.Enum):
    """What the client does when it has sent everything."""

    READ = enum.auto()
    """It reads as many answers as it wants, and goes."""
    READ_ALL = enum.auto()
    """It reads until the service closes the connection."""
    HALF_CLOSE = enum.auto()
    """It closes its own direction, and reads until the service closes the other."""
    RESET = enum.auto()
    """It resets the connection, without a look at the answer."""
    LINGER = enum.auto()
    """It keeps the connection open and reads nothing, until the service gives up."""


@dataclass(frozen=True)
class Attack:
    """What one client does on a connection of its own.

    `parts` are sent one by one, `pause_s` apart. From `least` to `most` answers may come, each with one of
    the statuses `allowed`; a client that is cut off while it still sends may miss the last of them. `head`
    says that answers have no bodies, `slow` that it mostly waits.
    """

    parts: tuple[bytes, ...]
    allowed: frozenset[int]
    least: int = 1
    most: int = 1
    pause_s: float = 0.0
    end: End = End.READ
    head: bool = False
    slow: bool = False


Maker = Callable[[Random], Attack]
Kinds = dict[str, Maker]


def request(
    body: bytes = b"",
    *headers: bytes,
    path: bytes = b"/encode",
    method: bytes = b"POST",
    length: bytes | None = None,
) -> bytes:
    """A request of bytes as they are; `length` is a Content-Length that lies."""
    length = b"%d" % len(body) if length is None else length
    lines = [method + b" " + path + b" HTTP/1.1", b"Host: a", b"Content-Length: " + length, *headers]
    return b"\r\n".join([*lines, b"", b""]) + body


def once(sent: bytes, allowed: frozenset[int], *, end: End = End.READ, least: int = 1) -> Attack:
    """One request in one piece, and one answer."""
    return Attack((sent,), allowed, end=end, least=least)


def route(random: Random) -> bytes:
    """One of the inference routes."""
    return random.choice((b"/encode", b"/attention"))


def word(random: Random, length: int = 8) -> bytes:
    """Letters that are not the same in any two requests."""
    return bytes(random.choices(b"abcdefghijklmnopqrstuvwxyz", k=length))
