"""`/v1/embed` and `/v2/embed`: vectors of texts, in several types at once."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import orjson
from pydantic import BaseModel, Field, PlainValidator, StrictStr, WithJsonSchema, model_validator
from starlette.requests import Request
from starlette.responses import Response

from model.contract import FloatArray
from model.tokenization.decoding import json_bytes
from model.tokenization.tokenizer import Side, Truncation
from service.http.delivery import Work
from service.http.request_body import read_request
from service.protocols.exchange import Exchange, check_count
from service.protocols.fields import PositiveNumber, at_most, first_other, invalid
from service.protocols.lenient import Fields
from service.replies.answer_size import bound
from service.replies.json_arrays import array_text
from service.replies.style import Format
from service.tasks.embed import EmbedOptions, plan_encode
from service.tasks.precision import Precision, quantize
from service.tasks.prompts import find_prompt
from service.tasks.results import Expected, Item

CohereType = Literal["float", "int8", "uint8", "binary", "ubinary", "base64"]
CohereTypes = Annotated[tuple[CohereType, ...], Field(min_length=1, max_length=6), at_most(6)]
_PRECISIONS: dict[CohereType, Precision] = {
    "float": "float32",
    "base64": "float32",
    "int8": "int8",
    "uint8": "uint8",
    "binary": "binary",
    "ubinary": "ubinary",
}
_NAMES = {"dimensions": "output_dimension", "precision": "embedding_types"}
_FEWER = "send fewer texts, or ask for a smaller `output_dimension` or fewer `embedding_types`"
# Copies of the vectors: those of the batches, and an array of them.
_COPIES = 2


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not value:
        raise invalid("texts", "must be a list of at least one string")
    if (wrong := first_other(value, str)) is not None:
        raise invalid(f"texts.{wrong}", "must be a string")
    return value


Texts = Annotated[
    list[str],
    PlainValidator(_texts),
    WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 1}),
]


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
Inputs = Annotated[
    list[str],
    PlainValidator(_inputs),
    WithJsonSchema(
        {
            "type": "array",
            "items": {"type": "object", "properties": {"content": _CONTENT}, "required": ["content"]},
            "minItems": 1,
        }
    ),
]


class CohereEmbedRequest(Fields):
    """Texts to encode as one vector each. Unknown fields are ignored."""

    listed: ClassVar[str] = "all_texts"
    sources: ClassVar[tuple[str, ...]] = ("texts", "inputs")
    example: ClassVar[str] = '{"texts": ["a text"]}'
    formats: ClassVar[tuple[Format, ...]] = ("json",)

    model: StrictStr | None = Field(None, description="One of the served models; the first by default.")
    texts: Texts | None = Field(None, description="The texts; images are not read.")
    inputs: Inputs | None = Field(
        None, description="In the place of `texts`: objects whose `content` is a list of parts with `text`."
    )
    input_type: StrictStr | None = Field(
        None, description="What the texts are for, such as `search_query`: chooses the model's prompt."
    )
    embedding_types: CohereTypes | None = Field(None, description="One or several; `float` by default.")
    output_dimension: PositiveNumber | None = Field(
        None, description="Keep the first k components, renormalized."
    )
    truncate: Literal["NONE", "START", "END"] = Field(
        "END", description="Where texts longer than the model's limit lose tokens; `NONE` refuses them."
    )

    @model_validator(mode="after")
    def _one_list(self) -> "CohereEmbedRequest":
        if self.texts is None and self.inputs is None:
            raise invalid("texts", "is required, or inputs")
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


class CohereVectors(BaseModel):
    """The vectors of all texts, in their order."""

    id: str = Field(description="The id of the request.")
    response_type: Literal["embeddings_floats", "embeddings_by_type"]
    embeddings: dict[CohereType, list[list[float]] | list[str]] | list[list[float]] = Field(
        description="By type; in `/v1/embed` without `embedding_types` a list."
    )
    texts: list[str]
    meta: dict[str, Any]


async def embed_v1(request: Request) -> Response:
    """Return the vector of each text, as a list or by type."""
    return await _read(request, version="1")


async def embed_v2(request: Request) -> Response:
    """Return the vector of each text, by type."""
    return await _read(request, version="2")


async def _read(request: Request, version: str) -> Response:
    parsed = await read_request(request, CohereEmbedRequest)
    body = parsed.body
    check_count(parsed.count, request.app.state.service.settings, body.source)
    exchange = Exchange.open(request, parsed)
    exchange.cutting, exchange.names = 'leave out "truncate": "NONE"', _NAMES
    return await exchange.in_time(_embed(exchange, parsed.body, version))


async def _embed(exchange: Exchange, body: CohereEmbedRequest, version: str) -> Response:
    info, texts = exchange.engine.info, body.all_texts
    listed = version == "1" and body.embedding_types is None
    types = tuple(dict.fromkeys(body.embedding_types or ("float",)))
    options = EmbedOptions(normalize=True, dimensions=body.output_dimension)
    precisions = [replace(options, precision=_PRECISIONS[one]) for one in types]
    plans = [plan_encode(one, info, info.default_task) for one in precisions]
    name = info.default_prompt_name
    if body.input_type is not None:
        name = find_prompt("input_type", body.input_type, info)
    named = body.truncate in ("START", "END") and "truncate" in body.model_fields_set
    side: Side | None = ("left" if body.truncate == "START" else "right") if named else None
    truncation = Truncation(allowed=body.truncate != "NONE", side=side)
    prompt = "" if name is None else info.prompts[name]
    encodings = await exchange.tokenize(texts, truncation, prompt, f"{body.source}.{{}}".format)
    exchange.alone = True
    exchange.value = partial(_vectors, types=types, listed=listed)
    exchange.frame = partial(_frame, exchange, texts, version, listed=listed)
    style, plan = exchange.style(), plans[0]
    exchange.reserve_arrays((len(texts), plan.sentence_size), copies=_COPIES)
    expected = [Expected({"embedding": (len(types) * plan.sentence_size,)})] * len(texts)
    size = bound(style, expected) + sum(map(json_bytes, texts)) + 3 * len(texts)
    exchange.reserve_answer(style, size, _FEWER)
    delivery = exchange.delivery(style, Work.of(encodings), size)
    result = await exchange.run(delivery, encodings, [plan.want(one) for one in encodings])
    vectors = [output.sentence for output in result.outputs if output.sentence is not None]
    return await delivery.deliver(Item({}, {"embedding": np.stack(some)}) for some in (vectors,))


def _vectors(item: Item, *, types: Sequence[CohereType], listed: bool) -> orjson.Fragment:
    """Write the vectors of all texts in each type, in pieces: writing holds the interpreter lock."""
    vectors = item.arrays["embedding"]
    if listed:
        return orjson.Fragment(b"".join(array_text(vectors, None)))
    return orjson.Fragment(b"{" + b",".join(b"".join(_of_type(vectors, one)) for one in types) + b"}")


def _of_type(vectors: FloatArray, kind: CohereType) -> Iterator[bytes | memoryview]:
    yield b'"%s":' % kind.encode()
    if kind == "base64":
        yield orjson.dumps([b64encode(vector.tobytes()).decode() for vector in vectors])
    else:
        yield from array_text(quantize(vectors, _PRECISIONS[kind]), None)


def _frame(
    exchange: Exchange, texts: Sequence[str], version: str, tokens: int, *, listed: bool
) -> tuple[bytes, bytes]:
    kind = "embeddings_floats" if listed else "embeddings_by_type"
    head = {"id": exchange.context.request_id, "response_type": kind, "texts": texts}
    meta = {"api_version": {"version": version}, "billed_units": {"input_tokens": tokens}}
    return orjson.dumps(head)[:-1] + b',"embeddings":', b"," + orjson.dumps({"meta": meta})[1:]
