"""The table of endpoints: how each is served, described, guarded, counted and refused."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from service.problems import Problem

ErrorRenderer = Callable[[Problem, str, str], Response]
"""Makes an answer of a problem, the path of the request and its id."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path. With a `request` schema it is one of inference, whose body its handler reads."""

    path: str
    handler: Callable[..., Any]
    methods: tuple[str, ...] = ("GET",)
    tag: str = "operations"
    summary: str | None = None
    """Its title in the OpenAPI schema, in which it stands only with one."""
    request: type[BaseModel] | None = None
    examples: Mapping[str, Any] = field(default_factory=dict)
    responses: Mapping[int | str, dict[str, Any]] = field(default_factory=dict)
    response_class: type[Response] | None = None
    guarded: bool = False
    """Whether it asks for an API key, where there are any."""
    problems: frozenset[str] = frozenset()
    """The kinds of problems that the schema lists for it; for inference, all that can happen there."""
    statuses: tuple[int, ...] = (200, 405)
    """What its series of metrics begin with; for inference, all that can happen there."""
    render_error: ErrorRenderer = Problem.response

    @property
    def inference(self) -> bool:
        """Whether a model computes its answer."""
        return self.request is not None

    @property
    def label(self) -> str:
        """The route that it counts as in metrics and logs: its path up to the first parameter."""
        return self.path.partition("/{")[0] or "/"


class Endpoints:
    """All of them, by their paths."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = tuple(endpoints)
        self._by_path = {endpoint.path: endpoint for endpoint in endpoints}
        self._by_prefix = {
            endpoint.path.partition("{")[0]: endpoint for endpoint in endpoints if "{" in endpoint.path
        }

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._endpoints)

    def find(self, path: str) -> Endpoint | None:
        """Find the endpoint that a request's path belongs to."""
        if (endpoint := self._by_path.get(path)) is not None:
            return endpoint
        return next((each for start, each in self._by_prefix.items() if path.startswith(start)), None)

    @property
    def inference_labels(self) -> tuple[str, ...]:
        """The routes of inference, as metrics and logs call them."""
        return tuple(endpoint.label for endpoint in self if endpoint.inference)

    @property
    def operations_labels(self) -> tuple[str, ...]:
        """All other routes, each once."""
        return tuple(dict.fromkeys(endpoint.label for endpoint in self if not endpoint.inference))
