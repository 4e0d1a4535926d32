"""The routes of Ollama."""

from service.endpoints import Contract
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


_OLLAMA = Contract("ollama", render_error, OllamaError, error_status)
_READS = (
    *(
        "unauthorized",
        "malformed-json",
        "invalid-request",
        "model-not-found",
        "request-timeout",
        "body-too-large",
    ),
    *("unsupported-media-type", "overloaded", "not-ready"),
)

ENDPOINTS = (
    _OLLAMA.inference("/api/embed", embed, "Vectors of texts", OllamaEmbedRequest, OllamaVectors, _EMBED),
    _OLLAMA.inference(
        "/api/embeddings",
        embeddings,
        "Vector of a text",
        OllamaEmbeddingsRequest,
        OllamaVector,
        _EMBEDDINGS,
    ),
    _OLLAMA.operation(
        "/api/tags", models.tags, "The served models", "unauthorized", "not-ready", response=models.OllamaTags
    ),
    _OLLAMA.operation(
        "/api/ps",
        models.processes,
        "The loaded models",
        "unauthorized",
        "not-ready",
        response=models.OllamaProcesses,
    ),
    _OLLAMA.operation(
        "/api/version", models.version, "The version", "unauthorized", response=models.OllamaVersion
    ),
    _OLLAMA.operation(
        "/api/show",
        models.show,
        "A served model",
        *_READS,
        methods=("POST",),
        response=models.OllamaModelCard,
    ),
    _OLLAMA.operation(
        "/api/pull",
        models.pull,
        "Is a model served?",
        *_READS,
        methods=("POST",),
        response=models.OllamaStatus,
    ),
    _OLLAMA.operation("/api/generate", models.generate, None, *_READS, "unsupported", methods=("POST",)),
    _OLLAMA.operation("/api/chat", models.chat, None, *_READS, "unsupported", methods=("POST",)),
)
