"""The protocol of another server as a value: its name, the form of its errors, and what its routes share."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from service.endpoints import Endpoint, Handler
from service.http.request_body import ParsedRequest, read_request
from service.http.request_schema import RequestSchema
from service.problems import KINDS, Problem
from service.protocols.exchange import Exchange

JSON = "application/json"
Described = dict[str, Any]
"""The type of a response whose fields are described only in the documents of its protocol."""

Answer = Callable[[Exchange, Any], Awaitable[Response]]
"""Answers a request, given what it asks for."""
Read = Callable[[Request, type[Any]], Awaitable[ParsedRequest[Any]]]

ALL_BAD_REQUESTS: Mapping[str, HTTPStatus] = {
    kind: HTTPStatus.BAD_REQUEST
    for kind, (status, _) in KINDS.items()
    if status == HTTPStatus.UNPROCESSABLE_ENTITY or kind == "too-many-inputs"
}
"""The statuses of servers that have no 422: whatever is wrong with a body is a 400, even too many inputs."""

READS = ("malformed-json", "invalid-request", "body-too-large", "request-timeout", "overloaded")
"""The problems of a route that reads a body, besides those of its protocol."""


@dataclass(frozen=True, slots=True)
class Contract:
    """What all routes of a protocol share."""

    protocol: str
    tag: str
    """The group of its routes in the OpenAPI schema."""
    error_document: type[BaseModel]
    write_error: Callable[[Problem, HTTPStatus, str, str], Response]
    """Builds the response for a problem, given its status, and the request's path and id."""
    statuses: Mapping[str, HTTPStatus]
    """Kind of problem -> status, where the protocol differs from `KINDS`."""
    read: Read = read_request
    """Reads a request that a model answers, and checks it."""
    clients: str = ""
    """Whose clients speak it, such as "OpenAI's"; empty for our own protocol."""
    base: str = ""
    """What follows the port in the base URL of these clients."""

    def error_status(self, kind: str) -> HTTPStatus:
        """Return the status of a kind of problem."""
        return self.statuses.get(kind, KINDS[kind][0])

    def render_error(self, problem: Problem, instance: str, request_id: str) -> Response:
        """Build the response for a problem."""
        return self.write_error(problem, self.error_status(problem.kind), instance, request_id)

    @property
    def shared(self) -> dict[str, Any]:
        """The fields that all endpoints of the protocol have."""
        return {
            "protocol": self.protocol,
            "tag": self.tag,
            "clients": self.clients,
            "base": self.base,
            "render_error": self.render_error,
            "error_document": self.error_document,
            "error_status": self.error_status,
        }

    def endpoint(
        self, path: str, handler: Handler, summary: str | None, response: Any, **further: Any
    ) -> Endpoint:
        """Describe a route; `further` are other fields of an endpoint."""
        return Endpoint(
            path,
            handler,
            summary=summary,
            responses={} if response is None else {200: {"model": response}},
            **self.shared,
            **further,
        )

    def answering(
        self,
        path: str,
        answer: Answer,
        summary: str,
        request: type[RequestSchema],
        response: Any,
        examples: Mapping[str, Any] | None = None,
        **further: Any,
    ) -> Endpoint:
        """Describe a route that runs a model; without `examples`, it shows the example of its schema."""
        if examples is None:
            examples = {"request": {"summary": summary, "value": orjson.loads(request.example)}}
        return self.endpoint(
            path,
            self._handler(answer, request),
            summary,
            response,
            methods=("POST",),
            request=request,
            examples=examples,
            guarded=True,
            **further,
        )

    def operation(
        self,
        path: str,
        handler: Handler,
        summary: str | None,
        *problems: str,
        response: Any = Described,
        **further: Any,
    ) -> Endpoint:
        """Describe a route that runs no model; it needs a key if `problems` include "unauthorized"."""
        known = () if summary is None else (200,)
        return self.endpoint(
            path,
            handler,
            summary,
            None if summary is None else response,
            guarded="unauthorized" in problems,
            problems=frozenset(problems),
            statuses=(*known, 405, *sorted({int(self.error_status(kind)) for kind in problems})),
            **further,
        )

    def _handler(self, answer: Answer, schema: type[RequestSchema]) -> Handler:
        """Make the handler that reads a request, checks it, and answers it in time."""

        async def handle(request: Request) -> Response:
            parsed = await self.read(request, schema)
            exchange = Exchange.open(request, parsed)
            return await exchange.in_time(answer(exchange, parsed.body))

        handle.__doc__ = answer.__doc__
        return handle


def elapsed_s(exchange: Exchange) -> float:
    """Return the seconds since a request was read, plus those that it had waited before.

    It needs no event loop: the threads that write long responses call it.
    """
    return time.perf_counter() - exchange.context.permit.until + exchange.seconds


def json_response(found: object) -> Response:
    """Build a response of JSON, from a pydantic model or from anything that orjson can write."""
    if isinstance(found, BaseModel):
        return Response(found.model_dump_json(), media_type=JSON)
    return Response(orjson.dumps(found, option=orjson.OPT_UTC_Z), media_type=JSON)
