"""The routes of Ollama."""

from service.protocols.contract import READS, Contract
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

_OLLAMA = Contract("ollama", "Ollama", OllamaError, write_error, STATUSES, read_inference, clients="Ollama's")
_READS = ("unauthorized", "not-ready", "unsupported-media-type", "model-not-found", *READS)
_POST = {"methods": ("POST",)}

ENDPOINTS = (
    _OLLAMA.answering("/api/embed", embed_texts, "Vectors of texts", OllamaEmbedRequest, OllamaVectors),
    _OLLAMA.answering(
        "/api/embeddings",
        embed_text,
        "Vector of a text",
        OllamaEmbeddingsRequest,
        OllamaVector,
    ),
    _OLLAMA.operation("/api/tags", models.tags, "The served models", "unauthorized", "not-ready"),
    _OLLAMA.operation("/api/ps", models.processes, "The loaded models", "unauthorized", "not-ready"),
    _OLLAMA.operation("/api/version", models.version, "The version", "unauthorized"),
    _OLLAMA.operation("/api/show", models.show, "A served model", *_READS, **_POST),
    _OLLAMA.operation("/api/pull", models.pull, "Is a model served?", *_READS, **_POST),
    _OLLAMA.operation("/api/generate", models.refuse, None, *_READS, "unsupported", **_POST),
    _OLLAMA.operation("/api/chat", models.refuse, None, *_READS, "unsupported", **_POST),
)
