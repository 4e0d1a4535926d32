"""`POST /predict`: the labels of texts, or of their tokens."""

from typing import ClassVar, Literal

from pydantic import BaseModel, Field, StrictBool, model_validator
from starlette.responses import Response

from service.protocols.exchange import Exchange
from service.protocols.fields import PositiveNumber, invalid
from service.protocols.labelling import label
from service.protocols.native.interventions_field import WithInterventions
from service.protocols.native.responses import MapsItem, Usage
from service.protocols.native.schemas import (
    ATTENTION_NAMES,
    AttentionOptions,
    ModelRequest,
    WithInputs,
)
from service.replies.style import Format
from service.tasks.heads import check_head
from service.tasks.label import HEADS, LabelOptions, choose_labelling


class PredictRequest(WithInterventions, ModelRequest, WithInputs):
    """Texts to label, whole or token by token, as the model was trained to."""

    formats: ClassVar[tuple[Format, ...]] = ("json", "ndjson")
    elsewhere: ClassVar[dict[str, str]] = dict.fromkeys(
        ("parameters", "truncation_direction"), "/tei/predict"
    )

    raw_scores: StrictBool = Field(
        False,  # noqa: FBT003
        description="Return the model's logits instead of probabilities.",
    )
    top_k: PositiveNumber | None = Field(
        None, description="Return the k labels with the largest scores; all by default. Not for tokens."
    )
    aggregation: Literal["none", "simple", "first", "average", "max"] = Field(
        "none",
        description="Only for token labels. `none` returns the label of each token. The others join "
        "neighbouring tokens with the same label into `entities`. `first`, `average` and `max` first give "
        "all tokens of a word one label: that of its first token, their mean probability or their largest "
        "one.",
    )
    attention: AttentionOptions | None = Field(
        None, description="Attention from the same pass, with the options of `/attention`; none by default."
    )

    @model_validator(mode="after")
    def _effective(self) -> "PredictRequest":
        if self.raw_scores and self.aggregation != "none":
            raise invalid(
                "raw_scores", "must be false with aggregation, which joins tokens by their probabilities"
            )
        return self


class LabelScore(BaseModel):
    """A label of a text."""

    label: str
    score: float


class Entity(BaseModel):
    """Neighbouring tokens of one label."""

    label: str = Field(description="Without the `B-` or `I-` of its tokens.")
    score: float = Field(description="The mean over its words, or with `simple` over its tokens.")
    start: int = Field(description="Where it begins in its text, in Unicode code points.")
    end: int
    text: str
    segment: int = Field(description="The text of a pair that it is in, 0 or 1.")


class PredictItem(MapsItem):
    """The labels of one input, and with `attention` its maps."""

    labels: list[LabelScore] | None = Field(
        None, description="Labels of the whole input, largest score first. Absent if the model labels tokens."
    )
    token_labels: list[str] | None = Field(
        None, description='The label of each token, with "aggregation": "none". Special tokens have one too.'
    )
    token_scores: list[float] | None = Field(None, description="The scores of `token_labels`.")
    entities: list[Entity] | None = Field(None, description='In order, without the label "O".')


class PredictResponse(BaseModel):
    """The response of `/predict`."""

    model: str
    axes: list[Literal["layer", "head", "query", "key"]] | None = Field(
        None, description="With `attention`: the axes of the maps."
    )
    data: list[PredictItem]
    usage: Usage


async def predict(exchange: Exchange, body: PredictRequest) -> Response:
    """Label texts with a classifier, or their tokens with a token classifier."""
    exchange.decimals = None if body.attention is None else body.attention.decimals
    head = check_head(exchange.engine, exchange.state.engines, *HEADS)
    labelling = choose_labelling(exchange.engine, head, body.fill(LabelOptions))
    exchange.names = ATTENTION_NAMES  # from here on: the labels have a `top_k`, too
    maps = None if body.attention is None else body.attention.options
    return await label(exchange, body.inputs, body.truncation, head, labelling, maps)
