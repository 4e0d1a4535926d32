"""Parses `/info`, and waits for `/readyz`."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import httpx

from headlight_client.errors import HeadlightConnectionError, HeadlightError, HeadlightTimeout, unreadable

_FIRST_S, _LONGEST_S = 0.1, 2.0  # between two attempts
_ATTEMPT_S = 5.0  # timeout of one attempt
_TEMPORARY = frozenset({408, 429, 500, 502, 503, 504})  # returned by a service, or its proxy, while it starts


@dataclass(frozen=True)
class ServedModel:
    """One served model. Lengths are in tokens."""

    name: str
    family: str
    layers: int
    heads: int
    attention_layers: list[int] | None
    """The layers whose attention it returns, from 0. None from earlier services."""
    hidden_size: int
    max_length: int
    pooling: list[str]
    normalize: bool
    sentence_size: int
    """Components of a sentence vector."""
    prompts: dict[str, str]
    default_prompt_name: str | None
    tasks: list[str]
    """The tasks that it has adapters for."""
    default_task: str | None
    backend: str
    provider: str | None
    device: str
    dtype: str
    """The precision it computes in; this client always returns float32."""
    kernels: str | None
    attention: bool
    """Whether it returns attention maps."""
    token_embeddings: bool | None
    """Whether it returns vectors of tokens. None from earlier services."""
    prediction: Mapping[str, Any] | None
    """What it predicts, besides embeddings: `kind`, `labels` and `activation`."""
    max_batch_tokens: int
    max_queue_tokens: int
    request_timeout_s: float | None
    """The time within which it answers a request. None from earlier services."""
    longest_text_s: float | None
    """The time that a text of `max_length` tokens takes on an idle service. None from earlier services."""


@dataclass(frozen=True)
class ServiceLimits:
    """The limits of one request. This client splits its calls to stay within them."""

    max_inputs: int
    max_body_bytes: int
    max_response_bytes: int
    request_timeout_s: float


@dataclass(frozen=True)
class Info:
    """The running service: the first model is the default. `document` is the whole response of `/info`."""

    version: str
    models: list[ServedModel]
    limits: ServiceLimits
    document: Mapping[str, Any]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Info":
        """Parse a response of `/info`: fields added by later versions are only in `document`.

        Fields missing from earlier versions are None. Raises LookupError, TypeError or AttributeError if the
        document is invalid.
        """
        return cls(
            version=document["version"],
            models=[ServedModel(**_known(ServedModel, model)) for model in document["models"]],
            limits=ServiceLimits(**_known(ServiceLimits, document["limits"])),
            document=document,
        )


def read_info(headers: Mapping[str, str], content: bytes) -> Info:
    """Parse a response of `/info`; raises HeadlightError if it is invalid."""
    try:
        return Info.of(json.loads(content))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise unreadable(200, headers, error) from error


class Waiting:
    """The wait for a service to become ready, in seconds. Nothing here sleeps: the callers do."""

    def __init__(self, url: str, seconds: float) -> None:
        self.url = url
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._wait = _FIRST_S

    @property
    def timeout(self) -> httpx.Timeout:
        """The timeout of the next attempt."""
        return httpx.Timeout(min(_ATTEMPT_S, max(_FIRST_S, self._until - time.monotonic())))

    def after(self, error: HeadlightError) -> float:
        """Return how long to wait before the next attempt; raises if waiting does not help or timed out."""
        temporary = isinstance(error, HeadlightConnectionError) or error.status in _TEMPORARY
        if not temporary:
            raise error
        wait, self._wait = self._wait, min(2 * self._wait, _LONGEST_S)
        if time.monotonic() + wait > self._until:
            detail = f"{self.url} was not ready within {self._seconds:g} s. Last error: {error}"
            raise HeadlightTimeout(self.url, detail) from error
        return wait


def _known(kind: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: document.get(field.name) for field in fields(kind)}
