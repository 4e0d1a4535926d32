"""`POST /predict`: the labels of texts, or of their tokens."""

from typing import ClassVar, Literal

from pydantic import BaseModel, Field, StrictBool, model_validator
from starlette.requests import Request
from starlette.responses import Response

from model.contract import Encoding, HeadInfo, HeadKind
from model.errors import Unsupported
from model.heads.spans import SpanLabels
from model.tokenization.tokenizer import Text, Truncation
from service.endpoints import Endpoint
from service.engine.engine import Engine
from service.http.request_body import ParsedRequest, read_request
from service.protocols.exchange import Exchange, check_count
from service.protocols.labelling import (
    EntityLabels,
    LabelledView,
    Labelling,
    TextLabels,
    TokenizedInput,
    TokenLabels,
)
from service.protocols.native.attention_plan import plan_attention
from service.protocols.native.encode_plan import plan_encode
from service.protocols.native.examples import EXAMPLES
from service.protocols.native.fields import PositiveNumber, invalid
from service.protocols.native.responses import MapsItem, Usage
from service.protocols.native.routes import any_of, planning_steps, smaller_maps
from service.protocols.native.schemas import NO_VECTORS, AttentionOptions, ModelRequest, WithInputs
from service.protocols.needed_head import check_head
from service.protocols.view import View
from service.serialization.items import Format

_PREFIX = "attention."
LABELLING_HEADS: tuple[HeadKind, ...] = ("classification", "token_classification")
# Python steps to bound the bytes of a token's entity, and of a label's name.
_STEPS_PER_TOKEN = 10
_STEPS_PER_LABEL = 5


class PredictRequest(ModelRequest, WithInputs):
    """Texts to label, whole or token by token, as the model was trained to."""

    formats: ClassVar[tuple[Format, ...]] = ("json", "ndjson")
    elsewhere: ClassVar[dict[str, str]] = dict.fromkeys(
        ("parameters", "truncation_direction"), "/tei/predict"
    )

    raw_scores: StrictBool = Field(
        False,  # noqa: FBT003
        description="Return the model's logits in place of probabilities.",
    )
    top_k: PositiveNumber | None = Field(
        None, description="Return the k labels of the largest scores; all by default. Not for tokens."
    )
    aggregation: Literal["none", "simple", "first", "average", "max"] = Field(
        "none",
        description="Of tokens alone: `none` returns the label of each. The others join neighbouring tokens "
        "of one label to `entities`. `first`, `average` and `max` first give all tokens of a word one label: "
        "that of its first token, of the mean of their probabilities, or of the largest one.",
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
        None, description="Of the whole input, the largest score first. Absent if the model labels tokens."
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


async def predict(request: Request) -> Response:
    """Label texts with a classifier, or their tokens with a token classifier."""
    parsed = await read_request(request, PredictRequest)
    check_count(parsed.count, request.app.state.service.settings)
    exchange = Exchange.open(request, parsed)
    return await exchange.in_time(_predict(exchange, parsed.body))


async def _predict(exchange: Exchange, body: PredictRequest) -> Response:
    head = check_head(exchange.engine, exchange.state.engines, *LABELLING_HEADS)
    return await label(exchange, body, head, _choose_labelling(exchange.engine, head, body))


async def label(exchange: Exchange, body: PredictRequest, head: HeadInfo, labelling: Labelling) -> Response:
    """Answer with what `labelling` makes of the logits of each input."""
    info, maps = exchange.engine.info, body.attention
    base = plan_encode(NO_VECTORS, info, info.default_task)
    plan = None if maps is None else plan_attention(maps, info, base, prefix=_PREFIX)
    truncation = Truncation(allowed=body.truncate, side=body.truncation_side)
    encodings = await exchange.tokenize(body.inputs, truncation)

    def view(index: int, encoding: Encoding, text: Text) -> View:
        plain = (base if plan is None else plan).view(index, encoding, text)
        return LabelledView.of(plain, labelling, len(head.labels), TokenizedInput(encoding, text))

    steps = _STEPS_PER_TOKEN * sum(map(len, encodings)) + _STEPS_PER_LABEL * len(head.labels)
    steps += 0 if maps is None else planning_steps(maps, encodings)
    views = await exchange.off_loop(
        lambda: [view(i, *one) for i, one in enumerate(zip(encodings, body.inputs, strict=True))],
        steps=steps,
    )
    style = exchange.style()
    if maps is not None and plan is not None:
        style = exchange.style(decimals=maps.decimals, unit=plan.unit, axes=plan.axes)
    return await exchange.answer(style, encodings, views, _way_out(exchange.parsed, head, body))


def _choose_labelling(engine: Engine, head: HeadInfo, body: PredictRequest) -> Labelling:
    """Choose what to make of the logits; raises Unsupported for options of the other kind of classifier."""
    if head.kind == "classification":
        if body.is_overridden("aggregation"):
            raise Unsupported(
                f"aggregation is {body.aggregation}, which joins the tokens of a token_classification head, "
                f'and the model "{engine.name}" labels whole texts: leave it out.',
                field="aggregation",
            )
        return TextLabels(head, min(body.top_k or len(head.labels), len(head.labels)), body.raw_scores)
    if body.top_k is not None:
        raise Unsupported(
            f"top_k is {body.top_k}, which chooses labels of a whole text, and the model "
            f'"{engine.name}" labels tokens, each with one label: leave it out.',
            field="top_k",
        )
    if body.aggregation == "none":
        return TokenLabels(head, body.raw_scores)
    return EntityLabels(head, SpanLabels.of(head.labels), body.aggregation, engine.subwords)


def _way_out(parsed: ParsedRequest[PredictRequest], head: HeadInfo, body: PredictRequest) -> str:
    """Suggest what would make this request's response smaller."""
    ways = ["send fewer inputs"]
    ways += ["lower `top_k`"] if head.kind == "classification" else ["send shorter texts"]
    ways += [] if body.attention is None else smaller_maps(body.attention, parsed, _PREFIX)
    return any_of(ways)


ENDPOINTS = (
    Endpoint(
        "/predict",
        predict,
        ("POST",),
        summary="Labels of texts and of their tokens",
        request=PredictRequest,
        examples=EXAMPLES["/predict"],
        responses={200: {"model": PredictResponse}},
        guarded=True,
    ),
)
