"""`POST /similarity`: how similar texts are to one text, or all to all."""

from typing import ClassVar

from pydantic import BaseModel, Field, StrictStr
from starlette.responses import Response

from model.contract import Similarity
from service.protocols.embedding import compare
from service.protocols.exchange import Exchange
from service.protocols.fields import TextList
from service.protocols.native.interventions_field import WithInterventions
from service.protocols.native.responses import Usage
from service.protocols.native.schemas import NO_MAPS, TaskRequest
from service.replies.style import Format
from service.tasks.compare import CompareOptions


class SimilarityRequest(WithInterventions, TaskRequest):
    """Texts to compare."""

    listed: ClassVar[str] = "texts"
    example: ClassVar[str] = '{"texts": ["a text", "another"]}'
    elsewhere: ClassVar[dict[str, str]] = dict.fromkeys(("inputs", "source_sentence"), "/tei/similarity")
    formats: ClassVar[tuple[Format, ...]] = ("json", "npz", "safetensors")

    no_uint8: ClassVar[str] = NO_MAPS

    source: StrictStr | None = Field(
        None,
        description="The text that each of `texts` is compared with; without it, all are compared with each "
        "other.",
    )
    texts: TextList = Field(description="The texts to compare.", examples=[["One text.", "Another text."]])
    function: Similarity | None = Field(
        None,
        description="How vectors are compared; the model's own function by default. `euclidean` and "
        "`manhattan` are negative distances, so that larger is always more similar.",
    )


class SimilarityResponse(BaseModel):
    """The response of `/similarity`."""

    model: str
    function: Similarity
    similarities: list[float] | list[list[float]] = Field(
        description="(texts,) with `source`, otherwise (texts, texts)."
    )
    usage: Usage


async def similarity(exchange: Exchange, body: SimilarityRequest) -> Response:
    """Compare the sentence vectors of texts: with that of one text, or all with all."""
    return await compare(exchange, body.fill(CompareOptions))
