"""Reads and validates a request's body; the order of the refusals is part of the API.

415 content type, 406 accept, 413 body, 429 by the body's size, 400 not JSON, 422 not valid.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from service.http.json_body import MAX_INDICES, MAX_VALUES, REST, TooManyValuesError, parse
from service.http.negotiation import ARRAY_TYPES, json_coding, negotiate
from service.http.request_context import Body, RequestContext, context_of
from service.http.request_schema import SPLIT, RequestSchema
from service.http.validation_errors import from_validation_error
from service.memory_limits import ARRIVING, PARSED, SMALL_BYTES
from service.problems import Problem
from service.replies.decompression import DamagedError, LargerError, decompress, most_bytes
from service.replies.style import ArrayType, Format
from service.system.off_loop import off_loop

RequestT = TypeVar("RequestT", bound=RequestSchema)

# More than any schema has; a body with more is refused for that, without checking each field.
_MAX_FIELDS = 64
# A pair and its two texts.
_VALUES_PER_INPUT = 3
_WITHOUT_UINT8 = [known for known in ARRAY_TYPES if known != "uint8"]
ABANDON_FACTOR = 8
"""A body this many times its limit is not read to the end: the connection is closed after the response."""
INLINE_BYTES = 64 * 1024
"""Content up to this size is read, and decompressed, on the event loop: in less than a millisecond."""


@dataclass(slots=True)
class ParsedRequest(Generic[RequestT]):
    """A valid request body, and how to encode the response."""

    body: RequestT
    format: Format
    dtype: ArrayType
    transient: int = 0
    """Bytes of memory that are reserved for the parsed body, and are no longer needed."""


async def read_request(request: Request, schema: type[RequestT]) -> ParsedRequest[RequestT]:
    """Read and validate a request, whose body may have been read before.

    Raises Problem, or ClientDisconnect if the client disconnects first.
    """
    context = context_of(request.scope)
    limit = context.state.settings.inputs_of(schema.most_inputs)
    most_numbers = schema.most_numbers or limit
    body = context.body or await read_body(request, schema.formats, most_numbers, schema.fewer_values)
    raw, count = _count(body, limit, schema.sources or (schema.listed,), most_numbers)
    form = context.form
    if form.fault is not None:
        raise form.fault
    if isinstance(raw, dict) and len(raw) > _MAX_FIELDS:
        raise Problem(
            "invalid-request",
            f"The body has {len(raw)} fields and the limit is {_MAX_FIELDS}: the fields are "
            f"{', '.join(schema.model_fields)}.",
            members={"field": "body", "limit": _MAX_FIELDS, "actual": len(raw)},
        )
    try:
        checked = schema.model_validate(raw)
    except ValidationError as error:
        raise from_validation_error(error, schema) from None
    checked.check(count, limit)
    if form.dtype == "uint8":
        _refuse_uint8(checked)
    context.body = None
    return ParsedRequest(checked, form.format, form.dtype, body.transient)


async def read_body(
    request: Request,
    formats: tuple[Format, ...],
    most_numbers: int,
    way_out: str = SPLIT,
) -> Body:
    """Read the body of a request as JSON, and keep it for `read_request`.

    For routes where the body decides its schema: `formats` and `most_numbers` allow all that any of the
    schemas does. Raises what `read_request` does, except for what a schema requires.
    """
    context = context_of(request.scope)
    coding = json_coding(request)
    context.form = negotiate(request, formats)
    content = await receive_body(request, coding)
    context.body = await parse_body(request, content, most_numbers, way_out=way_out)
    return context.body


async def receive_body(request: Request, coding: str | None = None, *, queued: bool = True) -> bytes:
    """Receive the bytes of a body, within all limits, and decompress them if they have a `coding`.

    `queued` says whether they will wait for a model. Raises the 413, the 429 by the body's size, the 408, the
    400 for a damaged body, or ClientDisconnect if the client disconnects first.
    """
    context = context_of(request.scope)
    permit, settings = context.permit, context.state.settings
    permit.body_bytes = context.declared_bytes
    if permit.body_bytes > settings.max_body_bytes:
        raise _too_large(permit.body_bytes, settings.max_body_bytes)
    context.state.admit(permit, arrived=context.arrived, queued=queued)
    if context.arrived:
        body = await _receive(request, settings.max_body_bytes)
    else:
        body = await _receive_in_time(request, settings.max_body_bytes, settings.patience_s)
    permit.body_bytes = len(body)
    return body if coding is None else await _decompressed(context, body, coding)


async def _receive_in_time(request: Request, limit: int, patience_s: float) -> bytes:
    try:
        async with asyncio.timeout(patience_s):
            return await _receive(request, limit)
    except TimeoutError:
        raise Problem(
            "request-timeout",
            f"The body did not arrive within {patience_s:g} s.",
            headers={"Connection": "close"},
            members={"limit": patience_s},
        ) from None


async def _receive(request: Request, limit: int) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), message.get("more_body", False)
        if size > limit:
            raise _too_large(size, limit)
    return b"".join(parts)


async def _decompressed(context: RequestContext, content: bytes, coding: str) -> bytes:
    """Decompress a body, and charge its memory; raises the 400, the 413 and the 429."""
    permit, memory, limit = context.permit, context.state.memory, context.state.settings.max_body_bytes
    most = ARRIVING * most_bytes(len(content), limit)
    memory.take(permit, most)
    try:
        if most <= INLINE_BYTES:
            body = decompress(content, coding, limit)
        else:
            body = await off_loop(decompress, content, coding, limit)
    except LargerError:
        raise _too_large(limit + 1, limit) from None
    except DamagedError as error:
        raise Problem(
            "malformed-json", f"The body is not valid {coding}: {error}.", members={"field": "body"}
        ) from None
    memory.release_part(permit, most - ARRIVING * len(body))
    permit.body_bytes = len(body)
    return body


def _too_large(actual: int, limit: int) -> Problem:
    """Make the 413 of a body of at least `actual` bytes, before or after it is decompressed."""
    # A slightly oversized body is read to the end, so that the client gets the response; for a much larger
    # one the connection is closed instead.
    abandon = actual > ABANDON_FACTOR * limit
    return Problem(
        "body-too-large",
        f"The body has {actual} bytes or more and the limit is {limit}: send fewer texts per request.",
        headers={"Connection": "close"} if abandon else {},
        members={"field": "body", "limit": limit, "actual": actual},
    )


async def parse_body(
    request: Request,
    content: bytes,
    most_numbers: int,
    most_values: int = MAX_VALUES,
    way_out: str = SPLIT,
) -> Body:
    """Parse JSON that was received; `most_numbers` is the most items that a list of numbers may have.

    `most_values` is the most values of the whole body, besides a few for each input; `way_out` says what to
    do about more. The memory of the parsed body, `transient`, is charged. Raises the 400, 422 and 429.
    """
    context = context_of(request.scope)
    settings = context.state.settings
    # Small bodies are parsed without an await, so only one exists in parsed form at a time: not charged.
    transient = PARSED * len(content) if PARSED * len(content) > SMALL_BYTES else 0
    if transient:
        context.state.memory.take(context.permit, transient)
    max_values = most_values + _VALUES_PER_INPUT * settings.max_inputs + _MAX_FIELDS
    most = max(MAX_INDICES, settings.max_inputs, most_numbers)
    try:
        value, lengths = await parse(content, max_items=most + 1, max_values=max_values)
    except orjson.JSONDecodeError as error:
        raise Problem(
            "malformed-json", f"The body is not valid JSON: {error}.", members={"field": "body"}
        ) from None
    except TooManyValuesError as error:
        raise Problem(
            "invalid-request",
            f"The body has about {error.actual} JSON values and the limit is {max_values}: {way_out}.",
            members={"field": "body", "limit": max_values, "actual": error.actual},
        ) from None
    return Body(value, lengths, transient)


def _refuse_uint8(body: BaseModel) -> None:
    """Raise the 422 if nothing in the response could have this dtype; the body's `no_uint8` says why."""
    if why := getattr(body, "no_uint8", ""):
        raise Problem(
            "invalid-request",
            f"dtype is uint8, {why}: use one of the dtypes {', '.join(_WITHOUT_UINT8)}.",
            members={"field": "query.dtype", "actual": "uint8", "allowed": _WITHOUT_UINT8},
        )


def _count(body: Body, limit: int, listed: Sequence[str], most_numbers: int) -> tuple[object, int]:
    """Return the body, its lists in the fields `listed` cut to their limits, and how many items were sent.

    Raises the 422 for any other list that was too long.
    """
    for name, length in body.lengths.items():
        if name not in listed:
            raise Problem(
                "invalid-request",
                f"{name} has {length} items and the limit is {MAX_INDICES}: {REST}.",
                members={"field": name, "limit": MAX_INDICES, "actual": length},
            )
    largest = 0
    for name in listed:
        inputs = body.value.get(name) if isinstance(body.value, dict) else None
        if not (isinstance(body.value, dict) and isinstance(inputs, list)):
            continue
        count = body.lengths.get(name, len(inputs))
        numbers = bool(inputs) and isinstance(inputs[0], int | float)
        most = most_numbers if numbers else limit
        if count > most:
            body.value[name] = inputs[:most]
        largest = max(largest, count)
    return body.value, largest
