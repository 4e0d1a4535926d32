"""Reads request bodies, of any Content-Type, as the original does; and the model that one names."""

from typing import TypeVar

from pydantic import Field, PrivateAttr
from starlette.requests import Request

from service.echo import cut
from service.engine.engine import Engine
from service.http.request_body import NO_CODING, ParsedRequest, parse_body, receive_body
from service.http.request_context import context_of
from service.lifecycle import ServiceState
from service.problems import Problem
from service.protocols.fields import NonEmptyText
from service.protocols.lenient import Asked, FieldsT, checked, read_asked
from service.protocols.ollama.errors import NO_BODY

LATEST = ":latest"
"""The tag of a name that has no other; here it means nothing."""


class OllamaRequest(Asked):
    """What requests have in common that a model answers. Unknown fields are ignored."""

    model: NonEmptyText = Field(description="One of the served models; `:latest` after its name is ignored.")
    _asked: str = PrivateAttr("")

    @property
    def asked(self) -> str:
        """The name of the model as it was asked for."""
        return self._asked

    def find_engine(self, state: ServiceState) -> None:
        """Replace the name by that of a model; raises the 404."""
        self._asked, self.model = self.model, find_engine(state, self.model).name


RequestT = TypeVar("RequestT", bound=OllamaRequest)


async def read_inference(request: Request, schema: type[RequestT]) -> ParsedRequest[RequestT]:
    """Read a request that a model will answer; raises Problem, or ClientDisconnect."""
    content = await _receive(request, queued=True)
    context_of(request.scope).body = await parse_body(request, content, 0)
    parsed = await read_asked(request, schema)
    parsed.body.find_engine(request.app.state.service)
    return parsed


async def read_operation(request: Request, schema: type[FieldsT]) -> FieldsT:
    """Read a request that needs no model to run; raises as `read_inference` does."""
    content = await _receive(request, queued=False)
    return checked(schema, (await parse_body(request, content, 0)).value)


async def _receive(request: Request, *, queued: bool) -> bytes:
    state: ServiceState = request.app.state.service
    state.check_ready()
    coding = request.headers.get("content-encoding", "")
    if coding.strip().lower() not in NO_CODING:
        raise Problem(
            "unsupported-media-type",
            f"The Content-Encoding is {cut(coding)}: send the body uncompressed.",
            members={"field": "Content-Encoding", "actual": coding, "allowed": ["identity"]},
        )
    content = await receive_body(request, queued=queued)
    if not content:
        raise Problem("malformed-json", NO_BODY, members={"field": "body"})
    return content


def find_engine(state: ServiceState, asked: str) -> Engine:
    """Find the model of a name, with the tag `:latest` or without; raises the 404 with the name as asked."""
    short = asked.removesuffix(LATEST)
    return state.engine(short if asked not in state.engines and short in state.engines else asked)
