"""Responses to requests that are refused on arrival, made beforehand: a refusal must cost next to nothing."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from service.endpoints import Endpoint
from service.problems import Problem, retry_headers

# Stands for the id of the request where an error document contains it.
_ID = "0123456789-the-id-of-the-request"
# The numbers in a document may be as old as this, in seconds.
_MADE_S = 0.1
# These are added for each request.
_OWN = frozenset((b"content-length", b"retry-after", b"retry-after-ms", b"connection"))


@dataclass(frozen=True, slots=True)
class _Made:
    until: float
    problem: Problem
    head: bytes
    parts: tuple[bytes, ...]
    """The body, between occurrences of the id."""


class Refusals:
    """The bytes of refusals, by endpoint and kind of problem."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], _Made] = {}

    def response(
        self,
        endpoint: Endpoint,
        kind: str,
        problem: Callable[[], Problem],
        *,
        request_id: str,
        retry_s: float,
        further: Mapping[bytes, bytes],
    ) -> tuple[int, bytes]:
        """Return the status and the bytes of a response with the headers `further`.

        `problem` is only called where none of this kind was made a moment ago.
        """
        now = time.monotonic()
        made = self._made.get((endpoint.path, kind))
        if made is None or made.until < now:
            made = self._made[endpoint.path, kind] = _make(endpoint, problem(), now)
        identifier = request_id.encode()
        body = identifier.join(made.parts)
        own = [*retry_headers(retry_s), (b"x-request-id", identifier), *further.items()]
        lines = b"".join([b"%b: %b\r\n" % header for header in own])
        return int(made.problem.status), b"%bcontent-length: %d\r\n%b\r\n%b" % (
            made.head,
            len(body),
            lines,
            body,
        )


def _make(endpoint: Endpoint, problem: Problem, now: float) -> _Made:
    response = endpoint.render_error(problem, endpoint.path, _ID)
    status = response.status_code
    head = b"HTTP/1.1 %d %b\r\n" % (status, problem.status.phrase.encode())
    head += b"".join(b"%b: %b\r\n" % one for one in response.raw_headers if one[0] not in _OWN)
    return _Made(now + _MADE_S, problem, head, tuple(bytes(response.body).split(_ID.encode())))
