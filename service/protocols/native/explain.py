"""`POST /explain`: which words make two texts similar."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, PlainValidator, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from model.contract import Pooling, Similarity
from service.http.request_body import read_request
from service.protocols.exchange import Exchange
from service.protocols.explaining import explain as answer_explain
from service.protocols.fields import PositiveNumber, invalid, texts_or_pairs
from service.protocols.native.responses import TokenColumns, Usage
from service.protocols.native.schemas import DIMENSIONS, NO_MAPS, POOLING, TaskRequest
from service.tasks.explain import ExplainOptions, Method
from service.tasks.units import Unit


def _pairs(value: object) -> Any:
    """Read a list of pairs."""
    texts = texts_or_pairs(value)
    if isinstance(texts[0], str):
        raise invalid(
            "inputs",
            "must be pairs, whose similarity is explained, such as "
            '[["How old are you?", "What is your age?"]]: a list of two strings is two texts',
        )
    return texts


_PAIR = {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}
_PAIRS = {"type": "array", "items": _PAIR, "minItems": 1, "examples": [[["A text.", "Its pair."]]]}


class ExplainRequest(TaskRequest):
    """Pairs of texts whose similarity is explained."""

    example: ClassVar[str] = '{"inputs": [["a text", "another"]]}'
    no_uint8: ClassVar[str] = NO_MAPS

    inputs: Annotated[Any, PlainValidator(_pairs), WithJsonSchema(_PAIRS)] = Field(
        description="A list of `[text, text_pair]`; for late interaction, of `[query, document]`."
    )
    method: Method = Field(
        "parts",
        description="`parts`: the similarity as a sum over the units of the one text and those of the other, "
        "exact.",
    )
    unit: Unit = Field(
        "word",
        description="What the explanation speaks of; each special token and each of a prompt is a unit of "
        "its own.",
    )
    function: Similarity | None = Field(
        None, description="`cosine` or `dot`; the model's own by default. Late interaction has MaxSim alone."
    )
    pooling: Pooling | None = POOLING
    dimensions: PositiveNumber | None = DIMENSIONS

    @property
    def options(self) -> ExplainOptions:
        """What to explain."""
        return ExplainOptions(
            self.inputs,
            self.method,
            self.unit,
            self.function,
            self.pooling,
            self.dimensions,
            self.task,
            self.prompt_name,
            self.prompt,
            self.truncation,
        )


class UnitColumns(BaseModel):
    """The units of both texts, in lists of equal length: those of the first text come first."""

    text: list[str] = Field(
        description="For special and prompt tokens, the token itself; `bias` for what layers after the "
        "pooling add, whatever the text is."
    )
    offsets: list[tuple[int, int]] = Field(
        description="`[start, end]` in the unit's text, in Unicode code points; `[0, 0]` for special and "
        "prompt tokens."
    )
    segment: list[int] = Field(description="The text that each unit is of, 0 or 1.")
    token_spans: list[tuple[int, int]] = Field(description="`[first, after]`: positions of its tokens.")


class ExplainItem(TokenColumns):
    """The explanation of one input; its tokens are those of both texts, one after the other."""

    units: UnitColumns
    function: Literal["cosine", "dot", "euclidean", "manhattan", "max_sim"] | None = Field(
        None, description="How the texts are compared."
    )
    score: float = Field(description="What is explained: the similarity, as `/similarity` returns it.")
    parts: list[list[float]] | None = Field(
        None, description="(units of the first text, units of the second), with the sum `score`."
    )


class ExplainResponse(BaseModel):
    """The response of `/explain`."""

    model: str
    method: Method
    data: list[ExplainItem]
    usage: Usage


async def explain(request: Request) -> Response:
    """Explain the similarity of two texts by their words."""
    parsed = await read_request(request, ExplainRequest, counted="inputs")
    exchange = Exchange.open(request, parsed)
    return await exchange.in_time(answer_explain(exchange, parsed.body.options))
