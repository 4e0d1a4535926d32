"""Which contract a body is of, on the paths that several protocols have; see `docs/protocols.md`."""

from collections.abc import Container, Sequence, Set
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response

from service.endpoints import Endpoint, ErrorRenderer, Handler
from service.http.json_body import MAX_VALUES
from service.http.negotiation import FORMATS
from service.http.request_body import SPLIT, TooManyValues, read_body
from service.http.request_context import context_of
from service.protocols.bert import errors as bert
from service.protocols.bert.encode import FEWER_TOKENS, MAX_TOKENS, encode
from service.protocols.native.fields import MAX_IDS
from service.protocols.tei import errors as tei
from service.protocols.tei.predict import predict
from service.protocols.tei.rerank import rerank
from service.protocols.tei.similarity import similarity
from service.protocols.tei.tokens import decode, tokenize


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
    most_values: int = MAX_VALUES
    """How many values its body may have, besides a few for each input."""
    fewer_values: str = SPLIT
    """What to do about more."""

    def has(self, fields: Container[str]) -> bool:
        """Whether a body with these fields is of this contract."""
        return any(name in fields for name in self.fields) and self.unless not in fields


def _tei(handler: Handler, *fields: str) -> Dialect:
    return Dialect(frozenset(fields), handler, tei.render_error, "tei")


DIALECTS: dict[str, tuple[Dialect, ...]] = {
    "/encode": (
        Dialect(
            frozenset(("texts",)),
            encode,
            bert.render_error,
            "bert",
            unless="inputs",
            most_numbers=0,
            most_values=MAX_TOKENS,
            fewer_values=FEWER_TOKENS,
        ),
    ),
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
    most_numbers = max(dialect.most_numbers for dialect in dialects)
    most_values = max(dialect.most_values for dialect in dialects)

    async def handle(request: Request) -> Response:
        try:
            body = await read_body(request, formats, most_numbers, most_values)
        except TooManyValues as problem:
            dialect = _choose(dialects, problem.fields, request)
            raise problem if dialect is None else problem.advise(dialect.fewer_values) from None
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
