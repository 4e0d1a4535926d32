"""HTTP/1.1 by hand: requests are encoded once, and only the measured parts of an answer's head are read."""

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_RETRY_AFTER = re.compile(rb"\r\nretry-after: *([^\r]*)", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_OK = 200
_ANSWER_S = 60.0
_RECEIVED_BYTES = 1 << 16
LAST_CHUNK = b"\r\n0\r\n\r\n"
"""The end of a chunked answer; JSON cannot contain these bytes."""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of an answer; `size` is that of the whole answer in bytes, None if it is chunked."""

    status: int
    size: int | None
    retry_after: str | None
    closes: bool


def request_bytes(port: int, route: str, body: bytes) -> bytes:
    """Encode a POST request with a JSON body."""
    return (
        f"POST {route} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def read_head(data: bytes | bytearray) -> Head | None:
    """Read the head of an answer; None until it is complete."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(data[:end])
    status, length, retry_after = _STATUS.match(head), _LENGTH.search(head), _RETRY_AFTER.search(head)
    if status is None or (length is None and _CHUNKED.search(head) is None):
        raise SystemExit(f"The answer has no status or no known length: {head.decode('latin-1')}")
    return Head(
        status=int(status[1]),
        size=end + 4 + int(length[1]) if length else None,
        retry_after=retry_after[1].decode("latin-1") if retry_after else None,
        closes=_CLOSE.search(head) is not None,
    )


class BlockingConnection:
    """A kept-alive connection with one request at a time, from an address of the loopback interface."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection(
            ("127.0.0.1", port), timeout=_ANSWER_S, source_address=(source, 0)
        )
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> tuple[Head, bytes]:
        """Send a request and read the whole answer; returns its head, read and as the first bytes.

        Raises `ConnectionError` if the connection is closed before the end of the answer.
        """
        self._socket.sendall(request)
        start = self._more()
        while (head := read_head(start)) is None:
            start += self._more()
        if head.size is None:
            raise SystemExit("This answer came in chunks: it is too large for this client.")
        left = head.size - len(start)
        while left > 0:
            left -= len(self._more())
        return head, start

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _more(self) -> bytes:
        data = self._socket.recv(_RECEIVED_BYTES)
        if not data:
            raise ConnectionError("the connection was closed")
        return data


class RepeatingConnection:
    """A connection that sends the same bodies to `/encode` again and again, and expects 200 each time."""

    def __init__(self, port: int, bodies: Sequence[bytes]) -> None:
        self._requests = cycle([request_bytes(port, "/encode", body) for body in bodies])
        self._port = port
        self._connection = BlockingConnection(port)

    def post(self) -> bytes:
        """Send the next request and read the whole answer; returns its beginning, with the head.

        A connection that the service closed while it was idle is opened again.
        """
        request = next(self._requests)
        try:
            head, start = self._connection.ask(request)
        except ConnectionError:
            self.close()
            self._connection = BlockingConnection(self._port)
            head, start = self._connection.ask(request)
        if head.status != _OK:
            raise SystemExit(f"/encode answered {head.status}.")
        return start

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
