"""From the bytes of a request to a checked body: each refusal in the order that the contract gives.

503 not ready, 415 content type, 406 accept, 413 body, 429 where the body's size tells, 400 not JSON, 422 not
valid.
"""

import asyncio
from dataclasses import dataclass
from typing import Generic, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from werkzeug.http import parse_options_header

from service.engine.permit import Permit
from service.engine.queueing import OverloadedError
from service.http.json_body import MAX_INDICES, MOST_VALUES, TooManyValuesError, parse
from service.http.negotiation import choose_format, read_array_type
from service.http.request_context import context_of
from service.lifecycle import ServiceState
from service.memory_limits import PARSED, SMALL_BYTES
from service.problems import Problem, from_validation_error
from service.serialization.items import ArrayType, Format
from service.settings import Settings

RequestT = TypeVar("RequestT", bound=BaseModel)

HOPELESS = 8
"""So many times its limit, a body is not read to its end for the sake of an answer."""
# More than there are; a body with more is told so at once, not field by field.
_MAX_FIELDS = 64
# A pair and its two texts.
_VALUES_PER_INPUT = 3
# Of a Content-Type: there is one parameter that means anything.
_MOST_OF_A_TYPE = 1000
# Of a number of milliseconds: what is longer than the service's own limit is taken for that.
_MOST_DIGITS = 18
_UTF_8 = ("utf-8", "utf8", "us-ascii")


@dataclass(frozen=True, slots=True)
class ParsedRequest(Generic[RequestT]):
    """A request that is valid in itself, and how to answer it."""

    body: RequestT
    format: Format
    dtype: ArrayType
    count: int
    """Of the inputs that were sent; `body` has no more of them than a request may have."""


async def read_request(request: Request, schema: type[RequestT]) -> ParsedRequest[RequestT]:
    """Read and check a request.

    Raises Problem, or ClientDisconnect when it ends too early.
    """
    state: ServiceState = request.app.state.service
    state.check_ready()
    _check_content(request)
    chosen = choose_format(request)
    permit = context_of(request.scope).permit
    permit.body_bytes = _declared_size(request, state.settings)
    state.memory.check_room(permit, permit.body_bytes)
    _check_room(state, permit)
    body = await _read_body(request, state.settings)
    permit.body_bytes = len(body)
    # Small bodies are parsed without an await, so only one exists in parsed form at a time: not counted.
    transient = PARSED * len(body) if PARSED * len(body) > SMALL_BYTES else 0
    if transient:
        state.memory.take(permit, transient)
    raw, count = await _parse(body, state.settings)
    dtype = read_array_type(request, chosen)
    if isinstance(raw, dict) and len(raw) > _MAX_FIELDS:
        raise Problem(
            "invalid-request",
            f"The body has {len(raw)} fields; the fields are {', '.join(schema.model_fields)}.",
            members={"field": "body", "limit": _MAX_FIELDS, "actual": len(raw)},
        )
    try:
        checked = schema.model_validate(raw)
    except ValidationError as error:
        raise from_validation_error(error, list(schema.model_fields)) from None
    if transient:
        state.memory.release_part(permit, transient)
    return ParsedRequest(checked, chosen, dtype, count)


def deadline(request: Request, settings: Settings) -> float:
    """Seconds that this request may take: the setting, or the client's own header where shorter."""
    header = request.headers.get("x-request-timeout-ms")
    if header is None:
        return settings.request_timeout_s
    digits = header.isascii() and header.isdigit() and len(header) <= _MOST_DIGITS
    if not (digits and int(header) > 0):
        raise Problem(
            "invalid-request",
            "The header X-Request-Timeout-Ms must be a whole number of milliseconds, at least 1 and of at "
            f"most {_MOST_DIGITS} digits.",
            members={"field": "X-Request-Timeout-Ms", "actual": header},
        )
    return min(settings.request_timeout_s, int(header) / 1000)


def _check_content(request: Request) -> None:
    content_type = request.headers.get("content-type", "application/json")
    if content_type != "application/json" and not _is_json(content_type):
        raise Problem(
            "unsupported-media-type",
            f"The body is declared as {content_type}: send JSON in UTF-8, with Content-Type: "
            "application/json.",
            members={"field": "Content-Type", "actual": content_type, "allowed": ["application/json"]},
        )
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise Problem(
            "unsupported-media-type",
            f"The body is declared as compressed with {encoding}: send it uncompressed.",
            members={"field": "Content-Encoding", "actual": encoding, "allowed": ["identity"]},
        )


def _is_json(content_type: str) -> bool:
    """Read a media type with its parameters (RFC 9110 §8.3)."""
    if len(content_type) > _MOST_OF_A_TYPE:
        return False
    media_type, parameters = parse_options_header(content_type)
    charset = parameters.get("charset", "utf-8").lower()
    return media_type.lower() == "application/json" and charset in _UTF_8


def overloaded(error: OverloadedError) -> Problem:
    """Say when to come back."""
    return Problem(
        "overloaded",
        f"{error} Try again in about {error.retry_after} s, or send fewer texts at a time.",
        headers={"Retry-After": str(error.retry_after)},
        members={"limit": error.limit, "actual": error.waiting, "requested": error.requested},
    )


def _check_room(state: ServiceState, permit: Permit) -> None:
    """Refuse at once what no model's queue has room for, before it is read, parsed and tokenized."""
    refusals = []
    for engine in state.engines.values():
        try:
            engine.check_room(permit)
        except OverloadedError as error:
            refusals.append(error)
        else:
            return
    raise overloaded(refusals[0])


def _declared_size(request: Request, settings: Settings) -> int:
    """Read Content-Length, 0 where there is none; raises the 413."""
    declared = request.headers.get("content-length", "0")
    size = int(declared) if declared.isdigit() else 0
    if size > settings.max_body_bytes:
        raise _too_large(size, settings.max_body_bytes)
    return size


async def _read_body(request: Request, settings: Settings) -> bytes:
    limit = settings.max_body_bytes
    memory, permit = request.app.state.service.memory, context_of(request.scope).permit
    body = bytearray()
    try:
        async with asyncio.timeout(settings.request_timeout_s):
            async for chunk in request.stream():
                memory.check_arrived(permit)
                body += chunk
                if len(body) > limit:
                    raise _too_large(len(body), limit)
    except TimeoutError:
        raise Problem(
            "request-timeout",
            f"The body did not arrive within {settings.request_timeout_s:g} s.",
            headers={"Connection": "close"},
            members={"limit": settings.request_timeout_s},
        ) from None
    return bytes(body)


def _too_large(actual: int, limit: int) -> Problem:
    # A body that is hardly too large is read to its end, so that the client reads the answer; the
    # connection of a much larger one is not worth that.
    hopeless = actual > HOPELESS * limit
    return Problem(
        "body-too-large",
        f"The body has {actual} bytes or more and the limit is {limit}: send fewer texts per request.",
        headers={"Connection": "close"} if hopeless else {},
        members={"field": "body", "limit": limit, "actual": actual},
    )


async def _parse(body: bytes, settings: Settings) -> tuple[object, int]:
    """Read JSON; returns it with as many inputs as there may be, and the number of inputs that there are.

    More are not worth a look. Raises the 400, and the 422 of a body of which no request could be made.
    """
    most_values = MOST_VALUES + _VALUES_PER_INPUT * settings.max_inputs
    try:
        parsed = await parse(
            body, most_items=max(MAX_INDICES, settings.max_inputs) + 1, most_values=most_values
        )
    except orjson.JSONDecodeError as error:
        raise Problem(
            "malformed-json", f"The body is not JSON: {error}.", members={"field": "body"}
        ) from None
    except TooManyValuesError as error:
        raise Problem(
            "invalid-request",
            f"The body has more than {most_values} values; no request has so many.",
            members={"field": "body", "limit": most_values, "actual": error.actual},
        ) from None
    for name, length in parsed.lengths.items():
        if name != "inputs":
            raise Problem(
                "invalid-request",
                f"{name} has {length} items; no list but inputs may have more than {MAX_INDICES}.",
                members={"field": name, "limit": MAX_INDICES, "actual": length},
            )
    inputs = parsed.value.get("inputs") if isinstance(parsed.value, dict) else None
    if not (isinstance(parsed.value, dict) and isinstance(inputs, list)):
        return parsed.value, 0
    count = parsed.lengths.get("inputs", len(inputs))
    if count > settings.max_inputs:
        parsed.value["inputs"] = inputs[: settings.max_inputs]
    return parsed.value, count
