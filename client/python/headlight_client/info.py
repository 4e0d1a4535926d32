"""What `/info` and `/readyz` say, as a client has it."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import httpx

from headlight_client.errors import HeadlightConnectionError, HeadlightError, HeadlightTimeout, unreadable

_FIRST_S, _LONGEST_S = 0.1, 2.0  # between two questions
_ASKED_S = 5.0  # for one of them
_PASSING = frozenset({408, 429, 500, 502, 503, 504})  # what a service, or a proxy, answers while it starts


@dataclass(frozen=True)
class ServedModel:
    """One served model. Lengths are in tokens."""

    name: str
    family: str
    layers: int
    heads: int
    hidden_size: int
    max_length: int
    pooling: list[str]
    normalize: bool
    sentence_size: int
    """Components of a sentence vector."""
    prompts: dict[str, str]
    default_prompt_name: str | None
    backend: str
    provider: str | None
    device: str
    dtype: str
    """What it computes in; answers are float32 here in any case."""
    kernels: str | None
    attention: bool
    """Whether its attention can be read."""
    max_batch_tokens: int
    max_queue_tokens: int


@dataclass(frozen=True)
class ServiceLimits:
    """What one request may ask for. Calls of this client are split so that each request is within them."""

    max_inputs: int
    max_body_bytes: int
    max_response_bytes: int
    request_timeout_s: float


@dataclass(frozen=True)
class Info:
    """What runs there: the first model is the default. `document` is all that `/info` says."""

    version: str
    models: list[ServedModel]
    limits: ServiceLimits
    document: Mapping[str, Any]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Info":
        """Read an answer of `/info`: what a later version says besides is in `document` alone.

        What an earlier one does not say is None. Raises LookupError, TypeError or AttributeError if it is no
        such answer.
        """
        return cls(
            version=document["version"],
            models=[ServedModel(**_known(ServedModel, model)) for model in document["models"]],
            limits=ServiceLimits(**_known(ServiceLimits, document["limits"])),
            document=document,
        )


def read_info(headers: Mapping[str, str], content: bytes) -> Info:
    """Read an answer of `/info`; raises HeadlightError if it cannot be read."""
    try:
        return Info.of(json.loads(content))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise unreadable(200, headers, error) from error


class Waiting:
    """The time that one waits for a service to be ready, in seconds. Nothing here waits: the callers do."""

    def __init__(self, url: str, seconds: float) -> None:
        self.url = url
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._wait = _FIRST_S

    @property
    def timeout(self) -> httpx.Timeout:
        """How long the next question may take."""
        return httpx.Timeout(min(_ASKED_S, max(_FIRST_S, self._until - time.monotonic())))

    def after(self, error: HeadlightError) -> float:
        """Say how long to wait before the next question; raises where waiting does not help, or is over."""
        passing = isinstance(error, HeadlightConnectionError) or error.status in _PASSING
        if not passing:
            raise error
        wait, self._wait = self._wait, min(2 * self._wait, _LONGEST_S)
        if time.monotonic() + wait > self._until:
            detail = f"{self.url} was not ready within {self._seconds:g} s. Seen last: {error}"
            raise HeadlightTimeout(self.url, detail) from error
        return wait


def _known(kind: type[Any], said: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: said.get(field.name) for field in fields(kind)}
