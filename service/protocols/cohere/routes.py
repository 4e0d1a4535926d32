"""The routes of Cohere; Jina and Voyage share `/v1/rerank`."""

from service.endpoints import Contract
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
from service.protocols.error_object import OpenAIError, error_status, render_error

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
_TOKENIZE = {"text": {"summary": "The tokens of a text", "value": {"text": "A man is eating."}}}
_DETOKENIZE = {"tokens": {"summary": "The text of token ids", "value": {"tokens": [1037, 2158]}}}
_RERANK = {
    "documents": {
        "summary": "Documents in the order in which they match a query",
        "value": {"query": "Who eats?", "documents": ["A dog slept.", "A man is eating."], "top_n": 1},
    }
}


_COHERE = Contract("cohere", render_error, OpenAIError, error_status)
_RANKED = "Documents ranked by how well they match a query"

ENDPOINTS = (
    _COHERE.inference("/v1/embed", embed_v1, "Vectors of texts", CohereEmbedRequest, CohereVectors, _EMBED),
    _COHERE.inference(
        "/v2/embed", embed_v2, "Vectors of texts, by type", CohereEmbedRequest, CohereVectors, _EMBED
    ),
    _COHERE.inference(
        "/v1/rerank", rerank, f"{_RANKED} (Jina, Voyage)", CohereRerankRequest, CohereRanking, _RERANK
    ),
    _COHERE.inference("/v2/rerank", rerank, _RANKED, CohereRerankRequest, CohereRanking, _RERANK),
    _COHERE.inference(
        "/v1/tokenize", tokenize, "Tokens of a text", CohereTokenizeRequest, CohereTokens, _TOKENIZE
    ),
    _COHERE.inference(
        "/v1/detokenize",
        detokenize,
        "Text of token ids",
        CohereDetokenizeRequest,
        CohereText,
        _DETOKENIZE,
    ),
)
