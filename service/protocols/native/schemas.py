"""Request schemas; the field descriptions are the API's documentation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StrictBool,
    StrictStr,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from model.contract import STATISTICS, Aggregate, Statistic, Weights
from model.tokenization.tokenizer import Side, Text
from service.http.json_body import MAX_INDICES

Pooling = Literal["mean", "cls", "max", "mean_max", "mean_sqrt_len", "weighted_mean", "last"]
Indices = tuple[int, ...]


def _invalid(field: str, message: str) -> PydanticCustomError:
    return PydanticCustomError("invalid", "{message}", {"field": field, "message": message})


def _whole(value: object, info: ValidationInfo) -> int:
    """Accept whole numbers (6 and 6.0), but no booleans or strings."""
    return _whole_number(value, str(info.field_name))


def _whole_number(value: object, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise _invalid(field, "must be an integer")
    return int(value)


def _indices(value: object, info: ValidationInfo) -> Indices:
    field = str(info.field_name)
    if not isinstance(value, list) or not value:
        raise _invalid(field, "must be a list of at least one integer")
    if len(value) > MAX_INDICES:
        raise _invalid(field, f"has {len(value)} items and the limit is {MAX_INDICES}")
    return tuple(_whole_number(item, f"{field}.{i}") for i, item in enumerate(value))


def _all_or_indices(value: object, info: ValidationInfo) -> Literal["all"] | Indices:
    if value == "all":
        return "all"
    if isinstance(value, str) or not isinstance(value, list):
        raise _invalid(str(info.field_name), 'must be "all" or a list of at least one integer, such as [0]')
    return _indices(value, info)


def _texts(value: object) -> Sequence[Text]:
    """Parse one text, texts, or pairs. A list of two strings is two texts: a pair is always nested."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise _invalid("inputs", "must be a string, or a non-empty list of strings or of [text, text_pair]")
    texts, pairs = [], []
    for i, item in enumerate(value):
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, list) and len(item) == 2 and all(isinstance(text, str) for text in item):
            pairs.append((item[0], item[1]))
        else:
            raise _invalid(f"inputs.{i}", "must be a string or a pair of two strings, [text, text_pair]")
        if texts and pairs:
            raise _invalid(
                f"inputs.{i}",
                "is not of the same kind as inputs.0: texts and pairs cannot be mixed in one request",
            )
    return texts or pairs


_INTEGERS = {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": MAX_INDICES}
_TEXT = {"type": "string"}
_PAIR = {"type": "array", "items": _TEXT, "minItems": 2, "maxItems": 2}
_INPUTS = {
    "anyOf": [
        _TEXT,
        {"type": "array", "items": _TEXT, "minItems": 1},
        {"type": "array", "items": _PAIR, "minItems": 1},
    ],
    "examples": ["Hello, world!", ["One text.", "Another text."], [["A text.", "Its pair."]]],
}

WholeNumber = Annotated[int, BeforeValidator(_whole)]
# Field comes first: after the validator, its bound would be enforced but missing from the schema.
PositiveNumber = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
IndexList = Annotated[Indices, PlainValidator(_indices), WithJsonSchema(_INTEGERS)]
AllOrIndices = Annotated[
    Literal["all"] | Indices,
    PlainValidator(_all_or_indices),
    WithJsonSchema({"anyOf": [{"const": "all", "type": "string"}, _INTEGERS]}),
]
Inputs = Annotated[Sequence[Text], PlainValidator(_texts), WithJsonSchema(_INPUTS)]


class InputsRequest(BaseModel):
    """The fields common to `/encode` and `/attention`."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    inputs: Inputs = Field(
        description="A text, a list of texts, or a list of `[text, text_pair]`. "
        "A list of two strings is two texts; texts and pairs cannot be mixed."
    )
    model: StrictStr | None = Field(None, description="One of the served models; the first by default.")
    truncate: StrictBool = Field(
        True,  # noqa: FBT003
        description="Truncate inputs longer than the model's limit (pairs: the longest text first). "
        "`false` refuses such an input with a 422.",
    )
    truncation_side: Side = Field("right", description="The side from which tokens are removed.")
    prompt_name: StrictStr | None = Field(
        None, description="One of the model's prompts; its `default_prompt_name` by default."
    )
    prompt: StrictStr | None = Field(
        None, description='Prepended to the (first) text. `""` disables the model\'s default prompt.'
    )
    task: StrictStr | None = Field(
        None,
        description="One of the model's tasks, whose adapter the texts run with; its `default_task` by "
        "default. It does not choose a prompt: name that with `prompt_name`.",
    )

    def is_overridden(self, field: str) -> bool:
        """Whether a field was set to a value other than its default; setting the default never matters."""
        if field not in self.model_fields_set:
            return False
        return bool(getattr(self, field) != type(self).model_fields[field].default)

    @model_validator(mode="after")
    def _common_rules(self) -> "InputsRequest":
        if self.prompt is not None and self.prompt_name is not None:
            raise _invalid("prompt", "cannot be combined with prompt_name: leave one of them out")
        if not self.truncate and self.is_overridden("truncation_side"):
            raise _invalid("truncation_side", 'has no effect with "truncate": false: leave one of them out')
        return self


Output = Literal["sentence", "tokens"]
POOLING = Field(
    None,
    description="How token vectors are pooled; the model's own pooling by default. "
    "`mean_max` is the mean and the maximum, concatenated.",
)
NORMALIZE = Field(
    None, description="Scale the sentence vector to unit L2 norm; the model's own setting by default."
)
DIMENSIONS = Field(
    None, description="Keep the first k components (Matryoshka), renormalized with `normalize`."
)
_OF_MAPS = ("weights", "aggregate", "queries", "keys", "top_k")


def _check_pooled(request: InputsRequest, outputs: Sequence[str]) -> None:
    if "sentence" in outputs:
        return
    for field in ("pooling", "pooling_layers", "normalize", "dimensions"):
        if request.is_overridden(field):
            raise _invalid(field, 'has no effect without "sentence" in outputs: leave one of them out')


@dataclass(frozen=True, slots=True)
class EmbeddingOptions:
    """The embeddings that a request of either route asks for."""

    outputs: Sequence[Output]
    pooling: Pooling | None
    normalize: bool | None
    dimensions: int | None
    pooling_layers: Sequence[int] = (-1,)
    layers: Sequence[int] = (-1,)


class EncodeRequest(InputsRequest):
    """Texts to encode as sentence vectors, contextual token vectors, or both."""

    # Defaults are tuples: pydantic copies a list for each request.
    outputs: tuple[Output, ...] = Field(
        ("sentence",),
        min_length=1,
        max_length=2,
        description="The pooled vector, contextual token vectors, or both.",
    )
    pooling: Pooling | None = POOLING
    pooling_layers: IndexList = Field(
        (-1,), description="Hidden states to pool and concatenate; numbered like `layers`."
    )
    normalize: StrictBool | None = NORMALIZE
    dimensions: PositiveNumber | None = DIMENSIONS
    layers: IndexList = Field(
        (-1,),
        description="Hidden states for `tokens`: 0 is the output of the embedding layer, i that of block i; "
        "negative numbers count from the end.",
    )

    @model_validator(mode="after")
    def _effective(self) -> "EncodeRequest":
        _check_pooled(self, self.outputs)
        if "tokens" not in self.outputs and self.is_overridden("layers"):
            raise _invalid(
                "layers", 'has no effect without "tokens" in outputs: leave it out or add "tokens"'
            )
        return self

    @property
    def embeddings(self) -> EmbeddingOptions:
        """The requested embeddings."""
        return EmbeddingOptions(
            self.outputs, self.pooling, self.normalize, self.dimensions, self.pooling_layers, self.layers
        )


class AttentionRequest(InputsRequest):
    """Texts to return attention maps for."""

    layers: AllOrIndices = Field(
        "all", description="Layers, numbered from 0; negative numbers count from the end."
    )
    heads: AllOrIndices = Field(
        "all", description="Heads, numbered from 0; negative numbers count from the end."
    )
    weights: Weights = Field(
        "probability",
        description="The softmax weights; the scaled scores before the softmax; or the norms of the weighted "
        "values that a head sums, ‖α·f(x)‖ with f(x) = (xW_V + b_V)W_O (Kobayashi et al. 2020).",
    )
    aggregate: Aggregate = Field(
        "none",
        description="`mean` or `max` over the selected heads, which removes the head axis. `rollout` "
        "propagates the mean over the selected heads through layers 0 to the largest of `layers` (Abnar & "
        "Zuidema 2020) into one map.",
    )
    special_tokens: Literal["keep", "drop"] = Field(
        "keep", description="`drop` removes the rows and columns of special tokens."
    )
    level: Literal["token", "word"] = Field(
        "token",
        description="`word` sums the columns and averages the rows of a word's tokens (Clark et al. 2019). "
        "Each special or prompt token is a word of its own.",
    )
    queries: AllOrIndices = Field(
        "all",
        description="Rows, by position in the whole input, of tokens or of `words`; "
        "negative numbers count from the end.",
    )
    keys: AllOrIndices = Field("all", description="Columns, numbered likewise. Rows then no longer sum to 1.")
    renormalize: StrictBool = Field(
        False,  # noqa: FBT003
        description="Divide the remaining part of each row by its sum, so that rows sum to 1 again.",
    )
    top_k: PositiveNumber | None = Field(
        None, description="Return the k largest weights of each row, largest first, instead of the map."
    )
    summary: StrictBool = Field(
        False,  # noqa: FBT003
        description="Return statistics of the probabilities of each selected layer and head, over all rows "
        "that `special_tokens` and `level` leave, renormalized with `renormalize`.",
    )
    statistics: list[Statistic] | None = Field(
        None,
        min_length=1,
        max_length=len(STATISTICS),
        description="The statistics in `summary`; all by default. Others are not computed.",
    )
    maps: StrictBool = Field(
        True,  # noqa: FBT003
        description="`false`, only with `summary`: return statistics without maps.",
    )
    outputs: tuple[Output, ...] = Field(
        (), max_length=2, description="Embeddings from the same pass, as in `/encode`; none by default."
    )
    pooling: Pooling | None = POOLING
    normalize: StrictBool | None = NORMALIZE
    dimensions: PositiveNumber | None = DIMENSIONS
    decimals: WholeNumber = Field(6, ge=1, le=9, description="Decimals of maps and summaries in JSON.")

    @model_validator(mode="after")
    def _effective(self) -> "AttentionRequest":
        _check_pooled(self, self.outputs)
        if not self.summary and self.is_overridden("statistics"):
            raise _invalid("statistics", 'has no effect without "summary": true: leave it out')
        if not self.maps:
            self._check_without_maps()
        if self.aggregate == "rollout" and self.weights != "probability":
            raise _invalid("weights", 'must be \'probability\' with "aggregate": "rollout"')
        if self.weights == "score" and self.renormalize:
            raise _invalid(
                "renormalize", 'divides by row sums, which may be 0 with "weights": "score": leave it out'
            )
        return self

    @property
    def embeddings(self) -> EmbeddingOptions:
        """The requested embeddings, of the last layer."""
        return EmbeddingOptions(self.outputs, self.pooling, self.normalize, self.dimensions)

    def _check_without_maps(self) -> None:
        if not self.summary:
            raise _invalid("maps", 'may be false only with "summary": true')
        for field in _OF_MAPS:
            if self.is_overridden(field):
                raise _invalid(field, 'has no effect with "maps": false: leave one of them out')
