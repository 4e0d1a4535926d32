"""Which contract a body is of, on the paths that several protocols have; see `docs/protocols.md`."""

from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response

from service.endpoints import Endpoint, ErrorRenderer
from service.http.negotiation import FORMATS
from service.http.request_body import read_body
from service.http.request_context import context_of
from service.protocols.bert import errors as bert
from service.protocols.bert.encode import encode
from service.protocols.native.fields import MAX_IDS
from service.protocols.tei import errors as tei
from service.protocols.tei.predict import predict
from service.protocols.tei.rerank import rerank
from service.protocols.tei.similarity import similarity
from service.protocols.tei.tokens import decode, tokenize

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """Another contract of a path: that of a body with any of these `fields` and without the field `unless`.

    Native requests have none of the `fields`, or need that one.
    """

    fields: frozenset[str]
    handler: Handler
    render_error: ErrorRenderer
    protocol: str
    unless: str | None = None
    most_numbers: int = MAX_IDS
    """How many items its list may have where they are numbers, if that is more than inputs."""


def _tei(handler: Handler, *fields: str) -> Dialect:
    return Dialect(frozenset(fields), handler, tei.render_error, "tei")


DIALECTS: dict[str, tuple[Dialect, ...]] = {
    "/encode": (Dialect(frozenset(("texts",)), encode, bert.render_error, "bert", "inputs", most_numbers=0),),
    "/predict": (_tei(predict, "parameters", "truncation_direction"),),
    "/rerank": (_tei(rerank, "return_text", "truncation_direction"),),
    "/similarity": (_tei(similarity, "inputs"),),
    "/tokenize": (_tei(tokenize, "add_special_tokens"),),
    "/decode": (_tei(decode, "ids"),),
}
"""For each path the contracts besides the native one, which a body without such fields is of."""


def serve_dialects(endpoint: Endpoint, protocols: Set[str]) -> Endpoint:
    """Let an endpoint serve the bodies of these protocols, too."""
    dialects = [dialect for dialect in DIALECTS.get(endpoint.path, ()) if dialect.protocol in protocols]
    if not dialects:
        return endpoint
    formats = getattr(endpoint.request, "formats", tuple(FORMATS))
    most = max(dialect.most_numbers for dialect in dialects)

    async def handle(request: Request) -> Response:
        body = await read_body(request, formats, most)
        if isinstance(body.value, dict):
            for dialect in dialects:
                if not dialect.fields.isdisjoint(body.value) and dialect.unless not in body.value:
                    context_of(request.scope).render_error = dialect.render_error
                    return await dialect.handler(request)
        return await endpoint.handler(request)

    handle.__name__, handle.__doc__ = endpoint.handler.__name__, endpoint.handler.__doc__
    return replace(endpoint, handler=handle)
