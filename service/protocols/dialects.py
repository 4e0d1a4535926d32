"""Which contract a body is of, on the paths that several protocols have; see `docs/protocols.md`."""

from collections.abc import Container, Sequence, Set
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response

from service.endpoints import Endpoint, ErrorRenderer, Handler
from service.http.negotiation import FORMATS
from service.http.request_body import TooManyValues, read_body
from service.http.request_context import context_of
from service.protocols.native.fields import MAX_IDS
from service.protocols.tei import errors as tei
from service.protocols.tei.predict import predict
from service.protocols.tei.rerank import rerank
from service.protocols.tei.similarity import similarity
from service.protocols.tei.tokens import decode, tokenize


@dataclass(frozen=True, slots=True)
class Dialect:
    """Another contract of a path: that of a body with any of these `fields`, which native requests lack."""

    fields: frozenset[str]
    handler: Handler
    render_error: ErrorRenderer
    protocol: str

    def has(self, fields: Container[str]) -> bool:
        """Whether a body with these fields is of this contract."""
        return any(name in fields for name in self.fields)


def _tei(handler: Handler, *fields: str) -> Dialect:
    return Dialect(frozenset(fields), handler, tei.render_error, "tei")


DIALECTS: dict[str, tuple[Dialect, ...]] = {
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

    async def handle(request: Request) -> Response:
        try:
            body = await read_body(request, formats, MAX_IDS)
        except TooManyValues as problem:
            _choose(dialects, problem.fields, request)
            raise
        fields = body.value if isinstance(body.value, dict) else {}
        dialect = _choose(dialects, fields, request)
        return await (endpoint if dialect is None else dialect).handler(request)

    handle.__name__, handle.__doc__ = endpoint.handler.__name__, endpoint.handler.__doc__
    return replace(endpoint, handler=handle)


def _choose(dialects: Sequence[Dialect], fields: Container[str], request: Request) -> Dialect | None:
    """Return the contract of a body with these fields, in whose form errors are from now on; None: native."""
    for dialect in dialects:
        if dialect.has(fields):
            context_of(request.scope).render_error = dialect.render_error
            return dialect
    return None
