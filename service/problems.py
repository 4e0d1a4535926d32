"""Every error a client can receive: error -> status table -> problem+json (RFC 9457)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import Any, get_args

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails
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
from service.echo import ECHO, cut

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
    "explanation-too-large": (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The explanation would take too much"),
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

# Pydantic's error types, reworded for JSON: each continues a sentence after the field's name.
_DETAILS = {
    "bool_type": "must be true or false",
    "extra_forbidden": "is not a known field",
    "greater_than_equal": "must be at least {ge}",
    "int_type": "must be an integer",
    "invalid": "{message}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list of at least one item",
    "literal_error": "must be {expected}",
    "missing": "is required",
    "string_type": "must be a string",
    "too_long": "must be a list of at most {max_length} item(s)",
    "too_short": "must be a list of at least one item",
    "tuple_type": "must be a list of at least one item",
}
# A body of schemas that have no `example` of their own.
_EXAMPLE = '{"inputs": "a text"}'
_NOT_OBJECTS = ("model_attributes_type", "model_type")
# Of the pairs of letters of two names, the share that they have in common if one is meant by the other.
_ALIKE = 0.5
_LISTED = 10  # invalid fields
# By how a route begins: whose it is.
_WHOSE = {"tei": "text-embeddings-inference", "v1": "Cohere, Jina and Voyage", "v2": "Cohere"}
# What other servers call a field -> what it may be called here: the first of these that a route has is meant.
_OTHER_NAMES = {
    "text": ("inputs", "texts", "input"),
    "texts": ("inputs", "input", "documents"),
    "documents": ("texts", "inputs", "input"),
    "sentences": ("texts", "inputs", "input"),
    "source_sentence": ("source",),
    "inputs": ("texts", "input", "documents"),
}
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
        """The detail: long input of the client is cut, and large numbers are written as in the members."""
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
    """An input with too many characters for the tokenizer's expressions: its limit is not one of tokens."""


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


def from_validation_error(error: ValidationError, schema: type[BaseModel]) -> Problem:
    """Name the first invalid field and one unknown field, say how to fix them, and list up to ten.

    `schema` is that of the body, which may have a valid one as `example`, and in `elsewhere` for fields of
    others the routes that have them; objects within it have schemas of their own.
    """
    faults = error.errors(include_url=False)
    # A missing field may be present under a wrong name, which is then the actual mistake.
    unknown = next((i for i, details in enumerate(faults) if details["type"] == "extra_forbidden"), 0)
    first = _field_error(faults[0], schema)
    listed = [{"field": first["field"], "detail": first["detail"]}]
    listed += [_brief_error(details, schema) for details in faults[1:_LISTED]]
    sentence = f"{first['field']} {first.pop('detail')}"
    other = _field_error(faults[unknown], schema) if unknown else first
    if unknown:
        sentence += f"; {other['field']} {other['detail']}"
    name = other["field"]
    if other is first and faults[0]["type"] == "missing" and (sent := _sent_instead(faults[0], schema)):
        name = sent
        sentence += f"; {name} {_advice(name, _fields_of(schema))}"
    if route := getattr(schema, "elsewhere", {}).get(name):
        base = route.split("/")[1]
        sentence += f"; clients of {_WHOSE[base]} use {route}: add /{base} to the base URL"
    return Problem("invalid-request", f"{sentence}.", members={**first, "errors": listed})


def _sent_instead(missing: ErrorDetails, schema: type[BaseModel]) -> str:
    """Return the field of another server that an object has for one that it lacks; "" if it has none."""
    given, known = missing["input"], {**getattr(schema, "elsewhere", {}), **_OTHER_NAMES}
    if len(missing["loc"]) > 1 or not isinstance(given, dict):
        return ""
    return next((name for name in known if name in given and name not in schema.model_fields), "")


def _field_name(location: Sequence[str | int]) -> str:
    """Name a field by its path; blank names are quoted."""
    if not location:
        return "body"
    return ".".join(part if part.strip() else f'"{part}"' for part in map(str, location))


def _place(location: Sequence[str | int], given: str | None) -> str:
    """Name a field by its path; `given` is what its schema calls it, which may be an object in the body."""
    if given is None:
        return _field_name(location)
    within = location[:-1] if location and given.partition(".")[0] == str(location[-1]) else location
    return ".".join([*map(str, within), given])


def _fields_at(schema: type[BaseModel], location: Sequence[str | int]) -> Sequence[str]:
    """List the fields of the object in a body that has the field at `location`."""
    for name in location[:-1]:
        field = schema.model_fields.get(str(name))
        kinds = () if field is None else (field.annotation, *get_args(field.annotation))
        schema = next(
            (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), schema
        )
    return _fields_of(schema)


@cache
def _fields_of(schema: type[BaseModel]) -> Sequence[str]:
    return tuple(schema.model_fields)


def _field_error(details: ErrorDetails, schema: type[BaseModel]) -> dict[str, Any]:
    """Describe what is wrong with one field and what is allowed: `field`, `detail` and further members."""
    location, context = details["loc"], details.get("ctx", {})
    member: dict[str, Any] = {"field": cut(_place(location, context.get("field")))}
    if details["type"] == "extra_forbidden":
        fields = _fields_at(schema, location)
        member |= {"detail": _advice(str(location[-1]), fields), "allowed": fields}
    else:
        member["detail"] = _detail(details, schema)
    limit = context.get("ge", context.get("le"))
    if limit is not None:
        member["limit"] = limit
    actual = details["input"]
    if isinstance(actual, bool | int | float) or (isinstance(actual, str) and len(actual) <= ECHO):
        member["actual"] = actual
    return member


def _brief_error(details: ErrorDetails, schema: type[BaseModel]) -> dict[str, str]:
    """Say which field is wrong and how; of an unknown field only that it is unknown."""
    place = cut(_place(details["loc"], details.get("ctx", {}).get("field")))
    return {"field": place, "detail": _detail(details, schema)}


def _detail(details: ErrorDetails, schema: type[BaseModel]) -> str:
    if details["type"] in _NOT_OBJECTS:
        return (
            "must be a JSON object"
            if details["loc"]
            else f"must be a JSON object, such as {getattr(schema, 'example', _EXAMPLE)}"
        )
    template = _DETAILS.get(details["type"])
    return details["msg"] if template is None else template.format_map(details.get("ctx", {}))


def _advice(name: str, fields: Sequence[str]) -> str:
    other_names = _OTHER_NAMES.get(name, ())
    meant = next((field for field in other_names if field in fields), None) or closest(name, fields)
    advice = f"; the fields are {', '.join(fields)}" if meant is None else f" (did you mean {meant}?)"
    return f"is not a known field{advice}"


def closest(name: str, fields: Sequence[str]) -> str | None:
    """Return the field that a misspelt name resembles, None for a name like no other.

    They are compared by the pairs of letters that they share (Dice 1945), which takes a tenth of the time of
    `difflib`: that was longer than all else about a refusal.
    """
    if len(name) > ECHO:
        return None
    pairs = _pairs(name)

    def likeness(field: str) -> float:
        of_field = _pairs_of_field(field)
        return 2 * len(pairs & of_field) / (len(pairs) + len(of_field))

    best = max(fields, key=likeness)
    return best if likeness(best) >= _ALIKE else None


def _pairs(name: str) -> frozenset[str]:
    return frozenset(map(str.__add__, name, name[1:]))


_pairs_of_field = cache(_pairs)
