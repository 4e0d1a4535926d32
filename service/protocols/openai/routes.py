"""The routes of OpenAI, which Jina and Voyage share."""

from dataclasses import replace

from service.protocols.contract import ALL_BAD_REQUESTS, Contract
from service.protocols.error_object import OpenAIError, write_error
from service.protocols.openai.contextualized import (
    ContextualizedRequest,
    ContextualizedResponse,
    contextualized,
)
from service.protocols.openai.embeddings import EmbeddingsResponse, embeddings
from service.protocols.openai.fields import EmbeddingsRequest
from service.protocols.openai.models import model, models

_OPENAI = Contract(
    "openai",
    "OpenAI, Jina, Voyage",
    OpenAIError,
    write_error,
    ALL_BAD_REQUESTS,
    clients="OpenAI's, Jina's and Voyage's",
    base="/v1",
)

EMBEDDINGS = _OPENAI.answering(
    "/v1/embeddings",
    embeddings,
    "Vectors of texts, for the clients of OpenAI, Jina and Voyage",
    EmbeddingsRequest,
    EmbeddingsResponse,
)
_ENDPOINTS = (
    EMBEDDINGS,
    _OPENAI.answering(
        "/v1/contextualizedembeddings",
        contextualized,
        "Vectors of the parts of documents, for the clients of Voyage",
        ContextualizedRequest,
        ContextualizedResponse,
    ),
    _OPENAI.operation("/v1/models", models, "The served models", "unauthorized"),
    _OPENAI.operation("/v1/models/{model:path}", model, "A served model", "unauthorized", "model-not-found"),
)
# Also with two slashes: for a base URL that ends in a slash, to which a client adds another one.
ENDPOINTS = (
    *_ENDPOINTS,
    *(
        replace(one, path=one.path.replace("/v1/", "/v1//"), summary=None, route=one.label)
        for one in _ENDPOINTS
    ),
)
