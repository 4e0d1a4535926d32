"""`/v1/embed` and `/v2/embed`: vectors of texts, in several types at once."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, cast

import orjson
from pydantic import BaseModel, Field, PlainValidator, StrictStr, WithJsonSchema, model_validator
from starlette.responses import Response

from model.contract import FloatArray
from model.tokenization.decoding import json_bytes
from model.tokenization.tokenizer import Side, Truncation
from service.http.request_schema import check_count
from service.protocols.embedding import embed_together, prompt_of, vector
from service.protocols.exchange import Exchange
from service.protocols.fields import PositiveNumber, TextList, at_most, first_other, invalid
from service.protocols.lenient import Asked
from service.replies.json_arrays import array_text
from service.tasks.embed import EmbedOptions, plan_encode
from service.tasks.precision import Precision, quantize
from service.tasks.results import Item

CohereType = Literal["float", "int8", "uint8", "binary", "ubinary", "base64"]
CohereTypes = Annotated[tuple[CohereType, ...], Field(min_length=1, max_length=6), at_most(6)]
_NAMES = {"dimensions": "output_dimension", "precision": "embedding_types"}
_FEWER = "send fewer texts, or ask for a smaller `output_dimension` or fewer `embedding_types`"


def _inputs(value: object) -> list[str]:
    """Read inputs whose content is text; the parts of one are joined by line breaks."""
    if not isinstance(value, list) or not value:
        raise invalid("inputs", 'must be a list of at least one object with "content"')
    return [_content(one, f"inputs.{i}") for i, one in enumerate(value)]


def _content(value: object, field: str) -> str:
    parts = value.get("content") if isinstance(value, dict) else None
    if not isinstance(parts, list) or not parts:
        raise invalid(field, 'must be an object whose "content" is a list of at least one part')
    texts = [part.get("text") if isinstance(part, dict) else None for part in parts]
    if (wrong := first_other(texts, str)) is not None:
        raise invalid(
            f"{field}.content.{wrong}",
            'must be an object such as {"type": "text", "text": "a"}: images are not read',
        )
    return "\n".join(map(str, texts))


_PART = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_CONTENT = {"type": "array", "items": _PART, "minItems": 1}
_INPUT = {"type": "object", "properties": {"content": _CONTENT}, "required": ["content"]}
Inputs = Annotated[
    list[str],
    PlainValidator(_inputs),
    WithJsonSchema({"type": "array", "items": _INPUT, "minItems": 1}),
]


class CohereEmbedRequest(Asked):
    """Texts to encode as one vector each. Unknown fields are ignored."""

    listed: ClassVar[str] = "all_texts"
    sources: ClassVar[tuple[str, ...]] = ("texts", "inputs")
    example: ClassVar[str] = '{"texts": ["a text"]}'

    texts: TextList | None = Field(None, description="The texts; images are not read.")
    inputs: Inputs | None = Field(
        None, description="Instead of `texts`: objects whose `content` is a list of parts with `text`."
    )
    input_type: StrictStr | None = Field(
        None, description="What the texts are for, such as `search_query`: chooses the model's prompt."
    )
    embedding_types: CohereTypes | None = Field(None, description="One or several; `float` by default.")
    output_dimension: PositiveNumber | None = Field(
        None, description="Keep the first k components, renormalized."
    )
    truncate: Literal["NONE", "START", "END"] = Field(
        "END",
        description="The end at which texts longer than the model's limit are cut; `NONE` refuses them.",
    )

    @model_validator(mode="after")
    def _one_list(self) -> "CohereEmbedRequest":
        if self.texts is None and self.inputs is None:
            raise invalid("texts", "is required unless inputs is given")
        if self.texts is not None and self.inputs is not None:
            raise invalid("inputs", "cannot be combined with texts: leave one of them out")
        return self

    @property
    def source(self) -> str:
        """The field that has the texts."""
        return "inputs" if self.texts is None else "texts"

    @property
    def all_texts(self) -> list[str]:
        """The texts, from either field."""
        return self.texts or self.inputs or []

    def check(self, count: int, limit: int) -> None:
        """Raise the 413 if too many texts (`count`) were sent."""
        check_count(count, limit, self.source)


class CohereVectors(BaseModel):
    """The vectors of all texts, in their order."""

    id: str = Field(description="The id of the request.")
    response_type: Literal["embeddings_floats", "embeddings_by_type"]
    embeddings: dict[CohereType, list[list[float]] | list[str]] | list[list[float]] = Field(
        description="By type; a list in `/v1/embed` without `embedding_types`."
    )
    texts: list[str]
    meta: dict[str, Any]


async def embed_v1(exchange: Exchange, body: CohereEmbedRequest) -> Response:
    """Return the vector of each text, as a list or by type."""
    return await _embed(exchange, body, "1", listed=body.embedding_types is None)


async def embed_v2(exchange: Exchange, body: CohereEmbedRequest) -> Response:
    """Return the vector of each text, by type."""
    return await _embed(exchange, body, "2", listed=False)


async def _embed(exchange: Exchange, body: CohereEmbedRequest, version: str, *, listed: bool) -> Response:
    exchange.cutting, exchange.names = 'leave out "truncate": "NONE"', _NAMES
    info, texts = exchange.engine.info, body.all_texts
    types = tuple(dict.fromkeys(body.embedding_types or ("float",)))
    options = EmbedOptions(normalize=True, dimensions=body.output_dimension)
    plans = [
        plan_encode(replace(options, precision=_precision(one)), info, info.default_task) for one in types
    ]
    prompt = prompt_of(body.input_type, info)
    named = body.truncate in ("START", "END") and "truncate" in body.model_fields_set
    side: Side | None = ("left" if body.truncate == "START" else "right") if named else None
    truncation = Truncation(allowed=body.truncate != "NONE", side=side)
    encodings = await exchange.tokenize(texts, truncation, prompt, f"{body.source}.{{}}".format)
    exchange.alone = True
    exchange.value = partial(_vectors, types=types, listed=listed)
    exchange.frame = partial(_frame, exchange, texts, version, listed=listed)
    more_bytes = sum(map(json_bytes, texts)) + 3 * len(texts)
    return await embed_together(
        exchange, plans[0], encodings, _FEWER, more_bytes=more_bytes, types=len(types)
    )


def _precision(kind: CohereType) -> Precision:
    return "float32" if kind in ("float", "base64") else cast(Precision, kind)


def _vectors(item: Item, *, types: Sequence[CohereType], listed: bool) -> orjson.Fragment:
    """Write the vectors of all texts in each type, in pieces: writing holds the interpreter lock."""
    vectors = vector(item)
    if listed:
        return orjson.Fragment(b"".join(array_text(vectors, None)))
    return orjson.Fragment(b"{" + b",".join(b"".join(_of_type(vectors, one)) for one in types) + b"}")


def _of_type(vectors: FloatArray, kind: CohereType) -> Iterator[bytes | memoryview]:
    yield b'"%s":' % kind.encode()
    if kind == "base64":
        yield orjson.dumps([b64encode(one.tobytes()).decode() for one in vectors])
    else:
        yield from array_text(quantize(vectors, _precision(kind)), None)


def _frame(
    exchange: Exchange, texts: Sequence[str], version: str, tokens: int, *, listed: bool
) -> tuple[bytes, bytes]:
    kind = "embeddings_floats" if listed else "embeddings_by_type"
    head = {"id": exchange.context.request_id, "response_type": kind, "texts": texts}
    meta = {"api_version": {"version": version}, "billed_units": {"input_tokens": tokens}}
    return orjson.dumps(head)[:-1] + b',"embeddings":', b"," + orjson.dumps({"meta": meta})[1:]
