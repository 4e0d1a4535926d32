"""Which format an answer has, from `Accept`, and which type its arrays have, from `?dtype=`."""

from functools import lru_cache
from typing import get_args

from starlette.requests import Request
from werkzeug.datastructures import Accept
from werkzeug.http import parse_accept_header

from service.problems import Problem
from service.serialization.items import ArrayType, Format

FORMATS: dict[Format, str] = {
    "json": "application/json",
    "npz": "application/x-npz",
    "safetensors": "application/x-safetensors",
    "ndjson": "application/x-ndjson",
}
"""The formats and their media types, the one we prefer first."""
BINARY = frozenset(("npz", "safetensors"))
ARRAY_TYPES: tuple[ArrayType, ...] = get_args(ArrayType)

WEIGHED_CHARACTERS = 8000
"""Of Accept and Accept-Encoding: more are not worth the time, which others wait for."""
KEPT_CHARACTERS = 1000
"""What is weighed of a longer header is not remembered: nobody sends it twice but to fill the memory."""


def choose_format(request: Request) -> Format:
    """Choose the format that the client likes best, JSON by default; raises the 406."""
    accept = ", ".join(request.headers.getlist("accept")) or "*/*"
    if accept in ("*/*", "application/json"):
        return "json"
    if len(accept) > WEIGHED_CHARACTERS:
        raise Problem(
            "not-acceptable",
            f"The header Accept has {len(accept)} characters, and at most {WEIGHED_CHARACTERS} are weighed: "
            "leave out what you do not need.",
            members={"field": "Accept", "limit": WEIGHED_CHARACTERS, "actual": len(accept)},
        )
    chosen = (_best if len(accept) <= KEPT_CHARACTERS else _best.__wrapped__)(accept)
    if chosen is None:
        there = list(FORMATS.values())
        raise Problem(
            "not-acceptable",
            f"Accept: {accept} allows none of the formats there are: {', '.join(there)}.",
            members={"field": "Accept", "actual": accept, "allowed": there},
        )
    return chosen


def read_array_type(request: Request, chosen: Format) -> ArrayType:
    """Read `?dtype=`, float32 by default; raises the 422, also for any other query parameter."""
    if not request.scope["query_string"]:
        return "float32"
    size = len(request.scope["query_string"])
    if size > _MOST_OF_A_QUERY:
        raise Problem(
            "invalid-request",
            f"The query has {size} bytes, and only dtype has an effect there: options are fields of the JSON "
            "body.",
            members={"field": "query", "limit": _MOST_OF_A_QUERY, "actual": size},
        )
    for name in request.query_params or [""]:
        if name != "dtype":
            raise _refusal(
                name, f'The query parameter "{name}" has no effect here: options are fields of the JSON body.'
            )
    given = request.query_params.getlist("dtype")
    dtype = next((known for known in ARRAY_TYPES if given == [known]), None)
    if dtype is None:
        raise _refusal(
            "dtype",
            f"The query parameter dtype must be given once, as one of {', '.join(ARRAY_TYPES)}.",
            actual=", ".join(given),
            allowed=ARRAY_TYPES,
        )
    if chosen not in BINARY and dtype != "float32":
        binary = [FORMATS[name] for name in FORMATS if name in BINARY]
        raise _refusal(
            "dtype",
            f"The query parameter dtype has no effect on {FORMATS[chosen]}: leave it out, or accept "
            f"{' or '.join(binary)}.",
            actual=dtype,
        )
    return dtype


def refuse_uint8(dtype: ArrayType, why: str) -> None:
    """Raise the 422 when uint8 was asked of an answer that cannot have it; `why` begins the sentence."""
    if dtype == "uint8":
        allowed = [known for known in ARRAY_TYPES if known != "uint8"]
        detail = f"{why}: ask for one of the dtypes {', '.join(allowed)}."
        raise _refusal("dtype", detail, actual=dtype, allowed=allowed)


# Of more parameters than there are, the first is enough to be named.
_MOST_OF_A_QUERY = 8000


@lru_cache(maxsize=256)
def _best(accept: str) -> Format | None:
    """Weigh an Accept header (RFC 9110 §12.5.1): of the ranges over a type, the most specific counts."""
    qualities: dict[str, float] = {}
    for media_range, quality in parse_accept_header(accept, Accept):
        name = media_range.partition(";")[0].strip().lower()
        qualities[name] = max(quality, qualities.get(name, 0.0))

    def quality_of(known: Format) -> float:
        covering = (name for name in (FORMATS[known], "application/*", "*/*") if name in qualities)
        return qualities.get(next(covering, ""), 0.0)

    best = max(FORMATS, key=quality_of)
    return best if quality_of(best) > 0 else None


def _refusal(name: str, detail: str, **members: object) -> Problem:
    return Problem("invalid-request", detail, members={"field": f"query.{name}", **members})
