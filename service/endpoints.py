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
    """Returns the status that `render_error` writes for a kind of problem."""
    protocol: str = "native"
    """The protocol that it belongs to."""
    tag: str = "operations"
    """Its group in the OpenAPI schema."""
    clients: str = ""
    """Whose clients call it, such as "OpenAI's"; empty for our own protocol."""
    base: str = ""
    """What follows the port in the base URL of these clients."""
    route: str | None = None
    """Its label in metrics and logs, if that is another endpoint's."""
    headers: Sequence[Mapping[str, Any]] = ()
    """The headers of its requests, as parameters of the OpenAPI schema."""
    octets: str | None = None
    """Describes its bodies and responses of `application/octet-stream`; None if it has only JSON."""
    inference: bool = field(init=False)
    """Whether a model computes its response."""
    label: str = field(init=False)
    """Its route in metrics and logs: by default the path up to the first parameter."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "inference", self.request is not None)
        object.__setattr__(self, "label", self.route or self.path.partition("/{")[0] or "/")

    @property
    def documented_path(self) -> str:
        """The path as OpenAPI writes it, without the types of parameters."""
        return self.path.replace(":path}", "}")


class _Pattern(NamedTuple):
    """A path with parameters."""

    start: str
    """What stands before the first parameter. Comparing it, and `end`, is cheaper than matching `whole`."""
    end: str
    """What stands after the last one."""
    whole: re.Pattern[str]
    endpoint: Endpoint

    @classmethod
    def of(cls, endpoint: Endpoint) -> "_Pattern":
        start, end = endpoint.path.partition("{")[0], endpoint.path.rpartition("}")[2]
        # A name may contain anything, also the end of a line.
        whole = re.compile(compile_path(endpoint.path)[0].pattern, re.DOTALL)
        return cls(start, end, whole, endpoint)

    def match(self, path: str) -> re.Match[str] | None:
        if not (path.startswith(self.start) and path.endswith(self.end)):
            return None
        return self.whole.match(path)


class Endpoints:
    """All endpoints, by path; if several paths with parameters match a request, the first one counts."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = tuple(endpoints)
        self._inference = {endpoint.path: endpoint for endpoint in endpoints if endpoint.inference}
        operations = {endpoint.path: endpoint for endpoint in endpoints if not endpoint.inference}
        self._by_path = self._inference | operations
        self._patterns = tuple(_Pattern.of(endpoint) for endpoint in endpoints if "{" in endpoint.path)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._endpoints)

    def find(self, path: str, method: str) -> tuple[Endpoint | None, dict[str, str]]:
        """Find the endpoint of a request, and the parameters in its path; None where there is none.

        A path may have one endpoint for POST and one for other methods.
        """
        if method == "POST" and (endpoint := self._inference.get(path)) is not None:
            return endpoint, {}
        if (endpoint := self._by_path.get(path)) is not None:
            return endpoint, {}
        return self._match(path)

    def _match(self, path: str) -> tuple[Endpoint | None, dict[str, str]]:
        for pattern in self._patterns:
            if found := pattern.match(path):
                return pattern.endpoint, found.groupdict()
        return None, {}

    def methods(self, path: str) -> tuple[str, ...]:
        """Return the methods that a path supports."""
        exact = tuple(m for endpoint in self if endpoint.path == path for m in endpoint.methods)
        matched, _ = self._match(path)
        return exact if exact or matched is None else matched.methods

    @property
    def inference_labels(self) -> tuple[str, ...]:
        """The labels of the inference endpoints, without duplicates."""
        return tuple(dict.fromkeys(endpoint.label for endpoint in self if endpoint.inference))
