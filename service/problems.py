"""Every error a client can receive: error -> status table -> problem+json (RFC 9457)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from model.errors import (
    InferenceError,
    InputTooLong,
    InputTooSlow,
    ModelError,
    NoTokens,
    OutOfRange,
    Unsupported,
)
from service.echo import cut

# type -> (status, title). The type's full form is urn:headlight:<type>.
KINDS: dict[str, tuple[HTTPStatus, str]] = {
    "malformed-json": (HTTPStatus.BAD_REQUEST, "The body is not valid JSON"),
    "malformed-request": (HTTPStatus.BAD_REQUEST, "The request is not valid HTTP"),
    "unauthorized": (HTTPStatus.UNAUTHORIZED, "An API key is required"),
    "not-found": (HTTPStatus.NOT_FOUND, "There is no such route"),
    "model-not-found": (HTTPStatus.NOT_FOUND, "There is no such model"),
    "method-not-allowed": (HTTPStatus.METHOD_NOT_ALLOWED, "The route does not support this method"),
    "not-acceptable": (HTTPStatus.NOT_ACCEPTABLE, "No accepted format is available"),
    "request-timeout": (HTTPStatus.REQUEST_TIMEOUT, "The request did not arrive in time"),
    "body-too-large": (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too large"),
    "too-many-inputs": (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "There are too many inputs"),
    "explanation-too-large": (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The explanation needs too many runs"),
    "response-too-large": (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The response would be too large"),
    "unsupported-media-type": (HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The body's format is not supported"),
    "invalid-request": (HTTPStatus.UNPROCESSABLE_ENTITY, "The request is not valid"),
    "input-too-long": (HTTPStatus.UNPROCESSABLE_ENTITY, "An input is too long"),
    "deadline-too-short": (HTTPStatus.UNPROCESSABLE_ENTITY, "The request takes longer than its deadline"),
    "unsupported": (HTTPStatus.UNPROCESSABLE_ENTITY, "The model does not support this"),
    "overloaded": (HTTPStatus.TOO_MANY_REQUESTS, "The service is overloaded"),
    "http-version-not-supported": (HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP version not supported"),
    "transfer-coding-not-implemented": (HTTPStatus.NOT_IMPLEMENTED, "Transfer coding not supported"),
    "inference-failed": (HTTPStatus.INTERNAL_SERVER_ERROR, "The computation failed"),
    "internal-error": (HTTPStatus.INTERNAL_SERVER_ERROR, "The service failed"),
    "not-ready": (HTTPStatus.SERVICE_UNAVAILABLE, "The service is not ready"),
    "deadline-exceeded": (HTTPStatus.GATEWAY_TIMEOUT, "The response took too long"),
}

NOT_OF_INFERENCE = frozenset(("http-version-not-supported", "transfer-coding-not-implemented"))
"""Kinds that inference routes never return: for requests that match no route."""

MEDIA_TYPE = "application/problem+json"
INTERNAL_ERROR = "An internal error occurred; the service's log has the details."

# A longer detail is shortened to its first and last characters: it may echo long input.
_SENTENCE, _END = 500, 90


@dataclass
class Problem(Exception):
    """An error response: `detail` is a sentence that says what to change.

    `members` are further fields: `field`, `limit`, `actual`, `allowed`.
    """

    kind: str
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)
    members: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> HTTPStatus:
        """The HTTP status of this kind of problem."""
        return KINDS[self.kind][0]

    @property
    def sentence(self) -> str:
        """The detail, with long input of the client cut, and large numbers written as in the members."""
        detail = self.detail
        for value in self.members.values():
            written = writable(value)
            if written is not value:
                detail = detail.replace(str(value), str(written))
        if len(detail) > _SENTENCE + _END:
            detail = f"{detail[:_SENTENCE]}… {detail[-_END:]}"
        return detail

    def document(self, *, instance: str, request_id: str) -> bytes:
        """Write the problem document."""
        status, title = KINDS[self.kind]
        return orjson.dumps(
            {
                "type": f"urn:headlight:{self.kind}",
                "title": title,
                "status": int(status),
                "detail": self.sentence,
                "instance": cut(instance),
                "request_id": request_id,
                **{name: writable(value) for name, value in self.members.items()},
            }
        )

    def response(self, instance: str, request_id: str) -> Response:
        """Build the HTTP response."""
        body = self.document(instance=instance, request_id=request_id)
        return error_response(body, self.status, self.headers, MEDIA_TYPE)


def writable(value: object) -> object:
    """Cut strings, and write integers beyond 64 bits (sent as 1e30) as floats, since orjson cannot."""
    if isinstance(value, str):
        return cut(value)
    return float(value) if isinstance(value, int) and abs(value) >= 2**63 else value


def error_response(
    body: bytes, status: HTTPStatus, headers: Mapping[str, str], media_type: str = "application/json"
) -> Response:
    """Build the response of an error, which browsers never take for a page, whatever it echoes."""
    return Response(body, status, {**headers, "X-Content-Type-Options": "nosniff"}, media_type)


class ProblemDocument(BaseModel):
    """An error (RFC 9457). Further fields may be: `field`, `limit`, `actual`, `allowed`, `errors`."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    instance: str
    request_id: str


class SlowInput(Problem):
    """An input with too many characters for the tokenizer's expressions; its limit is not in tokens."""


def shut_down_too_soon() -> Problem:
    """Make the problem for a request that was still running when the drain timed out."""
    return Problem(
        "not-ready",
        "The service is shutting down and could not finish this request: send it to another instance.",
        headers={"Retry-After": "1", "Connection": "close"},
    )


def changed_too_much() -> Problem:
    """Make the problem for a run that interventions made NaN or infinite."""
    return Problem(
        "invalid-request",
        "With these interventions the model produced NaN or infinity: choose a smaller scale or vector.",
        members={"field": "interventions"},
    )


def from_model_error(error: ModelError) -> Problem:
    """Map the error tree of `model/errors.py` to problems."""
    match error:
        case InputTooLong() | InputTooSlow():
            members = {"field": error.field, "limit": error.limit, "actual": error.actual}
            made = SlowInput if isinstance(error, InputTooSlow) else Problem
            return made("input-too-long", str(error), members=members)
        case OutOfRange():
            members = {"field": error.field, "actual": error.actual, "allowed": error.allowed}
            return Problem("invalid-request", str(error), members=members)
        case NoTokens():
            return Problem("invalid-request", str(error), members={"field": error.field})
        case Unsupported():
            return Problem("unsupported", str(error), members={"field": error.field})
        case InferenceError():
            return Problem("inference-failed", str(error))
        case _:
            return Problem("internal-error", INTERNAL_ERROR)
