"""The table of endpoints: how each is served, described, guarded, counted and refused."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, NamedTuple

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from service.problems import KINDS, Problem, ProblemDocument

Handler = Callable[[Request], Awaitable[Response]]
"""Answers a request; it raises a Problem or a ModelError to refuse it."""
ErrorRenderer = Callable[[Problem, str, str], Response]
"""Builds the response for a problem, the request's path and its id."""


def status_of(kind: str) -> HTTPStatus:
    """Return the status of a kind of problem."""
    return KINDS[kind][0]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path. With a `request` schema it is an inference endpoint."""

    path: str
    handler: Handler
    methods: tuple[str, ...] = ("GET",)
    other_methods: Handler | None = None
    """Answers requests with other methods, of which some have another refusal than the 405."""
    summary: str | None = None
    """Its title in the OpenAPI schema; endpoints without one are left out of it."""
    request: type[BaseModel] | None = None
    examples: Mapping[str, Any] = field(default_factory=dict)
    responses: Mapping[int | str, dict[str, Any]] = field(default_factory=dict)
    response_class: type[Response] | None = None
    guarded: bool = False
    """Whether it requires an API key, if keys are configured."""
    problems: frozenset[str] = frozenset()
    """The problem types that the schema lists for it; inference endpoints list all that can occur."""
    statuses: tuple[int, ...] = (200, 405)
    """The statuses whose metrics start at 0; for inference endpoints, all that can occur."""
    render_error: ErrorRenderer = Problem.response
    error_document: type[BaseModel] = ProblemDocument
    """What `render_error` writes."""
    error_status: Callable[[str], HTTPStatus] = status_of
    """The status with which it writes a kind of problem."""
    protocol: str = "native"
    """Whose contract it serves."""
    route: str | None = None
    """Its label in metrics and logs, if that is another endpoint's."""
    headers: Sequence[Mapping[str, Any]] = ()
    """The headers of its requests, as parameters of the OpenAPI schema."""
    octets: str | None = None
    """What its bodies and responses are as `application/octet-stream`, besides JSON."""

    @property
    def inference(self) -> bool:
        """Whether a model computes its response."""
        return self.request is not None

    @property
    def tag(self) -> str:
        """Its group in the OpenAPI schema."""
        return "inference" if self.inference else "operations"

    @property
    def documented_path(self) -> str:
        """The path as OpenAPI writes it, without the types of parameters."""
        return self.path.replace(":path}", "}")

    @property
    def label(self) -> str:
        """Its route in metrics and logs: by default the path up to the first parameter."""
        return self.route or self.path.partition("/{")[0] or "/"


@dataclass(frozen=True, slots=True)
class Contract:
    """The protocol of another server: its name and the form of its errors, which all of its routes share."""

    protocol: str
    render_error: ErrorRenderer
    error_document: type[BaseModel]
    error_status: Callable[[str], HTTPStatus]

    def inference(
        self,
        path: str,
        handler: Handler,
        summary: str | None,
        request: type[BaseModel],
        response: Any,
        examples: Mapping[str, Any],
        **further: Any,
    ) -> Endpoint:
        """Describe a route for whose response a model runs; `further` are other fields of an endpoint."""
        return Endpoint(
            path,
            handler,
            ("POST",),
            summary=summary,
            request=request,
            examples=examples,
            responses={200: {"model": response}},
            guarded=True,
            render_error=self.render_error,
            error_document=self.error_document,
            error_status=self.error_status,
            protocol=self.protocol,
            **further,
        )

    def operation(
        self,
        path: str,
        handler: Handler,
        summary: str | None,
        *problems: str,
        methods: tuple[str, ...] = ("GET",),
        response: Any = None,
        **further: Any,
    ) -> Endpoint:
        """Describe a route for which no model runs; it needs a key if it has the problem of a missing one."""
        known = () if summary is None else (200,)
        return Endpoint(
            path,
            handler,
            methods,
            summary=summary,
            responses={} if response is None else {200: {"model": response}},
            guarded="unauthorized" in problems,
            problems=frozenset(problems),
            statuses=(*known, 405, *sorted({int(self.error_status(kind)) for kind in problems})),
            render_error=self.render_error,
            error_document=self.error_document,
            error_status=self.error_status,
            protocol=self.protocol,
            **further,
        )


class _Pattern(NamedTuple):
    """A path with parameters."""

    start: str
    """What stands before the first parameter: like `end`, cheaper to compare than a whole long path."""
    end: str
    """What stands after the last one."""
    whole: re.Pattern[str]
    endpoint: Endpoint

    @classmethod
    def of(cls, endpoint: Endpoint) -> "_Pattern":
        start, end = endpoint.path.partition("{")[0], endpoint.path.rpartition("}")[2]
        return cls(start, end, compile_path(endpoint.path)[0], endpoint)

    def match(self, path: str) -> re.Match[str] | None:
        if not (path.startswith(self.start) and path.endswith(self.end)):
            return None
        return self.whole.match(path)


class Endpoints:
    """All endpoints, by path. Of paths with parameters that match the same request, the first one counts."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = tuple(endpoints)
        self._inference = {endpoint.path: endpoint for endpoint in endpoints if endpoint.inference}
        operations = {endpoint.path: endpoint for endpoint in endpoints if not endpoint.inference}
        self._by_path = self._inference | operations
        self._patterns = tuple(_Pattern.of(endpoint) for endpoint in endpoints if "{" in endpoint.path)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._endpoints)

    def find(self, path: str, method: str) -> Endpoint | None:
        """Find the endpoint of a request; a path may have one for POST and one for other methods."""
        if method == "POST" and (endpoint := self._inference.get(path)) is not None:
            return endpoint
        if (endpoint := self._by_path.get(path)) is not None:
            return endpoint
        matched = self._match(path)
        return None if matched is None else matched[0]

    def parameters(self, path: str) -> dict[str, str]:
        """Return the parameters in a path that `find` finds an endpoint with parameters for."""
        matched = self._match(path)
        return {} if matched is None else matched[1]

    def _match(self, path: str) -> tuple[Endpoint, dict[str, str]] | None:
        for pattern in self._patterns:
            if found := pattern.match(path):
                return pattern.endpoint, found.groupdict()
        return None

    def methods(self, path: str) -> tuple[str, ...]:
        """Return the methods that a path supports."""
        exact = tuple(m for endpoint in self if endpoint.path == path for m in endpoint.methods)
        matched = None if exact else self._match(path)
        return exact if matched is None else matched[0].methods

    @property
    def inference_labels(self) -> tuple[str, ...]:
        """The labels of the inference endpoints, without duplicates."""
        return tuple(dict.fromkeys(endpoint.label for endpoint in self if endpoint.inference))
