"""Reads and validates a request's body; the order of the refusals is part of the API.

415 content type, 406 accept, 413 body, 429 by the body's size, 400 not JSON, 422 not valid.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from werkzeug.http import parse_options_header

from service.echo import cut
from service.http.body_limits import too_large
from service.http.content_coding import content_coding, decompressed
from service.http.json_body import MAX_INDICES, MAX_VALUES, REST, TooManyValuesError, parse
from service.http.negotiation import ARRAY_TYPES, negotiate
from service.http.request_context import Body, RequestContext
from service.lifecycle import ServiceState
from service.memory_limits import PARSED, SMALL_BYTES
from service.problems import Problem, from_validation_error
from service.replies.formats import FORMATS
from service.replies.style import ArrayType, Format

RequestT = TypeVar("RequestT", bound=BaseModel)

# More than any schema has; a body with more is refused for that, without checking each field.
_MAX_FIELDS = 64
# A pair and its two texts.
_VALUES_PER_INPUT = 3
_WITHOUT_UINT8 = [known for known in ARRAY_TYPES if known != "uint8"]
SPLIT = "split it into several requests"
"""What to do about a body of too many values."""
SEVERAL = "split them into several requests"
"""What to do about too many inputs."""
# A longer Content-Type is not parsed: its only meaningful parameter is short.
_MAX_TYPE_CHARACTERS = 200
_UTF_8 = ("utf-8", "utf8", "us-ascii")


@dataclass(frozen=True, slots=True)
class ParsedRequest(Generic[RequestT]):
    """A valid request body, and how to encode the response."""

    body: RequestT
    format: Format
    dtype: ArrayType
    count: int
    """How many inputs were sent; `body` has at most `limit` of them."""
    limit: int
    """How many a request may have."""
    transient: int = 0
    """Bytes that are reserved for what the body was parsed to, and are not needed any more."""


async def read_request(
    request: Request, schema: type[RequestT], counted: str = ""
) -> ParsedRequest[RequestT]:
    """Read and validate a request, whose body may have been read before.

    `counted` is the field whose items are its inputs, of which it may have only so many: the 413 names it.
    A schema may say how many inputs a request may have by default, as `most_inputs`; name the field that
    lists them, as `listed`, or several of which a request has one, as `sources`; the `formats` of the
    response; as `most_numbers`, how many items that list may have where they are numbers instead of inputs;
    and as `fewer_values`, what to do about a body of too many values.

    Raises Problem, or ClientDisconnect if the client disconnects first.
    """
    state: ServiceState = request.app.state.service
    context: RequestContext = request.state.context
    formats: tuple[Format, ...] = getattr(schema, "formats", tuple(FORMATS))
    limit = state.settings.inputs_of(schema)
    most_numbers = getattr(schema, "most_numbers", limit)
    way_out = getattr(schema, "fewer_values", SPLIT)
    body = context.body or await read_body(request, formats, most_numbers, way_out)
    listed = getattr(schema, "sources", (getattr(schema, "listed", "inputs"),))
    raw, count = _count(body, limit, listed, most_numbers)
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
    if counted:
        check_count(count, limit, counted)
    if form.dtype == "uint8":
        _refuse_uint8(checked)
    context.body = None
    return ParsedRequest(checked, form.format, form.dtype, count, limit, body.transient)


async def read_body(
    request: Request,
    formats: tuple[Format, ...],
    most_numbers: int,
    way_out: str = SPLIT,
) -> Body:
    """Read the body of a request as JSON, and keep it for `read_request`.

    For routes where the body says which schema it has: `formats` and `most_numbers` are the most that any of
    them has. Raises as `read_request` does, but for what a schema says.
    """
    _check_type(request)
    coding = content_coding(request)
    context: RequestContext = request.state.context
    context.form = negotiate(request, formats)
    content = await receive_body(request, coding)
    context.body = await parse_body(request, content, most_numbers, way_out=way_out)
    return context.body


async def receive_body(request: Request, coding: str | None = None, *, queued: bool = True) -> bytes:
    """Receive the bytes of a body, within all limits, and decompress them if they have a `coding`.

    `queued` says whether they will wait for a model. Raises the 413, the 429 by its size, the 408 and the 400
    of damaged ones, or ClientDisconnect if the client disconnects first.
    """
    state: ServiceState = request.app.state.service
    context: RequestContext = request.state.context
    permit, limit, patience_s = context.permit, state.settings.max_body_bytes, state.settings.patience_s
    declared = request.headers.get("content-length", "0")
    permit.body_bytes = int(declared) if declared.isdigit() else 0
    if permit.body_bytes > limit:
        raise too_large(permit.body_bytes, limit)
    state.admit(permit, queued=queued)
    body = bytearray()
    try:
        async with asyncio.timeout(patience_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise too_large(len(body), limit)
    except TimeoutError:
        raise Problem(
            "request-timeout",
            f"The body did not arrive within {patience_s:g} s.",
            headers={"Connection": "close"},
            members={"limit": patience_s},
        ) from None
    permit.body_bytes = len(body)
    return bytes(body) if coding is None else await decompressed(request, bytes(body), coding)


async def parse_body(
    request: Request,
    content: bytes,
    most_numbers: int,
    most_values: int = MAX_VALUES,
    way_out: str = SPLIT,
) -> Body:
    """Parse JSON that was received; `most_numbers` is the most that a list of numbers may have.

    `most_values` is the most of the whole body, besides a few for each input, and `way_out` says what to do
    about more. The memory of its parsed form, `transient`, is charged. Raises the 400, the 422 and the 429.
    """
    state: ServiceState = request.app.state.service
    context: RequestContext = request.state.context
    # Small bodies are parsed without an await, so only one exists in parsed form at a time: not charged.
    transient = PARSED * len(content) if PARSED * len(content) > SMALL_BYTES else 0
    if transient:
        state.memory.take(context.permit, transient)
    max_values = most_values + _VALUES_PER_INPUT * state.settings.max_inputs + _MAX_FIELDS
    most = max(MAX_INDICES, state.settings.max_inputs, most_numbers)
    try:
        parsed = await parse(content, max_items=most + 1, max_values=max_values)
    except orjson.JSONDecodeError as error:
        raise Problem(
            "malformed-json", f"The body is not valid JSON: {error}.", members={"field": "body"}
        ) from None
    except TooManyValuesError as error:
        raise Problem(
            "invalid-request",
            f"The body has about {error.actual} values and the limit is {max_values}: {way_out}.",
            members={"field": "body", "limit": max_values, "actual": error.actual},
        ) from None
    return Body(parsed.value, parsed.lengths, transient)


def _check_type(request: Request) -> None:
    content_type = request.headers.get("content-type", "application/json")
    if content_type != "application/json" and not _is_json(content_type):
        raise Problem(
            "unsupported-media-type",
            f"The Content-Type is {cut(content_type)}: send JSON in UTF-8 as application/json.",
            members={"field": "Content-Type", "actual": content_type, "allowed": ["application/json"]},
        )


def _is_json(content_type: str) -> bool:
    """Whether a media type with its parameters (RFC 9110 §8.3) is JSON in UTF-8."""
    if len(content_type) > _MAX_TYPE_CHARACTERS:
        return False
    media_type, parameters = parse_options_header(content_type)
    charset = parameters.get("charset", "utf-8").lower()
    return media_type.lower() == "application/json" and charset in _UTF_8


def _refuse_uint8(body: BaseModel) -> None:
    """Raise the 422 if nothing in a response could be of this type: the body says why, as `no_uint8`."""
    if why := getattr(body, "no_uint8", ""):
        raise Problem(
            "invalid-request",
            f"dtype is uint8, {why}: use one of the dtypes {', '.join(_WITHOUT_UINT8)}.",
            members={"field": "query.dtype", "actual": "uint8", "allowed": _WITHOUT_UINT8},
        )


def check_count(count: int, limit: int, field: str = "inputs", way_out: str = SEVERAL) -> None:
    """Raise the 413 for more inputs, listed in `field`, than a request may have."""
    if count > limit:
        raise Problem(
            "too-many-inputs",
            f"{field} has {count} items and the limit is {limit}: {way_out}.",
            members={"field": field, "limit": limit, "actual": count},
        )


def _count(body: Body, limit: int, listed: Sequence[str], most_numbers: int) -> tuple[object, int]:
    """Return a body with at most `limit` inputs, in one of the fields `listed`, and how many were sent.

    Raises the 422 for another long list.
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
