"""`/v1/contextualizedembeddings`: a vector for each part of documents, each of which runs as a whole."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, PlainValidator, StrictStr, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from model.contract import Encoding, ModelInfo
from model.errors import InputTooLong
from model.tokenization.tokenizer import Truncation
from service.http.request_body import read_request
from service.protocols.exchange import Exchange
from service.protocols.fields import PositiveNumber, first_other, invalid
from service.protocols.lenient import Fields
from service.protocols.openai.embeddings import ITEM_BYTES, OpenAIEmbedding, frame, no_tokens, write_parts
from service.protocols.openai.fields import Numbers
from service.replies.style import Format
from service.tasks.chunks import NoTokens
from service.tasks.embed import EmbedOptions, plan_encode
from service.tasks.precision import Precision
from service.tasks.prompts import choose_prompt, find_prompt
from service.tasks.results import Expected, Item
from service.tasks.view import View

_FEWER = "send fewer documents, or ask for a smaller `output_dimension`"
_NAMES = {"dimensions": "output_dimension", "precision": "output_dtype"}
_WHOLE = Truncation(allowed=False)


def _documents(value: object) -> Sequence[Sequence[str]]:
    if not isinstance(value, list) or not value:
        raise invalid("inputs", "must be a list of at least one document, each a list of its parts")
    for i, parts in enumerate(value):
        if not isinstance(parts, list) or not parts:
            raise invalid(f"inputs.{i}", "must be a list of at least one string, the parts of a document")
        if (wrong := first_other(parts, str)) is not None:
            raise invalid(f"inputs.{i}.{wrong}", "must be a string, a part of the document")
    return value


_PARTS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
Documents = Annotated[
    Sequence[Sequence[str]],
    PlainValidator(_documents),
    WithJsonSchema({"type": "array", "items": _PARTS, "minItems": 1}),
]


def _off(value: object) -> bool:
    """Accept only `false`; `0` is none."""
    if value is not False:
        raise invalid("enable_auto_chunking", "must be false: send the parts, or see chunks of /encode")
    return value


Off = Annotated[bool, PlainValidator(_off), WithJsonSchema({"type": "boolean", "const": False})]


class ContextualizedRequest(Fields):
    """Documents as lists of their parts. Unknown fields are ignored."""

    listed: ClassVar[str] = "inputs"
    example: ClassVar[str] = '{"inputs": [["a part", " and another"]]}'
    formats: ClassVar[tuple[Format, ...]] = ("json",)
    fewer_values: ClassVar[str] = "send fewer documents, or a document with many parts as several"

    model: StrictStr | None = Field(None, description="One of the served models; the first by default.")
    inputs: Documents = Field(description="For each document the list of its parts, in order.")
    input_type: StrictStr | None = Field(
        None, description="`query` or `document`: chooses the model's prompt, put before each document."
    )
    output_dimension: PositiveNumber | None = Field(
        None, description="Keep the first k components, renormalized."
    )
    output_dtype: Numbers = Field("float", description="As `precision` of `/encode`.")
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="`base64` is the bytes of the numbers, floats as float32, little-endian."
    )
    enable_auto_chunking: Off = Field(
        False,  # noqa: FBT003
        description="Only `false`: send the parts, or see `chunks` of `/encode`.",
    )

    @property
    def precision(self) -> Precision:
        """The type of the numbers."""
        return "float32" if self.output_dtype == "float" else self.output_dtype


class ContextualizedDocument(BaseModel):
    """The vectors of a document's parts, in their order."""

    object: Literal["list"] = "list"
    data: list[OpenAIEmbedding]
    index: int


class ContextualizedResponse(BaseModel):
    """The vectors of all documents, in their order."""

    object: Literal["list"] = "list"
    data: list[ContextualizedDocument]
    model: str
    usage: dict[str, int]


async def contextualized(request: Request) -> Response:
    """Return the vector of each part of each document: the mean of its tokens in the whole."""
    parsed = await read_request(request, ContextualizedRequest, counted="inputs")
    exchange = Exchange.open(request, parsed)
    exchange.cutting, exchange.names = "", _NAMES
    return await exchange.in_time(_embed(exchange, parsed.body))


async def _embed(exchange: Exchange, body: ContextualizedRequest) -> Response:
    info = exchange.engine.info
    wholes = ["".join(parts) for parts in body.inputs]
    try:
        encodings = await exchange.tokenize(wholes, _WHOLE, _choose_prompt(body, info))
    except InputTooLong as error:
        if len(body.inputs[int(error.field.rpartition(".")[2])]) == 1:
            raise
        error.way_out = "its parts run as one text, so send them as several documents"
        raise
    exchange.frame = partial(frame, exchange.engine.name)
    exchange.value = partial(_document, base64=body.encoding_format == "base64")
    style = exchange.style(precision=body.precision)
    return await exchange.answer(style, encodings, lambda i, one: _plan(i, one, body, info), _FEWER)


def _plan(index: int, encoding: Encoding, body: ContextualizedRequest, info: ModelInfo) -> View:
    """Plan one document; raises the problem of a part without tokens."""
    parts = body.inputs[index]
    spans = tuple(pairwise(accumulate(map(len, parts), initial=0)))
    options = EmbedOptions(
        (),
        normalize=True,
        dimensions=body.output_dimension,
        precision=body.precision,
        chunks=spans,
        chunks_needed=True,
    )
    plan = plan_encode(options, info, info.default_task)
    try:
        view = plan.view(index, encoding, "".join(parts))
    except NoTokens as error:
        field = f"inputs.{index}.{error.number}"
        raise no_tokens(error, field, parts[error.number], f"The parts of inputs.{index}") from None
    expected = Expected(view.expected.arrays, column_bytes=ITEM_BYTES * (1 + len(parts)))
    return View(view.want, {"index": index}, expected, precision=plan.precision)


def _choose_prompt(body: ContextualizedRequest, info: ModelInfo) -> str:
    if body.input_type is None:
        return choose_prompt(info)
    name = find_prompt("input_type", body.input_type, info)
    return "" if name is None else info.prompts[name]


def _document(item: Item, *, base64: bool) -> dict[str, Any]:
    return {"object": "list", "data": write_parts(item, base64=base64), "index": item.columns["index"]}
