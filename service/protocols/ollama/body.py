"""Reads request bodies, of any Content-Type, as the original does; and the model that one names."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from service.echo import cut
from service.engine.engine import Engine
from service.http.negotiation import negotiate
from service.http.request_body import NO_CODING, ParsedRequest, parse_body, read_request, receive_body
from service.http.request_context import RequestContext
from service.lifecycle import ServiceState
from service.problems import Problem, from_validation_error
from service.protocols.ollama.errors import NO_BODY
from service.replies.style import Format

SchemaT = TypeVar("SchemaT", bound=BaseModel)

_FORMATS: tuple[Format, ...] = ("json",)
LATEST = ":latest"
"""The tag of a name that has no other; here it means nothing."""


async def read_inference(
    request: Request, schema: type[SchemaT], counted: str = ""
) -> ParsedRequest[SchemaT]:
    """Read a request that a model will answer; raises Problem, or ClientDisconnect."""
    content = await _receive(request, queued=True)
    context: RequestContext = request.state.context
    context.body = await parse_body(request, content, 0)
    context.form = negotiate(request, _FORMATS)
    return await read_request(request, schema, counted)


async def read_operation(request: Request, schema: type[SchemaT]) -> SchemaT:
    """Read a request that needs no model to run; raises as `read_inference` does."""
    content = await _receive(request, queued=False)
    parsed = await parse_body(request, content, 0)
    try:
        return schema.model_validate(parsed.value)
    except ValidationError as error:
        raise from_validation_error(error, schema) from None


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
