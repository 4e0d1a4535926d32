"""The routes of OpenAI, which Jina and Voyage share."""

from functools import partial

from service.endpoints import Endpoint
from service.protocols.error_object import OpenAIError, error_status, render_error
from service.protocols.openai.contextualized import (
    ContextualizedRequest,
    ContextualizedResponse,
    contextualized,
)
from service.protocols.openai.embeddings import EmbeddingsResponse, embeddings
from service.protocols.openai.fields import EmbeddingsRequest
from service.protocols.openai.models import ModelList, OneModel, model, models

_EXAMPLES = {
    "texts": {"summary": "The vectors of texts", "value": {"input": ["A man is eating.", "A dog slept."]}},
    "bytes": {
        "summary": "The first components, as bytes",
        "value": {"input": "A man is eating.", "dimensions": 64, "encoding_format": "base64"},
    },
}

_PARTS = {
    "parts": {
        "summary": "The vectors of the parts of a document",
        "value": {"inputs": [["A man is eating.", " He is hungry."]], "input_type": "document"},
    }
}

_endpoint = partial(
    Endpoint,
    guarded=True,
    render_error=render_error,
    error_document=OpenAIError,
    error_status=error_status,
    protocol="openai",
)

EMBEDDINGS = _endpoint(
    "/v1/embeddings",
    embeddings,
    ("POST",),
    summary="Vectors of texts, for the clients of OpenAI, Jina and Voyage",
    request=EmbeddingsRequest,
    examples=_EXAMPLES,
    responses={200: {"model": EmbeddingsResponse}},
)
ENDPOINTS = (
    EMBEDDINGS,
    _endpoint(
        "/v1/contextualizedembeddings",
        contextualized,
        ("POST",),
        summary="Vectors of the parts of documents, for the clients of Voyage",
        request=ContextualizedRequest,
        examples=_PARTS,
        responses={200: {"model": ContextualizedResponse}},
    ),
    _endpoint(
        "/v1/models",
        models,
        summary="The served models",
        responses={200: {"model": ModelList}},
        problems=frozenset({"unauthorized"}),
        statuses=(200, 401, 405),
    ),
    _endpoint(
        "/v1/models/{model:path}",
        model,
        summary="A served model",
        responses={200: {"model": OneModel}},
        problems=frozenset({"unauthorized", "model-not-found"}),
        statuses=(200, 401, 404, 405),
    ),
)
