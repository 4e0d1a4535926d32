"""Reads request bodies, of any Content-Type, as the original does; and finds the model that a body names."""

from typing import Any, ClassVar, TypeVar

from pydantic import Field, PrivateAttr
from starlette.requests import Request

from service.engine.engine import Engine
from service.http.negotiation import content_coding, negotiate
from service.http.request_body import ParsedRequest, parse_body, read_request, receive_body
from service.http.request_context import context_of
from service.lifecycle import ServiceState
from service.problems import Problem
from service.protocols.fields import NonEmptyText, WholeNumber
from service.protocols.lenient import Asked, Fields, FieldsT, checked
from service.protocols.ollama.errors import NO_BODY

# The original raises a lower `num_ctx` to this.
_LEAST_TOKENS = 4

LATEST = ":latest"
"""The tag of names without another one; here it means nothing."""


class OllamaOptions(Fields):
    """Options of the model; all others have no effect."""

    num_ctx: WholeNumber | None = Field(None, description="At most this many tokens of a text are read.")


class EmbeddingRequest(Asked):
    """What requests for vectors have in common. Unknown fields are ignored."""

    listed: ClassVar[str] = "texts"

    model: NonEmptyText = Field(description="One of the served models; `:latest` after its name is ignored.")
    options: OllamaOptions | None = Field(None, description="`num_ctx` lowers the limit of tokens of a text.")
    keep_alive: Any = Field(None, description="Has no effect: the served models stay loaded.")

    _asked: str = PrivateAttr("")

    @property
    def most_tokens(self) -> int | None:
        """The limit of tokens that the request sets; None if it sets none."""
        limit = None if self.options is None else self.options.num_ctx
        return None if limit is None else max(limit, _LEAST_TOKENS)

    @property
    def asked(self) -> str:
        """The name of the model as it was asked for."""
        return self._asked

    def find_engine(self, state: ServiceState) -> None:
        """Replace the name with that of the served model; raises the 404."""
        self._asked, self.model = self.model, find_engine(state, self.model).name


RequestT = TypeVar("RequestT", bound=EmbeddingRequest)


async def read_inference(request: Request, schema: type[RequestT]) -> ParsedRequest[RequestT]:
    """Read a request that a model will answer; raises Problem, or ClientDisconnect."""
    content, context = await _receive(request, queued=True), context_of(request.scope)
    context.body = await parse_body(request, content, 0)
    context.form = negotiate(request, schema.formats)
    parsed = await read_request(request, schema)
    parsed.body.find_engine(request.app.state.service)
    return parsed


async def read_operation(request: Request, schema: type[FieldsT]) -> FieldsT:
    """Read a request that needs no model to run; raises as `read_inference` does."""
    content = await _receive(request, queued=False)
    return checked(schema, (await parse_body(request, content, 0)).value)


async def _receive(request: Request, *, queued: bool) -> bytes:
    state: ServiceState = request.app.state.service
    state.check_ready()
    content = await receive_body(request, content_coding(request), queued=queued)
    if not content:
        raise Problem("malformed-json", NO_BODY, members={"field": "body"})
    return content


def find_engine(state: ServiceState, asked: str) -> Engine:
    """Find a model by name, with or without the tag `:latest`; raises the 404, with the name as asked."""
    short = asked.removesuffix(LATEST)
    return state.engine(short if asked not in state.engines and short in state.engines else asked)
