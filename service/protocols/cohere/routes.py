"""The routes of Cohere; Jina and Voyage share `/v1/rerank`."""

from starlette.requests import Request
from starlette.responses import Response

from service.protocols.cohere.embed import CohereEmbedRequest, CohereVectors, embed_v1, embed_v2
from service.protocols.cohere.rerank import CohereRanking, CohereRerankRequest, rerank
from service.protocols.cohere.tokens import (
    CohereDetokenizeRequest,
    CohereText,
    CohereTokenizeRequest,
    CohereTokens,
    detokenize,
    tokenize,
)
from service.protocols.contract import ALL_BAD_REQUESTS, Contract, json_response
from service.protocols.error_object import OpenAIError, write_error

_COHERE = Contract("cohere", "Cohere", OpenAIError, write_error, ALL_BAD_REQUESTS, clients="Cohere's")
_RANKED = "Documents ranked by how well they match a query"
_ROUTES = (
    ("/v1/embed", embed_v1, "Vectors of texts", CohereEmbedRequest, CohereVectors),
    ("/v2/embed", embed_v2, "Vectors of texts, by type", CohereEmbedRequest, CohereVectors),
    ("/v1/rerank", rerank, f"{_RANKED} (Jina, Voyage)", CohereRerankRequest, CohereRanking),
    ("/v2/rerank", rerank, _RANKED, CohereRerankRequest, CohereRanking),
    ("/v1/tokenize", tokenize, "Tokens of a text", CohereTokenizeRequest, CohereTokens),
    ("/v1/detokenize", detokenize, "Text of token ids", CohereDetokenizeRequest, CohereText),
)


async def check_key(_: Request) -> Response:
    """Say that the key is one of the service's: the request would have been refused otherwise."""
    return json_response({"valid": True})


ENDPOINTS = (
    *(_COHERE.answering(*route) for route in _ROUTES),
    _COHERE.operation(
        "/v1/check-api-key", check_key, "Is the key valid?", "unauthorized", methods=("GET", "POST")
    ),
)
