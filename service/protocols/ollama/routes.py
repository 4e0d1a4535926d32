"""The routes of Ollama."""

from service.protocols.contract import Contract
from service.protocols.ollama import models
from service.protocols.ollama.body import read_inference
from service.protocols.ollama.embed import (
    OllamaEmbeddingsRequest,
    OllamaEmbedRequest,
    OllamaVector,
    OllamaVectors,
    embed_text,
    embed_texts,
)
from service.protocols.ollama.errors import STATUSES, OllamaError, write_error

_OLLAMA = Contract("ollama", OllamaError, write_error, STATUSES, read_inference)
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
    _OLLAMA.inference("/api/embed", embed_texts, "Vectors of texts", OllamaEmbedRequest, OllamaVectors),
    _OLLAMA.inference(
        "/api/embeddings",
        embed_text,
        "Vector of a text",
        OllamaEmbeddingsRequest,
        OllamaVector,
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
