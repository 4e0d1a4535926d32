"""`/v1/contextualizedembeddings`: a vector for each part of documents, each of which runs as a whole."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, PlainValidator, StrictStr, WithJsonSchema
from starlette.responses import Response

from model.tokenization.tokenizer import Truncation
from service.protocols.embedding import prompt_of
from service.protocols.exchange import Exchange
from service.protocols.fields import PositiveNumber, WholeNumber, invalid, text_list
from service.protocols.lenient import Asked
from service.protocols.openai.embeddings import OpenAIEmbedding, frame, write_parts
from service.protocols.openai.fields import OVERLAP, Numbers
from service.protocols.openai.parts import Documents, embed_parts
from service.tasks.embed import EmbedOptions
from service.tasks.results import Item

_FEWER = "send fewer documents, or ask for a smaller `output_dimension`"
_NAMES = {"dimensions": "output_dimension", "precision": "output_dtype"}


def _documents(value: object) -> Sequence[Sequence[str]]:
    if not isinstance(value, list) or not value:
        raise invalid("inputs", "must be a list of at least one document, each a list of its parts")
    return [text_list(parts, f"inputs.{i}") for i, parts in enumerate(value)]


_PARTS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
ListsOfParts = Annotated[
    Sequence[Sequence[str]],
    PlainValidator(_documents),
    WithJsonSchema({"type": "array", "items": _PARTS, "minItems": 1}),
]


def _off(value: object) -> bool:
    """Accept only `false`, not even `0`."""
    if value is not False:
        raise invalid("enable_auto_chunking", "must be false: send the parts, or see chunks of /encode")
    return value


Off = Annotated[bool, PlainValidator(_off), WithJsonSchema({"type": "boolean", "const": False})]


class ContextualizedRequest(Asked):
    """Documents as lists of their parts. Unknown fields are ignored."""

    example: ClassVar[str] = '{"inputs": [["a part", " and another"]]}'
    fewer_values: ClassVar[str] = "send fewer documents, or split a document with many parts into several"

    inputs: ListsOfParts = Field(description="For each document the list of its parts, in order.")
    input_type: StrictStr | None = Field(
        None, description="`query` or `document`: chooses the model's prompt, put before each document."
    )
    output_dimension: PositiveNumber | None = Field(
        None, description="Keep the first k components, renormalized."
    )
    output_dtype: Numbers = Field("float", description="Like `precision` of `/encode`.")
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="`base64` is the bytes of the numbers, floats as float32, little-endian."
    )
    overlap: WholeNumber | None = OVERLAP
    enable_auto_chunking: Off = Field(
        default=False, description="Only `false`: send the parts, or see `chunks` of `/encode`."
    )

    def options(self) -> EmbedOptions:
        """Return the options of the vectors that are asked for."""
        precision = "float32" if self.output_dtype == "float" else self.output_dtype
        return EmbedOptions(
            normalize=True, dimensions=self.output_dimension, precision=precision, chunks_needed=True
        )


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


async def contextualized(exchange: Exchange, body: ContextualizedRequest) -> Response:
    """Return the vector of each part of each document: the mean of its tokens in the whole."""
    info = exchange.engine.info
    exchange.cutting, exchange.names = "", _NAMES
    exchange.frame = partial(frame, exchange.engine.name)
    exchange.value = partial(_document, base64=body.encoding_format == "base64")
    documents = Documents(
        body.inputs,
        "inputs.{}".format,
        "inputs.{}.{}".format,
        "The parts of {}",
        windowed=True,
        overlap=body.overlap,
    )
    prompt, task = prompt_of(body.input_type, info), info.default_task
    return await embed_parts(exchange, documents, body.options(), Truncation(), prompt, _FEWER, task)


def _document(item: Item, *, base64: bool) -> dict[str, Any]:
    return {"object": "list", "data": write_parts(item, base64=base64), "index": item.columns["index"]}
