"""The bytes of a response's head."""

from collections.abc import Iterable

from uvicorn.protocols.http.httptools_impl import STATUS_LINE


def response_head(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the status line and the headers, without the empty line at the end."""
    return STATUS_LINE[status] + header_lines(headers)


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a line for each header."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])
