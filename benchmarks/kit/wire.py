"""HTTP/1.1 by hand: requests are encoded once, and only the measured parts of an answer's head are read."""

import re
from dataclasses import dataclass

_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_RETRY_AFTER = re.compile(rb"\r\nretry-after: *([^\r]*)", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)


_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
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
        raise SystemExit(f"This is no answer of a known length: {head.decode('latin-1')}")
    return Head(
        status=int(status[1]),
        size=end + 4 + int(length[1]) if length else None,
        retry_after=retry_after[1].decode("latin-1") if retry_after else None,
        closes=_CLOSE.search(head) is not None,
    )
