"""Measures how much of a request's head has arrived, and enforces its limits."""

from service.problems import Problem

MAX_HEAD_BYTES = 64 * 1024
"""The most bytes of the request line, the headers and any trailers together."""
MAX_HEADERS = 256
"""The most headers; limited separately, since a parsed header takes many times its bytes in memory."""

# A colon, a space, and the end of the line.
_HEADER_OVERHEAD = 4


class HeadMeter:
    """Measures what the parser reports of a head, and what it consumes without reporting anything."""

    def __init__(self) -> None:
        self.open = False
        """Whether a head is incomplete."""
        self.reported = False
        """Whether the parser has reported anything from the last piece that it received."""
        self._bytes = 0
        self._headers = 0
        self._unreported_bytes = 0

    def begin(self) -> None:
        """Start measuring another request; once its head is complete, its trailers still count."""
        self.open = self.reported = True
        self._bytes = self._headers = 0

    def target(self, size: int) -> None:
        """Count a part of the request line; raises ValueError at the limit."""
        self.reported = True
        self._bytes += size
        if self._bytes > MAX_HEAD_BYTES:
            raise ValueError("the request line is too long")

    def header(self, name: bytes, value: bytes) -> None:
        """Count a header, or a trailer; raises ValueError at the limit."""
        self._headers += 1
        self.reported = True
        self._bytes += len(name) + len(value) + _HEADER_OVERHEAD
        if self._bytes > MAX_HEAD_BYTES or self._headers > MAX_HEADERS:
            raise ValueError("the head is too large")  # the parser turns it into an HttpParserError

    def endless(self, size: int) -> bool:
        """Whether the parser has consumed too much without reporting; the last piece had `size` bytes.

        It reports headers and chunk extensions only when complete: one that never ends would grow in memory.
        """
        self._unreported_bytes = 0 if self.reported else self._unreported_bytes + size
        return self._unreported_bytes > 2 * MAX_HEAD_BYTES

    def problem(self) -> Problem:
        """Describe what is wrong with a head that the parser rejected."""
        detail = "This is not a valid HTTP request."
        if self._bytes > MAX_HEAD_BYTES:
            detail = f"The head of the request has more than {MAX_HEAD_BYTES} bytes."
        elif self._headers > MAX_HEADERS:
            detail = f"The request has more than {MAX_HEADERS} headers."
        return Problem("malformed-request", detail)
