"""The routes of text-embeddings-inference, under `/tei` and, where no native route is there, at the root."""

from dataclasses import replace
from typing import Any

from service.protocols import operations
from service.protocols.contract import Answer, Contract
from service.protocols.lenient import Asked
from service.protocols.tei.embed import (
    EmbedAllRequest,
    EmbedRequest,
    EmbedSparseRequest,
    SparseValue,
    embed_all,
    embed_sparse,
    embed_texts,
)
from service.protocols.tei.errors import STATUSES, TeiError, write_error
from service.protocols.tei.headers import with_headers
from service.protocols.tei.predict import TeiEntity, TeiLabel, TeiPredictRequest, predict
from service.protocols.tei.rerank import TeiRank, TeiRerankRequest, rerank
from service.protocols.tei.root import ModelRequest, answer_root, read_root
from service.protocols.tei.similarity import TeiSimilarityRequest, similarity
from service.protocols.tei.tokens import TeiDecodeRequest, TeiToken, TeiTokenizeRequest, decode, tokenize

PREFIX = "/tei"

_TEI = Contract(
    "tei",
    "text-embeddings-inference",
    TeiError,
    write_error,
    STATUSES,
    clients="text-embeddings-inference's",
    base=PREFIX,
)
_ROOT = replace(_TEI, read=read_root)

_Route = tuple[str, Answer, str, type[Asked], Any]
_OWN: tuple[_Route, ...] = (
    ("/embed", with_headers(embed_texts), "Vectors of texts", EmbedRequest, list[list[float]]),
    ("/embed_all", with_headers(embed_all), "Vectors of tokens", EmbedAllRequest, list[list[list[float]]]),
    (
        "/embed_sparse",
        with_headers(embed_sparse),
        "Weights of words",
        EmbedSparseRequest,
        list[list[SparseValue]],
    ),
)
_LABELS = list[TeiLabel] | list[list[TeiLabel]] | list[TeiEntity] | list[list[TeiEntity]]
_RANKED, _COSINES = "Texts ranked by how well they match a query", "Cosines of a sentence with others"
# Without the prefix these paths are native ones.
_PREFIXED: tuple[_Route, ...] = (
    ("/predict", with_headers(predict), "Labels of texts", TeiPredictRequest, _LABELS),
    ("/rerank", with_headers(rerank), _RANKED, TeiRerankRequest, list[TeiRank]),
    ("/similarity", with_headers(similarity), _COSINES, TeiSimilarityRequest, list[float]),
    ("/tokenize", tokenize, "Tokens of texts", TeiTokenizeRequest, list[list[TeiToken]]),
    ("/decode", decode, "Text of token ids", TeiDecodeRequest, list[str]),
)
_BY_MODEL = _ROOT.answering(
    PREFIX, with_headers(answer_root), "What the model does: embed, label or rank", ModelRequest, Any
)
_OF_MODEL = ("/", "/invocations", PREFIX + "/", PREFIX + "/invocations")
_OPERATIONS = {
    "/health": (PREFIX + "/health", PREFIX + "/ping", PREFIX + "/", "/ping"),
    "/info": (PREFIX + "/info",),
}
"""Operational endpoint -> its paths here, only the first of which is described in the OpenAPI schema."""


ENDPOINTS = (
    *(_TEI.answering(*route) for route in _OWN),
    *(_TEI.answering(PREFIX + path, *rest, route=path) for path, *rest in (*_OWN, *_PREFIXED)),
    _BY_MODEL,
    *(replace(_BY_MODEL, path=path, summary=None, route=PREFIX) for path in _OF_MODEL),
    *(
        replace(
            endpoint,
            path=path,
            summary=endpoint.summary if path == paths[0] else None,
            route=endpoint.path,
            **_TEI.shared,
        )
        for endpoint in operations.ENDPOINTS
        for paths in (_OPERATIONS.get(endpoint.path, ()),)
        for path in paths
    ),
)
