"""The routes of Ollama."""

from typing import Any

from pydantic import BaseModel

from service.endpoints import Endpoint, Handler
from service.protocols.ollama import models
from service.protocols.ollama.embed import (
    OllamaEmbeddingsRequest,
    OllamaEmbedRequest,
    OllamaVector,
    OllamaVectors,
    embed,
    embeddings,
)
from service.protocols.ollama.errors import OllamaError, error_status, render_error

_EMBED = {
    "texts": {
        "summary": "The vectors of texts",
        "value": {"model": "all-MiniLM-L6-v2", "input": ["A man is eating.", "A dog slept."]},
    }
}
_EMBEDDINGS = {
    "text": {
        "summary": "The vector of a text",
        "value": {"model": "all-MiniLM-L6-v2", "prompt": "A man is eating."},
    }
}


def _inference(
    path: str,
    handler: Handler,
    summary: str,
    request: type[BaseModel],
    response: type[BaseModel],
    examples: dict[str, Any],
) -> Endpoint:
    return Endpoint(
        path,
        handler,
        ("POST",),
        summary=summary,
        request=request,
        examples=examples,
        responses={200: {"model": response}},
        guarded=True,
        render_error=render_error,
        error_document=OllamaError,
        error_status=error_status,
        protocol="ollama",
    )


def _operation(
    path: str,
    handler: Handler,
    summary: str | None,
    *problems: str,
    method: str = "GET",
    response: type[BaseModel] | None = None,
) -> Endpoint:
    """Describe a route that answers without running a model, and needs a key."""
    problems = ("unauthorized", *problems)
    known = () if summary is None else (200,)
    return Endpoint(
        path,
        handler,
        (method,),
        summary=summary,
        responses={} if response is None else {200: {"model": response}},
        guarded=True,
        problems=frozenset(problems),
        statuses=(*known, 405, *sorted({int(error_status(kind)) for kind in problems})),
        render_error=render_error,
        error_document=OllamaError,
        error_status=error_status,
        protocol="ollama",
    )


_READS = (
    *("malformed-json", "invalid-request", "model-not-found", "request-timeout", "body-too-large"),
    *("unsupported-media-type", "overloaded", "not-ready"),
)

ENDPOINTS = (
    _inference("/api/embed", embed, "Vectors of texts", OllamaEmbedRequest, OllamaVectors, _EMBED),
    _inference(
        "/api/embeddings",
        embeddings,
        "Vector of a text",
        OllamaEmbeddingsRequest,
        OllamaVector,
        _EMBEDDINGS,
    ),
    _operation("/api/tags", models.tags, "The served models", "not-ready", response=models.OllamaTags),
    _operation(
        "/api/ps", models.processes, "The loaded models", "not-ready", response=models.OllamaProcesses
    ),
    _operation("/api/version", models.version, "The version", response=models.OllamaVersion),
    _operation(
        "/api/show", models.show, "A served model", *_READS, method="POST", response=models.OllamaModelCard
    ),
    _operation(
        "/api/pull",
        models.pull,
        "Is a model served?",
        *_READS,
        method="POST",
        response=models.OllamaStatus,
    ),
    _operation("/api/generate", models.generate, None, *_READS, "unsupported", method="POST"),
    _operation("/api/chat", models.chat, None, *_READS, "unsupported", method="POST"),
)
