"""The keys of text-embeddings-inference in `/info`, besides those of the native contract."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from model.contract import ModelInfo
from service.engine.engine import Engine
from service.settings import Settings


class TeiInfo(BaseModel):
    """The first model and the limits; null while models are loading, as is what headlight does not have."""

    model_config = ConfigDict(protected_namespaces=())

    model_id: str | None = None
    model_sha: str | None = None
    model_dtype: str | None = None
    served_model_name: str | None = None
    model_type: dict[str, dict[str, Any]] | None = None
    max_concurrent_requests: int | None = None
    max_input_length: int | None = None
    max_batch_tokens: int | None = None
    max_batch_requests: int | None = None
    max_client_batch_size: int | None = None
    auto_truncate: bool | None = None
    tokenization_workers: int | None = None
    sha: str | None = None
    docker_label: str | None = None


def describe_first(engines: Mapping[str, Engine], settings: Settings) -> dict[str, Any]:
    """Describe the first of the models, if any are loaded."""
    if not engines:
        return {}
    name, engine = next(iter(engines.items()))
    info = engine.info
    return {
        "model_id": name,
        "model_dtype": info.dtype,
        "served_model_name": name,
        "model_type": _model_type(info),
        # Tokens are limited, not requests: this many fit if each has one text of the maximum length.
        "max_concurrent_requests": engine.max_queue_tokens // info.max_length,
        "max_input_length": info.max_length,
        "max_batch_tokens": engine.max_batch_tokens,
        "max_client_batch_size": settings.max_inputs,
        "auto_truncate": True,
        "tokenization_workers": 1,
    }


def _model_type(info: ModelInfo) -> dict[str, dict[str, Any]]:
    head = info.head
    if head is not None and head.labels:
        kind = "reranker" if head.kind == "classification" and len(head.labels) == 1 else "classifier"
        ids = dict(enumerate(head.labels))
        return {kind: {"id2label": ids, "label2id": {label: i for i, label in ids.items()}}}
    if head is not None and head.kind in ("masked_words", "autoencoder"):
        return {"embedding": {"pooling": "splade"}}
    first = info.pooling[0] if info.pooling else "sentence_embedding"  # a graph that does not say how
    return {"embedding": {"pooling": "last_token" if first == "last" else first}}
