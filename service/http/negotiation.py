"""Reads from the headers and the query which form a body has, and which form its response should have."""

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar, get_args

from starlette.requests import Request
from werkzeug.datastructures import Accept
from werkzeug.http import parse_accept_header, parse_options_header

from service.echo import cut
from service.problems import Problem
from service.replies.decompression import DECODINGS
from service.replies.formats import FORMATS
from service.replies.style import ArrayType, Format

T = TypeVar("T")

ARRAY_TYPES: tuple[ArrayType, ...] = get_args(ArrayType)
CODINGS = ("gzip", "deflate")
"""The content codings that clients know, of requests and of responses."""
_NO_CODING = ("", "identity")
# A longer Content-Type is not parsed: its only meaningful parameter is short.
_MAX_TYPE_CHARACTERS = 200
_UTF_8 = ("utf-8", "utf8", "us-ascii")

# Limits of a header that lists things: parsing a longer one, or more parts, would delay other requests.
_MAX_CHARACTERS, _MAX_PARTS = 1000, 50


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a response, as its client asks for it."""

    format: Format
    dtype: ArrayType = "float32"
    fault: Problem | None = None
    """What is wrong with the query; reported once the body has been read."""


JSON = Form("json")


def header(request: Request, name: bytes, otherwise: T) -> str | T:
    """Return the first header with this lower-case name; Starlette's `Headers` would take seven calls."""
    for key, value in request.scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return otherwise


def listed(request: Request, name: bytes) -> str:
    """Return all headers with this lower-case name, joined by commas."""
    return b", ".join([value for key, value in request.scope["headers"] if key == name]).decode("latin-1")


def json_coding(request: Request) -> str | None:
    """Return the content coding of a body that must be JSON; raises the 415s."""
    content_type = header(request, b"content-type", "application/json")
    if content_type != "application/json" and not _is_json(content_type):
        raise Problem(
            "unsupported-media-type",
            f"The Content-Type is {cut(content_type)}: send JSON in UTF-8 as application/json.",
            members={"field": "Content-Type", "actual": content_type, "allowed": ["application/json"]},
        )
    return content_coding(request)


def _is_json(content_type: str) -> bool:
    """Whether a media type with its parameters (RFC 9110 §8.3) is JSON in UTF-8."""
    if len(content_type) > _MAX_TYPE_CHARACTERS:
        return False
    media_type, parameters = parse_options_header(content_type)
    charset = parameters.get("charset", "utf-8").lower()
    return media_type.lower() == "application/json" and charset in _UTF_8


def content_coding(request: Request) -> str | None:
    """Return the content coding of a body, None for no coding; raises the 415."""
    coding = header(request, b"content-encoding", "")
    if not coding or (coding := coding.strip().lower()) in _NO_CODING:
        return None
    if coding not in DECODINGS:
        raise Problem(
            "unsupported-media-type",
            f"The Content-Encoding is {cut(coding)}: send the body as gzip or deflate, or uncompressed.",
            headers={"Accept-Encoding": ", ".join(CODINGS)},
            members={"field": "Content-Encoding", "actual": coding, "allowed": [*CODINGS, "identity"]},
        )
    return coding


def negotiate(request: Request, formats: tuple[Format, ...]) -> Form:
    """Read which of the `formats` and which type of arrays a client asks for; raises the 406."""
    chosen = choose_format(request, formats)
    if not request.scope["query_string"]:
        return JSON if chosen == "json" else Form(chosen)
    try:
        return Form(chosen, _read_array_type(request, chosen, formats))
    except Problem as fault:
        return Form(chosen, fault=fault)


def choose_format(request: Request, formats: tuple[Format, ...] = tuple(FORMATS)) -> Format:
    """Choose the format that the client prefers among `formats`, JSON by default; raises the 406."""
    accept = listed(request, b"accept") or "*/*"
    if accept in ("*/*", "application/json"):
        return "json"
    if not is_short(accept):
        raise Problem(
            "not-acceptable",
            f"The header Accept has {len(accept)} characters in {_parts(accept)} parts and the limits are "
            f"{_MAX_CHARACTERS} and {_MAX_PARTS}: list fewer media types.",
            members={"field": "Accept"},
        )
    chosen = _best(accept, formats)
    if chosen is None:
        available = [FORMATS[name].media_type for name in formats]
        raise Problem(
            "not-acceptable",
            f"Accept: {accept} includes no available media type: choose from {', '.join(available)}.",
            members={"field": "Accept", "actual": accept, "allowed": available},
        )
    return chosen


def is_short(header: str) -> bool:
    """Whether a header that lists things is short enough to be parsed, within 0.2 ms."""
    return len(header) <= _MAX_CHARACTERS and _parts(header) <= _MAX_PARTS


def _parts(header: str) -> int:
    """Count the things that a header lists, and their parameters."""
    return 1 + header.count(",") + header.count(";")


def _read_array_type(request: Request, chosen: Format, formats: tuple[Format, ...]) -> ArrayType:
    """Read `?dtype=`; raises the 422, including for any other query parameter."""
    size = len(request.scope["query_string"])
    if size > _MAX_QUERY_BYTES:
        raise Problem(
            "invalid-request",
            f"The query has {size} bytes, but dtype is the only query parameter: send other options in the "
            "JSON body.",
            members={"field": "query", "limit": _MAX_QUERY_BYTES, "actual": size},
        )
    for name in request.query_params or [""]:
        if name != "dtype":
            raise _refusal(
                name,
                f'"{name}" is not a query parameter: leave it out, and send options as fields of the JSON '
                "body.",
            )
    given = request.query_params.getlist("dtype")
    dtype = next((known for known in ARRAY_TYPES if given == [known]), None)
    if dtype is None:
        raise _refusal(
            "dtype",
            f"The query parameter dtype must be given once and be one of {', '.join(ARRAY_TYPES)}.",
            actual=", ".join(given),
            allowed=ARRAY_TYPES,
        )
    if not FORMATS[chosen].binary and dtype != "float32":
        binary = [FORMATS[name].media_type for name in formats if FORMATS[name].binary]
        way_out = f"leave it out, or set Accept to {' or '.join(binary)}" if binary else "leave it out"
        raise _refusal(
            "dtype",
            f"The query parameter dtype has no effect on {FORMATS[chosen].media_type}: {way_out}.",
            actual=dtype,
        )
    return dtype


# Longer queries are not parsed: there is only one short parameter.
_MAX_QUERY_BYTES = 200


@lru_cache(maxsize=256)
def _best(accept: str, formats: tuple[Format, ...]) -> Format | None:
    """Evaluate an Accept header (RFC 9110 §12.5.1): of ranges matching a type, the most specific wins."""
    qualities: dict[str, float] = {}
    for media_range, quality in parse_accept_header(accept, Accept):
        name = media_range.partition(";")[0].strip().lower()
        qualities[name] = max(quality, qualities.get(name, 0.0))

    def quality_of(known: Format) -> float:
        covering = (name for name in (FORMATS[known].media_type, "application/*", "*/*") if name in qualities)
        return qualities.get(next(covering, ""), 0.0)

    best = max(formats, key=quality_of)
    return best if quality_of(best) > 0 else None


def _refusal(name: str, detail: str, **members: object) -> Problem:
    return Problem("invalid-request", detail, members={"field": f"query.{name}", **members})
