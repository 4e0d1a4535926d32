"""The state of a request while it is served, shared by the connection, the app and the response."""

import asyncio
import itertools
import math
import os
import re
import uuid
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from service.clients.addresses import client_of, peer_address
from service.endpoints import Endpoint
from service.engine.permit import Permit
from service.http.negotiation import JSON, Form
from service.lifecycle import ServiceState
from service.problems import Problem
from service.telemetry.known_fields import known_field
from service.telemetry.request_record import RequestRecord
from service.telemetry.trace_context import read_traceparent

# The key of the context in the ASGI scope's `state`: for handlers it is `request.state.context`.
_KEY = "context"
_SANE_ID = re.compile(r"[A-Za-z0-9._~:+/=@-]{1,128}")
_NUMBERS = itertools.count(1)
# Digits of X-Request-Timeout-Ms; values above the service's own timeout have no effect.
_MAX_DIGITS = 18


class _Prefix:
    """The prefix of one process's ids; a counter follows it, so that an id costs no system call."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.text = uuid.uuid4().hex[:20]


_PREFIX = _Prefix()
os.register_at_fork(after_in_child=_PREFIX.renew)


@dataclass(frozen=True, slots=True)
class Body:
    """A body parsed from JSON, the lengths of fields that were truncated, and the memory charged for it."""

    value: Any
    lengths: Mapping[str, int]
    transient: int = 0


@dataclass(slots=True, eq=False)
class RequestContext:
    """One request."""

    state: ServiceState
    record: RequestRecord
    permit: Permit
    path: str = ""
    endpoint: Endpoint | None = None
    """None for an unknown path."""
    task: asyncio.Task[object] | None = None
    """The task that computes its response, while running."""
    waited_s: float = 0.0
    """How long it waited for the event loop before it was begun, in seconds."""
    authorization: str | None = None
    """Its header `Authorization`; repeated headers are joined and never match a key."""
    key: str | None = None
    """The name of its API key, once `identify` has found one."""
    unauthorized: Problem | None = None
    """Why `identify` found no valid key."""
    gone: bool = False
    """Whether the client has disconnected, which cancels the task."""
    cut_off: bool = False
    """Whether the connection was closed because the client did not read the response."""
    form: Form = JSON
    """The form of its response, which is chosen before its body is read."""
    body: Body | None = None
    """Its body, if that was read before its schema was known."""
    declared_bytes: int = 0
    """The size of its body, as its head says."""
    timeout_ms: str | None = None
    """Its header `X-Request-Timeout-Ms`."""
    arrived: bool = False
    """Whether its body is known to have arrived as a whole."""

    @property
    def request_id(self) -> str:
        """The client's id, or one we generated."""
        return self.record.request_id

    @property
    def route(self) -> str:
        """Its label in metrics."""
        return self.path if self.endpoint is None else self.endpoint.label

    @property
    def inference(self) -> bool:
        """Whether its endpoint computes with a model."""
        return self.endpoint is not None and self.endpoint.inference

    @property
    def timeout_s(self) -> float:
        """The time that its header allows, in seconds, or infinity without one; raises Problem."""
        given = self.timeout_ms
        if given is None:
            return math.inf
        digits = given.isascii() and given.isdigit() and len(given) <= _MAX_DIGITS
        if not (digits and int(given) > 0):
            raise Problem(
                "invalid-request",
                "The header X-Request-Timeout-Ms must be a whole number of milliseconds, at least 1 and with "
                f"at most {_MAX_DIGITS} digits.",
                members={"field": "X-Request-Timeout-Ms", "actual": given},
            )
        return int(given) / 1000

    def identify(self) -> bool:
        """Find out whose API key it has; returns False if one is required and it has no valid one."""
        keys = self.state.keys
        if keys.required and self.key is None and self.unauthorized is None:
            try:
                self.key = keys.check(self.authorization)
                self.permit.client = f"key:{self.key}"
            except Problem as problem:
                self.unauthorized = problem
        return self.unauthorized is None

    def error(self, problem: Problem) -> Response:
        """Build the error response, in the endpoint's format, and record the error for the log."""
        schema = None if self.endpoint is None else self.endpoint.request
        self.record.problem = problem.kind
        self.record.problem_field = known_field(problem.members.get("field"), schema)
        render = Problem.response if self.endpoint is None else self.endpoint.render_error
        return render(problem, self.path, self.request_id)


def context_of(scope: Mapping[str, Any]) -> RequestContext:
    """Return the context of a request."""
    context: RequestContext = scope["state"][_KEY]
    return context


def open_context(scope: MutableMapping[str, Any], service: ServiceState) -> RequestContext:
    """Create the context of a request from its head: its id, client and trace.

    The connection calls it, since a body may arrive before the app runs; with another server, the app does.
    """
    state = scope.setdefault("state", {})
    if _KEY in state:
        return context_of(scope)
    given, length, timeout, authorization, parents, states = None, None, None, [], [], []
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            given = given or value.decode("latin-1")
        elif name == b"content-length":
            length = value if length is None else length
        elif name == b"x-request-timeout-ms":
            timeout = value.decode("latin-1") if timeout is None else timeout
        elif name == b"authorization":
            authorization.append(value.decode("latin-1"))
        elif name == b"traceparent":
            parents.append(value)
        elif name == b"tracestate":
            states.append(value)
    parent = read_traceparent(parents, states) if parents else None
    record = RequestRecord(request_id(given), peer_address(scope), service.peers.forwarded_for(scope), parent)
    client = client_of(record.forwarded_for or record.peer)
    context = RequestContext(service, record, Permit(client, memory_client=client))
    context.declared_bytes = int(length) if length and length.isdigit() else 0
    context.timeout_ms = timeout
    if authorization:
        context.authorization = ", ".join(authorization)
    state[_KEY] = context
    return context


def request_id(given: str | None) -> str:
    """Keep the client's id if it is a sane token, else generate one."""
    if given is not None and _SANE_ID.fullmatch(given):
        return given
    return f"{_PREFIX.text}{next(_NUMBERS):012x}"
