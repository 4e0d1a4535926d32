"""`POST /explain`: which words make a score."""

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, Field, PlainValidator, StrictBool, WithJsonSchema
from starlette.responses import Response

from model.contract import Pooling, Similarity
from service.echo import cut
from service.protocols.exchange import Exchange
from service.protocols.fields import PositiveNumber, StepCount, invalid, whole_number
from service.protocols.native.explaining import explain as answer_explain
from service.protocols.native.interventions_field import WithInterventions
from service.protocols.native.responses import TokenColumns, Usage
from service.protocols.native.schemas import DIMENSIONS, NO_MAPS, POOLING, TaskRequest, WithInputs
from service.tasks.explanations.gradient import Baseline
from service.tasks.explanations.plan import ExplainOptions, Method, Replacement
from service.tasks.explanations.targets import TargetKind, TargetOption
from service.tasks.explanations.units import Unit

_KINDS: tuple[TargetKind, ...] = get_args(TargetKind)


def _target(value: object) -> TargetOption:
    kind = next((kind for kind in _KINDS if kind == value), None)
    if kind is not None:
        return TargetOption(kind)
    if not isinstance(value, dict) or not value:
        raise invalid(
            "target",
            'must be "similarity", "score" or "label", or an object such as {"label": "positive"} or '
            '{"token": 3}',
        )
    if unknown := value.keys() - {"label", "token"}:
        raise invalid("target", f'has the unknown field "{cut(min(unknown))}": choose label and token')
    label = value.get("label")
    if label is not None and not isinstance(label, str):
        raise invalid("target.label", "must be a string, the name of a label")
    token = value.get("token")
    return TargetOption("label", label, None if token is None else whole_number(token, "target.token"))


_LABEL = {"type": "string", "description": "The predicted one by default."}
_TOKEN = {
    "type": "integer",
    "description": "In the whole input; negative positions count from the end.",
}
_TARGET: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "enum": _KINDS},
        {
            "type": "object",
            "properties": {"label": _LABEL, "token": _TOKEN},
            "minProperties": 1,
            "additionalProperties": False,
        },
    ]
}


class ExplainRequest(TaskRequest, WithInputs, WithInterventions):
    """Texts or pairs, a score of which is explained by their words."""

    example: ClassVar[str] = '{"inputs": [["a text", "another"]]}'
    no_uint8: ClassVar[str] = NO_MAPS

    target: Annotated[Any, PlainValidator(_target), WithJsonSchema(_TARGET)] | None = Field(
        None,
        description="What is explained: the `similarity` of the two texts of each pair, a cross-encoder's "
        "`score`, the logit of a `label` by its name, or with `token` the logit of the token at this "
        "position. By default, what the model is for; for a classifier, the label that it predicts.",
    )
    method: Method | None = Field(
        None,
        description="`parts`: the similarity as an exact sum over the units of the one text and the units of "
        "the other. `occlusion`: what the score loses without each unit (Zeiler & Fergus 2014). `heads`: "
        "what it loses without each head (Michel et al. 2019). `gradient`: integrated gradients with "
        "respect to the embeddings (Sundararajan et al. 2017), on PyTorch only. `parts` by default where a "
        "score has parts, otherwise `occlusion`.",
    )
    unit: Unit | None = Field(
        None,
        description="The units that the explanation scores, `word` by default. With `parts`, each special "
        "token and each prompt token is also a unit.",
    )
    replacement: Replacement | None = Field(
        None,
        description="With `occlusion` and `faithfulness`: whether the tokens of a unit are replaced by "
        "the tokenizer's mask token or removed. By default, tokens are removed if the vectors of two texts "
        "are compared, since masks in both make these alike; otherwise they are masked, if possible.",
    )
    steps: StepCount | None = Field(
        None,
        description="With `gradient`: the number of points between the baseline and the text at which "
        "gradients are computed, 32 by default. More points make the `residual` smaller.",
    )
    faithfulness: StrictBool = Field(
        False,  # noqa: FBT003
        description="Also return how faithful the explanation is (DeYoung et al. 2020): comprehensiveness, "
        "what the score loses without the first 10, 20 and 50 % of the units, by what they add; sufficiency, "
        "what it loses if only these remain; and both for units in random order.",
    )
    function: Similarity | None = Field(
        None,
        description="How vectors are compared; the model's own function by default. Only `cosine` and `dot` "
        "have parts; late interaction always uses MaxSim.",
    )
    pooling: Pooling | None = POOLING
    dimensions: PositiveNumber | None = DIMENSIONS

    @property
    def options(self) -> ExplainOptions:
        """What to explain."""
        return self.fill(ExplainOptions)


class UnitColumns(BaseModel):
    """The units of an input, in lists of equal length and in order."""

    text: list[str] = Field(
        description="For special and prompt tokens, the token itself; `bias` for what layers after the "
        "pooling add to every text alike."
    )
    offsets: list[tuple[int, int]] = Field(
        description="`[start, end]` in the unit's text, in Unicode code points; `[0, 0]` for special and "
        "prompt tokens."
    )
    segment: list[int] = Field(description="The text that each unit belongs to, 0 or 1.")
    token_spans: list[tuple[int, int]] = Field(description="`[first, after]`: positions of its tokens.")


class FaithfulnessColumns(BaseModel):
    """Losses of the score, for each of `shares`."""

    shares: list[float]
    comprehensiveness: list[float] = Field(description="Without these units: the larger, the better.")
    sufficiency: list[float] = Field(description="With these units alone: the smaller, the better.")
    random_comprehensiveness: list[float] = Field(description="The mean of three random orders.")
    random_sufficiency: list[float]


class ExplainItem(TokenColumns):
    """The explanation of one input; the tokens of two texts that run apart stand one after the other."""

    units: UnitColumns | None = Field(None, description="Absent with the method `heads`.")
    function: Literal["cosine", "dot", "euclidean", "manhattan", "max_sim", "mean_max_sim"] | None = Field(
        None, description="How the texts are compared."
    )
    label: str | None = Field(None, description="The label that is explained.")
    token: int | None = Field(None, description="The position of the token that has it.")
    probability: float | None = Field(None, description="The label's score, as `/predict` returns it.")
    sigmoid: float | None = Field(None, description="Of a cross-encoder's `score`, which is a logit.")
    replacement: Replacement | None = Field(None, description="What the tokens of a unit became.")
    baseline: Baseline | None = Field(
        None,
        description="With `gradient`: the token that replaces each token of the texts in the baseline.",
    )
    baseline_scores: list[float] | None = Field(
        None,
        description="With `gradient`: the score of the baseline. For two texts that run separately: one "
        "score with the baseline of each text and the whole other text.",
    )
    score: float = Field(description="What is explained: a similarity or a logit.")
    residual: float | None = Field(
        None,
        description="With `gradient`: the sum of `score` minus each baseline score, minus all "
        "`attributions`.",
    )
    parts: list[list[float]] | None = Field(
        None, description="(units of the first text, units of the second); they sum to `score`."
    )
    attributions: list[float] | None = Field(
        None,
        description="(units,): `score` minus the score without the unit; with `gradient`, what the unit adds "
        "to the score of the baseline.",
    )
    faithfulness: FaithfulnessColumns | None = None
    heads: list[list[float]] | None = Field(
        None, description="(layers, heads): `score` minus the score with the head's output set to 0."
    )


class ExplainResponse(BaseModel):
    """The response of `/explain`."""

    model: str
    method: Method
    data: list[ExplainItem]
    usage: Usage


async def explain(exchange: Exchange, body: ExplainRequest) -> Response:
    """Explain a similarity, a score or a label by the words of the texts."""
    return await answer_explain(exchange, body.options)
