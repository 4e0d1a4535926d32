"""The routes of Cohere; Jina and Voyage share `/v1/rerank`."""

from collections.abc import Awaitable, Callable

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from service.endpoints import Endpoint
from service.protocols.cohere.embed import CohereEmbedRequest, CohereVectors, embed_v1, embed_v2
from service.protocols.cohere.rerank import CohereRanking, CohereRerankRequest, rerank
from service.protocols.openai.errors import OpenAIError, error_status, render_error

_EMBED = {
    "texts": {
        "summary": "The vectors of texts",
        "value": {
            "texts": ["A man is eating."],
            "input_type": "search_document",
            "embedding_types": ["float"],
        },
    }
}
_RERANK = {
    "documents": {
        "summary": "Documents in the order in which they match a query",
        "value": {"query": "Who eats?", "documents": ["A dog slept.", "A man is eating."], "top_n": 1},
    }
}


def _endpoint(
    path: str,
    handler: Callable[[Request], Awaitable[Response]],
    summary: str,
    request: type[BaseModel],
    response: type[BaseModel],
) -> Endpoint:
    return Endpoint(
        path,
        handler,
        ("POST",),
        summary=summary,
        request=request,
        examples=_EMBED if request is CohereEmbedRequest else _RERANK,
        responses={200: {"model": response}},
        guarded=True,
        render_error=render_error,
        error_document=OpenAIError,
        error_status=error_status,
        protocol="cohere",
    )


_RANKED = "Documents ranked by how well they match a query"

ENDPOINTS = (
    _endpoint("/v1/embed", embed_v1, "Vectors of texts", CohereEmbedRequest, CohereVectors),
    _endpoint("/v2/embed", embed_v2, "Vectors of texts, by type", CohereEmbedRequest, CohereVectors),
    _endpoint("/v1/rerank", rerank, f"{_RANKED} (Jina, Voyage)", CohereRerankRequest, CohereRanking),
    _endpoint("/v2/rerank", rerank, _RANKED, CohereRerankRequest, CohereRanking),
)
