"""The routes of text-embeddings-inference under `/tei`, and at the root where no native route has a path."""

from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from service.endpoints import Contract, Endpoint, Handler
from service.protocols import operations
from service.protocols.tei.embed import (
    EmbedAllRequest,
    EmbedRequest,
    EmbedSparseRequest,
    SparseValue,
    embed,
    embed_all,
    embed_sparse,
)
from service.protocols.tei.errors import TeiError, error_status, render_error
from service.protocols.tei.examples import EXAMPLES
from service.protocols.tei.predict import TeiEntity, TeiLabel, TeiPredictRequest, predict
from service.protocols.tei.rerank import TeiRank, TeiRerankRequest, rerank
from service.protocols.tei.root import ModelRequest, answer_root
from service.protocols.tei.similarity import TeiSimilarityRequest, similarity
from service.protocols.tei.tokens import TeiDecodeRequest, TeiToken, TeiTokenizeRequest, decode, tokenize

PREFIX = "/tei"


_TEI = Contract("tei", render_error, TeiError, error_status)


def _endpoint(
    path: str,
    handler: Handler,
    summary: str | None,
    request: type[BaseModel],
    response: Any,
    route: str | None = None,
) -> Endpoint:
    examples = EXAMPLES.get(path.removeprefix(PREFIX), {})
    return _TEI.inference(path, handler, summary, request, response, examples, route=route)


_Route = tuple[str, Handler, str, type[BaseModel], Any]
_OWN: tuple[_Route, ...] = (
    ("/embed", embed, "Vectors of texts", EmbedRequest, list[list[float]]),
    ("/embed_all", embed_all, "Vectors of tokens", EmbedAllRequest, list[list[list[float]]]),
    ("/embed_sparse", embed_sparse, "Weights of words", EmbedSparseRequest, list[list[SparseValue]]),
)
_LABELS = list[TeiLabel] | list[list[TeiLabel]] | list[TeiEntity] | list[list[TeiEntity]]
# Without the prefix these paths are native ones.
_PREFIXED: tuple[_Route, ...] = (
    ("/predict", predict, "Labels of texts", TeiPredictRequest, _LABELS),
    ("/rerank", rerank, "Texts ranked by how well they match a query", TeiRerankRequest, list[TeiRank]),
    ("/similarity", similarity, "Cosines of a sentence with others", TeiSimilarityRequest, list[float]),
    ("/tokenize", tokenize, "Tokens of texts", TeiTokenizeRequest, list[list[TeiToken]]),
    ("/decode", decode, "Text of token ids", TeiDecodeRequest, list[str]),
)
_WHAT_THE_MODEL_DOES = "What the model does: embed, label or rank"
_OF_MODEL = ("/", "/invocations", PREFIX + "/", PREFIX + "/invocations")
_OPERATIONS = {
    "/health": (PREFIX + "/health", PREFIX + "/ping", PREFIX + "/", "/ping"),
    "/info": (PREFIX + "/info",),
}
"""The addresses here of operational endpoints; only the first of each is described in the OpenAPI schema."""

ENDPOINTS = (
    *(_endpoint(*own) for own in _OWN),
    *(
        _endpoint(PREFIX + path, handler, summary, request, response, route=path)
        for path, handler, summary, request, response in (*_OWN, *_PREFIXED)
    ),
    _endpoint(PREFIX, answer_root, _WHAT_THE_MODEL_DOES, ModelRequest, Any),
    *(_endpoint(path, answer_root, None, ModelRequest, Any, route=PREFIX) for path in _OF_MODEL),
    *(
        replace(
            endpoint,
            path=path,
            summary=endpoint.summary if path == paths[0] else None,
            route=endpoint.path,
            protocol="tei",
            render_error=render_error,
            error_document=TeiError,
            error_status=error_status,
        )
        for endpoint in operations.ENDPOINTS
        for paths in (_OPERATIONS.get(endpoint.path, ()),)
        for path in paths
    ),
)
