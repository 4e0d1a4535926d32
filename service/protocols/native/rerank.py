"""`POST /rerank`: texts in the order in which they match a query."""

from typing import ClassVar

from pydantic import BaseModel, Field, StrictBool
from starlette.responses import Response

from service.protocols.exchange import Exchange
from service.protocols.fields import NonEmptyText, PositiveNumber, TextList
from service.protocols.native.interventions_field import WithInterventions
from service.protocols.native.responses import COVERED, AttentionItem, Covered, Usage
from service.protocols.native.schemas import (
    ATTENTION_NAMES,
    AttentionOptions,
    PromptRequest,
)
from service.protocols.native.weights_field import Weights
from service.protocols.reranking import rank
from service.replies.style import Format
from service.tasks.rank import Method, RankOptions


class RerankRequest(WithInterventions, PromptRequest):
    """Texts to rank by how well they match a query."""

    listed: ClassVar[str] = "texts"
    example: ClassVar[str] = '{"query": "a question", "texts": ["a text"]}'
    elsewhere: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("return_text", "truncation_direction"), "/tei/rerank"),
        **dict.fromkeys(("documents", "return_documents"), "/v1/rerank"),
    }
    formats: ClassVar[tuple[Format, ...]] = ("json",)

    query: NonEmptyText = Field(description="The query to rank the texts by.")
    texts: TextList = Field(description="The texts to rank.", examples=[["One text.", "Another text."]])
    top_n: PositiveNumber | None = Field(
        None, description="Return the best k texts, or all if there are fewer; all by default."
    )
    return_texts: StrictBool = Field(False, description="Return each text with its score.")  # noqa: FBT003
    raw_scores: StrictBool = Field(
        False,  # noqa: FBT003
        description="Return the logits of a cross-encoder, before its sigmoid.",
    )
    weights: Weights | None = Field(
        None,
        description="For a model with all three kinds of vectors, such as bge-m3: the weights, each at least "
        "0, of the cosine of sentence vectors, the dot product of sparse vectors and the mean of the best "
        "token matches. The sum is divided by the sum of the weights. By default, only the cosine counts.",
    )
    attention: AttentionOptions | None = Field(
        None, description="Also return the attention of each returned pair; only for cross-encoders."
    )


_SCORE = Field(description="How well the text matches the query; larger is better.")
_TEXT = Field(None, description="The text, with `return_texts`.")


class RankedItem(BaseModel):
    """A text with its score."""

    index: int = Field(ge=0, description="The index of the text.")
    score: float = _SCORE
    text: str | None = _TEXT
    truncated: bool
    original_length: int = Field(
        ge=0,
        description="Tokens before truncation: of the pair, or of the text if it runs alone.",
    )
    covered: Covered | None = COVERED


class RankedPair(AttentionItem):
    """A text with its score, and the tokens and attention of the pair of query and text."""

    score: float = _SCORE
    text: str | None = _TEXT


class RerankResponse(BaseModel):
    """The response of `/rerank`."""

    model: str
    method: Method = Field(description="How the model ranks texts.")
    axes: list[str] | None = Field(None, description="The axes of maps, with `attention`.")
    data: list[RankedItem] | list[RankedPair] = Field(
        description="The largest score first; equal scores by their logits, then by index; "
        "with maps if `attention` asks for some."
    )
    usage: Usage


async def rerank(exchange: Exchange, body: RerankRequest) -> Response:
    """Rank texts by how well they match a query, as pairs, by vectors of tokens or by sentence vectors."""
    exchange.names = {"inputs": "texts", **ATTENTION_NAMES}
    exchange.decimals = None if body.attention is None else body.attention.decimals
    attend = None if body.attention is None else body.attention.options
    return await rank(exchange, body.fill(RankOptions, attend=attend))
