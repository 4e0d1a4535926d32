"""How much of a request's head has arrived, and when it is more than anyone needs."""

from service.problems import Problem

MAX_HEAD_BYTES = 64 * 1024
"""Of a request line, its headers, and what may follow a chunked body as headers, together."""
MAX_HEADERS = 256
"""In memory each takes many times its bytes."""

# Around a header: a colon, a space, and the end of the line.
_AROUND_HEADER = 4


class HeadMeter:
    """Measures what the parser reports of a head, and what it swallows without reporting anything."""

    def __init__(self) -> None:
        self.open = False
        """Whether a head has begun that has not ended."""
        self._bytes = 0
        self._headers = 0
        self._reported = False
        self._unreported_bytes = 0

    def begin(self) -> None:
        """Begin with another request."""
        self.open = self._reported = True
        self._bytes = self._headers = 0

    def end(self) -> None:
        """The head is complete; trailers behind a chunked body still count."""
        self.open = False

    def target(self, size: int) -> None:
        """Count a part of the request line; raises ValueError at the limit."""
        self._count(size)

    def header(self, name: bytes, value: bytes) -> None:
        """Count a header, or a trailer; raises ValueError at the limit."""
        self._headers += 1
        self._count(len(name) + len(value) + _AROUND_HEADER)

    def body(self) -> None:
        """Note that the parser has reported a part of a body."""
        self._reported = True

    def feed(self) -> None:
        """Note that the parser is about to be given a piece."""
        self._reported = False

    def endless(self, size: int) -> bool:
        """Whether the parser has swallowed too much, with the last piece of so many bytes.

        It reports headers and extensions of chunks only when they are complete: one that never ends would
        grow in its memory.
        """
        self._unreported_bytes = 0 if self._reported else self._unreported_bytes + size
        return self._unreported_bytes > 2 * MAX_HEAD_BYTES

    def problem(self) -> Problem:
        """Say what is wrong with a head that the parser refused."""
        detail = "This is not an HTTP request."
        if self._bytes > MAX_HEAD_BYTES:
            detail = f"The head of the request has more than {MAX_HEAD_BYTES} bytes."
        elif self._headers > MAX_HEADERS:
            detail = f"The request has more than {MAX_HEADERS} headers."
        return Problem("malformed-request", detail)

    def _count(self, size: int) -> None:
        self._reported = True
        self._bytes += size
        if self._bytes > MAX_HEAD_BYTES or self._headers > MAX_HEADERS:
            raise ValueError("the head is too large")  # the parser makes it an HttpParserError
