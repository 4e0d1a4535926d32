"""`/predict`: labels of texts, and the entities in them in the form of the Hugging Face Hub."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field, StrictBool
from starlette.responses import Response

from model.contract import HeadInfo
from model.heads.spans import SpanLabels
from service.http.unknown_routes import HUB_JS
from service.problems import Problem
from service.protocols.exchange import Exchange
from service.protocols.fields import PositiveNumber
from service.protocols.labelling import label
from service.protocols.lenient import Fields
from service.protocols.tei.fields import TextsOrPairs, WithInputs
from service.tasks.heads import check_head
from service.tasks.label import HEADS, Arrays, EntityLabels, Labelling, TextLabels, TokenizedInput


class LabelParameters(Fields):
    """The options of `text_classification` and `token_classification` of the Hub's client."""

    top_k: PositiveNumber | None = Field(None, description="Return the k labels with the largest scores.")
    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = Field(
        None, description="`none` returns logits; otherwise the model's own function, or left out."
    )
    aggregation_strategy: Literal["simple", "first", "average", "max"] = Field(
        "simple", description="How tokens are joined into entities, like `aggregation` of the native route."
    )


class TeiPredictRequest(WithInputs):
    """Texts or pairs to label."""

    inputs: TextsOrPairs = Field(
        description="A text; the two texts of one pair; or a list of lists of one or two texts."
    )
    raw_scores: StrictBool = Field(default=False, description="Return logits.")
    parameters: LabelParameters | None = Field(
        None,
        description="Options of the Hub's client; a single input's labels are then in a list of their own.",
    )


class TeiLabel(BaseModel):
    """A label of a text."""

    score: float
    label: str


class TeiEntity(BaseModel):
    """Neighbouring tokens of one label."""

    entity_group: str
    score: float
    word: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class HubEntities(EntityLabels):
    """Entities, with the Hub's names for their fields."""

    def label(self, logits: Arrays, reading: TokenizedInput, /) -> tuple[Mapping[str, Any], Arrays]:
        """Make `entities` from the logits (N, labels)."""
        entities = [
            {
                "entity_group": one["label"],
                "score": one["score"],
                "word": one["text"],
                "start": one["start"],
                "end": one["end"],
            }
            for one in self.find(logits, reading)
        ]
        return {"entities": entities}, {}


async def predict(exchange: Exchange, body: TeiPredictRequest) -> Response:
    """Return the labels of each input, the largest score first; of a token classifier, entities."""
    head = check_head(exchange.engine, exchange.state.engines, *HEADS)
    labelling = _labelling(exchange, head, body)
    entities = head.kind == "token_classification"
    alone = body.inputs.flat and (entities or not _is_of_hub(exchange, body))
    column = "entities" if entities else "labels"
    exchange.value, exchange.alone = lambda item: item.columns[column], alone
    texts, field = body.inputs.inputs, "parameters.top_k"
    return await label(exchange, texts, body.truncation, head, labelling, fewer_labels=field)


def _is_of_hub(exchange: Exchange, body: TeiPredictRequest) -> bool:
    """Whether the client is one of the Hub's, which expect the labels of a single text in a list of lists.

    The one in JavaScript omits `parameters` if it has none; then only its User-Agent identifies it.
    """
    return body.parameters is not None or exchange.request.headers.get("user-agent", "").startswith(HUB_JS)


def _labelling(exchange: Exchange, head: HeadInfo, body: TeiPredictRequest) -> Labelling:
    parameters = body.parameters or LabelParameters()
    if head.kind == "token_classification":
        grouping = parameters.aggregation_strategy
        return HubEntities(head, SpanLabels.of(head.labels), grouping, exchange.engine.subwords)
    function = parameters.function_to_apply
    if function not in (None, "none", head.activation):
        raise Problem(
            "invalid-request",
            f'parameters.function_to_apply is "{function}", but this model uses '
            f'{head.activation}: leave it out, or choose "none" for logits.',
            members={"field": "parameters.function_to_apply", "actual": function},
        )
    most = min(parameters.top_k or len(head.labels), len(head.labels))
    return TextLabels(head, most, body.raw_scores or function == "none")
