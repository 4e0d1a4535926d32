"""The field `chunks`: how a request has its texts split."""

from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from service.echo import cut
from service.http.json_body import REST
from service.protocols.fields import invalid, whole_number
from service.tasks.chunking.chunks import MAX_CHUNKS, Chunking, Span, Windows


def _chunking(value: object) -> Chunking:
    if value == "sentences":
        return "sentences"
    if isinstance(value, dict):
        return _windows(value)
    if isinstance(value, list) and value:
        if len(value) > MAX_CHUNKS:
            raise invalid("chunks", f"has {len(value)} items and the limit is {MAX_CHUNKS}: {REST}")
        return tuple(_span(number, span) for number, span in enumerate(value))
    raise invalid(
        "chunks",
        'must be "sentences", an object such as {"tokens": 64, "overlap": 16}, or a list of at least one '
        "[start, end]",
    )


def _windows(value: dict[str, object]) -> Windows:
    if unknown := value.keys() - {"tokens", "overlap"}:
        raise invalid("chunks", f'has the unknown field "{cut(min(unknown))}": choose tokens and overlap')
    if "tokens" not in value:
        raise invalid("chunks.tokens", "is missing: say how many tokens a chunk has")
    tokens = whole_number(value["tokens"], "chunks.tokens")
    overlap = whole_number(value.get("overlap", 0), "chunks.overlap")
    if tokens < 1:
        raise invalid("chunks.tokens", f"is {tokens}, and a chunk has at least 1 token")
    if not 0 <= overlap < tokens:
        raise invalid("chunks.overlap", f"is {overlap}: choose 0 to {tokens - 1}, less than tokens")
    return Windows(tokens, overlap)


def _span(number: int, value: object) -> Span:
    if not isinstance(value, list) or len(value) != 2:
        raise invalid(f"chunks.{number}", "must be [start, end], in Unicode code points of the text")
    start, end = value
    if not type(start) is type(end) is int:
        start, end = (whole_number(one, f"chunks.{number}") for one in value)
    if not 0 <= start < end:
        raise invalid(f"chunks.{number}", f"is [{start}, {end}]: start must be at least 0 and less than end")
    return start, end


_INTEGERS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 2}
_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"const": "sentences", "type": "string"},
        {
            "type": "object",
            "properties": {
                "tokens": {"type": "integer", "minimum": 1},
                "overlap": {"type": "integer", "minimum": 0, "default": 0},
            },
            "required": ["tokens"],
            "additionalProperties": False,
        },
        {"type": "array", "items": _INTEGERS, "minItems": 1, "maxItems": MAX_CHUNKS},
    ]
}
# The value is a `Chunking`; if it were annotated so, the API's schema would list the types of that.
ChunksField = Annotated[Any, PlainValidator(_chunking), WithJsonSchema(_SCHEMA)]
