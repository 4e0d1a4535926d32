"""Refuses requests on arrival, at next to no cost: before their bodies are read, with prepared bytes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from service.endpoints import Endpoint
from service.engine.admission import Retry
from service.http.connections.response_head import response_head
from service.http.request_context import request_id
from service.lifecycle import ServiceState
from service.problems import Problem
from service.refusals import Refusal, Told

REFUSAL_S = 0.00005
"""How long a refusal occupies the event loop, roughly, in seconds."""
# Placeholder for the request's id in a prepared error document.
_ID = "0123456789-the-id-of-the-request"
# How old the numbers in a prepared document may be, in seconds.
_MADE_S = 0.1
# These headers are added for each request.
_OWN = frozenset((b"content-length", b"retry-after", b"retry-after-ms"))
_JSON = b"application/json"
# Requests with these headers are left to their handlers to refuse: the response depends on the headers.
_SPECIAL = frozenset((b"content-encoding", b"expect", b"origin"))


@dataclass(frozen=True, slots=True)
class _Made:
    """A prepared response, without the headers that differ between requests."""

    until: float
    status: int
    head: bytes
    body: tuple[bytes, ...]
    """The parts of the body between occurrences of the id."""


class Answered:
    """Takes the place of uvicorn's object for a request refused on arrival, whose body is discarded."""

    response_complete, more_body, disconnected, body = True, False, False, b""

    class message_event:  # noqa: N801 - its name in uvicorn
        """Nothing waits for the body."""

        set = staticmethod(lambda: None)


class Refused(NamedTuple):
    """The response to a request that is refused."""

    route: str
    status: int
    head: bytes
    """Without the lines that the connection adds, and the empty line at the end."""
    body: bytes
    told: Told


class Door:
    """Decides which requests are refused on arrival and which are admitted; handlers decide about others."""

    def __init__(self, state: ServiceState) -> None:
        self._state = state
        self._endpoints = {e.path.encode(): e for e in state.endpoints if e.inference and "{" not in e.path}

    def refuse(
        self, url: bytes, headers: Sequence[tuple[bytes, bytes]], client: str, told: Told | None = None
    ) -> Refused | bool:
        """Return the refusal of a request, or whether it is admitted.

        `headers` have lower-case names. A client that was `told` when to come back, and comes earlier, gets
        the same time again: otherwise a client that never waits would keep putting off all others.
        """
        endpoint = self._endpoints.get(url) or self._endpoints.get(url.partition(b"?")[0])
        if endpoint is None or not self._state.may_refuse:
            return endpoint is not None
        size, given = 0, None
        for name, value in headers:
            if name == b"content-length":
                size = int(value) if value.isdigit() else 0
            elif name == b"x-request-id":
                given = value.decode("latin-1")
            elif name in _SPECIAL or (name == b"content-type" and value.partition(b";")[0] != _JSON):
                return False
        if size > self._state.settings.max_body_bytes:
            return False
        now = time.monotonic()
        refusal = self._state.refusal(client, size, returned=told is not None and told.covers(size, now))
        if refusal is None:
            return True
        left = told and told.left(now)
        if told is not None and left is not None:
            told = told.again(now)
        else:
            left = refusal.retry()
            told = Told(client, now, left, size)
        return _write(endpoint, refusal, told, left, now, request_id(given).encode())


def _write(
    endpoint: Endpoint, refusal: Refusal, told: Told, retry: Retry, now: float, identifier: bytes
) -> Refused:
    made = refusal.made.get(endpoint.path)
    if made is None or made.until < now:
        made = refusal.made[endpoint.path] = _make(endpoint, refusal.problem(retry))
    body = identifier.join(made.body)
    head = b"%bcontent-length: %d\r\nretry-after: %d\r\nretry-after-ms: %d\r\nx-request-id: %b\r\n" % (
        made.head,
        len(body),
        retry.whole,
        retry.milliseconds,
        identifier,
    )
    return Refused(endpoint.label, made.status, head, body, told)


def _make(endpoint: Endpoint, problem: Problem) -> _Made:
    response = endpoint.render_error(problem, endpoint.path, _ID)
    head = response_head(response.status_code, [h for h in response.raw_headers if h[0] not in _OWN])
    body = tuple(bytes(response.body).split(_ID.encode()))
    return _Made(time.monotonic() + _MADE_S, response.status_code, head, body)
