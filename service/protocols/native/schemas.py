"""Request schemas; the field descriptions are the API's documentation."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StrictBool, StrictStr, model_validator

from model.choices import HEAD_VECTORS, HeadVector, Statistic
from model.contract import STATISTICS, Aggregate, Pooling, Role, Weights
from model.tokenization.tokenizer import Side, Truncation
from service.http.request_schema import RequestSchema
from service.protocols.fields import (
    AllOrIndices,
    CellCount,
    IndexList,
    Inputs,
    Options,
    PositiveNumber,
    WholeNumber,
    at_most,
    invalid,
)
from service.protocols.native.chunks_field import ChunksField
from service.protocols.native.interventions_field import WithInterventions
from service.protocols.native.selection_fields import Columns, WithEdges, WithPositions, check_outputs
from service.replies.formats import FORMATS
from service.replies.style import Format
from service.tasks.attend import AttendOptions
from service.tasks.embed import EmbedOptions, EncodeOutput
from service.tasks.heads import LensOptions
from service.tasks.precision import Precision
from service.tasks.results import COLUMNS

MODEL = Field(None, description="One of the served models; the first by default.")


class ModelRequest(Options, RequestSchema):
    """The fields common to all routes on which a model reads texts."""

    formats: ClassVar[tuple[Format, ...]] = tuple(FORMATS)
    elsewhere: ClassVar[dict[str, str]] = {"source_sentence": "/tei/similarity"}

    model: StrictStr | None = MODEL
    truncate: StrictBool = Field(
        True,  # noqa: FBT003
        description="Truncate inputs longer than the model's limit (pairs: the longest text first). "
        "`false` refuses such an input with a 422.",
    )
    truncation_side: Side | None = Field(
        None, description="The side from which tokens are removed; if left out, the model's own."
    )

    @property
    def truncation(self) -> Truncation:
        """How texts are truncated."""
        return Truncation(allowed=self.truncate, side=self.truncation_side)

    @model_validator(mode="after")
    def _truncated_somewhere(self) -> "ModelRequest":
        if not self.truncate and self.is_overridden("truncation_side"):
            raise invalid("truncation_side", 'has no effect with "truncate": false: leave one of them out')
        return self


class PromptRequest(ModelRequest):
    """The fields common to all routes that put a prompt before the texts."""

    prompt_name: StrictStr | None = Field(
        None, description="One of the model's prompts; its `default_prompt_name` by default."
    )
    prompt: StrictStr | None = Field(
        None, description='Prepended to the (first) text. `""` disables the model\'s default prompt.'
    )

    @model_validator(mode="after")
    def _one_prompt(self) -> "PromptRequest":
        if self.prompt is not None and self.prompt_name is not None:
            raise invalid("prompt", "cannot be combined with prompt_name: leave one of them out")
        return self


class WithInputs(Options):
    """The field of a route that reads texts or pairs."""

    inputs: Inputs = Field(
        description="A text, a list of texts, or a list of `[text, text_pair]`. "
        "A list of two strings is two texts; texts and pairs cannot be mixed."
    )


class TaskRequest(PromptRequest):
    """The fields common to all routes that run texts with a prompt and a task."""

    task: StrictStr | None = Field(
        None,
        description="One of the model's tasks, which selects the adapter for the texts; its `default_task` "
        "by default. It does not choose a prompt: use `prompt_name` for that.",
    )


class InputsRequest(WithInterventions, TaskRequest, WithInputs):
    """The fields common to `/encode` and `/attention`."""

    columns: Columns = Field(
        COLUMNS,
        description="What to return for each token; `[]` returns nothing, which makes responses for short "
        "texts much smaller. `truncated` and `original_length` are always returned.",
    )


AttentionOutput = Literal["sentence", "tokens", HeadVector]
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
_OF_MAPS = ("weights", "aggregate", "queries", "keys", "top_k", "thumbnail", "edges")
_OF_VECTORS = ("pooling", "pooling_layers", "normalize", "dimensions", "precision")


def _check_pooled(request: Options, outputs: Sequence[str]) -> None:
    if "sentence" in outputs:
        return
    for field in _OF_VECTORS:
        if request.is_overridden(field):
            raise invalid(field, 'has no effect without "sentence" in outputs: leave one of them out')


NO_MAPS = "which applies only to maps, and this response has none"
"""Why a response without maps cannot have arrays of uint8."""


class EncodeRequest(WithPositions, InputsRequest):
    """Texts to encode: as vectors of sentences or tokens, sparse vectors, or words that layers predict."""

    no_uint8: ClassVar[str] = NO_MAPS

    # Defaults are tuples: pydantic copies a list for each request.
    outputs: Annotated[tuple[EncodeOutput, ...], Field(max_length=4), at_most(4)] = Field(
        ("sentence",),
        description="`sentence` is the pooled vector, `tokens` are contextual token vectors. `sparse` is the "
        "sparse vector of a model that predicts masked words (SPLADE, Formal et al. 2021), of bge-m3's "
        "tokens or of an autoencoder's features (CSR, Wen et al. 2025). `logit_lens` has the words that each "
        "of `layers` predicts (nostalgebraist 2020). `[]` only with `chunks`.",
    )
    pooling: Pooling | None = POOLING
    pooling_layers: IndexList = Field(
        (-1,), description="Hidden states to pool and concatenate; numbered like `layers`."
    )
    normalize: StrictBool | None = NORMALIZE
    dimensions: PositiveNumber | None = DIMENSIONS
    layers: AllOrIndices = Field(
        (-1,),
        description="Hidden states for `tokens` and `logit_lens`: 0 is the output of the embedding layer, i "
        "the output of block i; negative numbers count from the end.",
    )
    top_k: PositiveNumber | None = Field(
        None,
        description="Keep the k largest weights of sparse vectors; by default all above 0, or as many as the "
        "model keeps. With `logit_lens`, return the k words with the largest logits; 10 by default, at most "
        "100.",
    )
    role: Role | None = Field(
        None,
        description="With `tokens` in `outputs`, on a late-interaction model (ColBERT, Khattab & Zaharia "
        "2020): return the token vectors of a query or a document, each of unit norm; only bge-m3 returns "
        "other `outputs` beside them. With only `sparse`, on a model that weighs queries with a table.",
    )
    precision: Precision = Field(
        "float32",
        description="The precision of sentence vectors and chunks. `int8` and `uint8` are steps of 1/127 and "
        "need normalized vectors; `binary` and `ubinary` have one bit for each component, in bytes.",
    )
    chunks: ChunksField | None = Field(
        None,
        description="Vectors of parts of each text, from one pass over the whole text (late chunking, "
        'Günther et al. 2024): `"sentences"`, windows of tokens such as `{"tokens": 64, "overlap": 16}`, or '
        "for a single text a list of `[start, end]` in Unicode code points. A vector is the mean over the "
        "tokens that begin in the chunk.",
    )
    overlap: WholeNumber | None = Field(
        None,
        ge=0,
        description="With `chunks`, a text longer than the model's limit is read in windows. How many tokens "
        "each window repeats from the previous one; by default a quarter of a window.",
    )

    @model_validator(mode="after")
    def _effective(self) -> "EncodeRequest":
        if self.chunks is not None:
            self._check_chunked()
        elif not self.outputs:
            raise invalid("outputs", 'must not be empty without chunks: choose "sentence" or "tokens"')
        else:
            _check_pooled(self, self.outputs)
        if self.is_overridden("overlap"):
            self._check_overlap()
        check_outputs(self, self.outputs)
        if self.role is not None:
            self._check_role()
        return self

    def _check_overlap(self) -> None:
        if self.chunks is None:
            raise invalid("overlap", "applies only to windows for chunks: leave it out or add chunks")
        if not self.truncate:
            raise invalid("overlap", 'has no effect with "truncate": false: leave one of them out')

    def _check_role(self) -> None:
        if {"tokens", "sparse"}.isdisjoint(self.outputs) or self.chunks is not None:
            raise invalid("role", 'needs "outputs": ["tokens"] or ["sparse"], without chunks')
        if self.is_overridden("layers"):
            raise invalid("layers", "must be [-1] with role, whose vectors come from the last hidden state")
        if not isinstance(self.inputs[0], str):
            raise invalid("role", "applies to single texts, and inputs has pairs: send texts")

    def _check_chunked(self) -> None:
        if not isinstance(self.inputs[0], str):
            raise invalid("chunks", "are parts of single texts, and inputs has pairs: send texts")
        if isinstance(self.chunks, tuple) and len(self.inputs) > 1:
            raise invalid(
                "chunks",
                f"lists parts of one text, and there are {len(self.inputs)} inputs: send one text per "
                'request, or choose "sentences" or {"tokens": n}',
            )
        if self.is_overridden("pooling_layers"):
            raise invalid("pooling_layers", "must be [-1] with chunks, which pool the last hidden state")
        if "logit_lens" in self.outputs:
            raise invalid(
                "outputs", 'has "logit_lens", which cannot be combined with chunks: leave one of them out'
            )

    @property
    def embeddings(self) -> EmbedOptions:
        """The requested embeddings."""
        return self.fill(EmbedOptions)

    @property
    def lens(self) -> LensOptions:
        """The hidden states and tokens whose words are predicted, and how many words each has."""
        return self.fill(LensOptions)


_MOST = len(STATISTICS)
Statistics = Annotated[list[Statistic], Field(min_length=1, max_length=_MOST), at_most(_MOST)]


class AttentionOptions(Options):
    """Which attention to return, of every text that a request runs."""

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
    keys: AllOrIndices = Field(
        "all", description="Columns, numbered the same way. Rows then no longer sum to 1."
    )
    renormalize: StrictBool = Field(
        False,  # noqa: FBT003
        description="Divide the remaining part of each row by its sum, so that rows sum to 1 again.",
    )
    top_k: PositiveNumber | None = Field(
        None, description="Return the k largest weights of each row, largest first, instead of the map."
    )
    thumbnail: CellCount | None = Field(
        None,
        description="Return at most k × k cells, each the largest of its weights, instead of the map. Its n "
        "rows are divided into m = min(k, n) cells: cell i has rows ⌊in/m⌋ to before ⌊(i + 1)n/m⌋; columns "
        "the same way.",
    )
    summary: StrictBool = Field(
        False,  # noqa: FBT003
        description="Return statistics of the probabilities of each selected layer and head, over all rows "
        "that `special_tokens` and `level` leave, renormalized with `renormalize`.",
    )
    statistics: Statistics | None = Field(
        None,
        description="The statistics in `summary`; all by default. Others are not computed.",
    )
    maps: StrictBool = Field(
        True,  # noqa: FBT003
        description="`false`, only with `summary`: return statistics without maps.",
    )
    decimals: WholeNumber = Field(6, ge=1, le=9, description="Decimals of maps and summaries in JSON.")

    instead_of_maps: ClassVar[str] = '"summary": true'

    @property
    def options(self) -> AttendOptions:
        """The requested attention."""
        return self.fill(AttendOptions)

    @model_validator(mode="after")
    def _consistent(self) -> "AttentionOptions":
        if not self.summary and self.is_overridden("statistics"):
            raise invalid("statistics", 'has no effect without "summary": true: leave it out')
        if not self.maps:
            self._check_without_maps()
        if self.aggregate == "rollout" and self.weights != "probability":
            raise invalid("weights", 'must be \'probability\' with "aggregate": "rollout"')
        if self.thumbnail is not None and self.top_k is not None:
            raise invalid("thumbnail", "cannot be combined with top_k: leave one of them out")
        if self.weights == "score" and self.renormalize:
            raise invalid(
                "renormalize", 'divides by row sums, which may be 0 with "weights": "score": leave it out'
            )
        return self

    @property
    def vectors(self) -> tuple[HeadVector, ...]:
        """The vectors that are returned of each head and token, besides maps."""
        return ()

    def _check_without_maps(self) -> None:
        if not self.summary and not self.vectors:
            raise invalid("maps", f"may be false only with {self.instead_of_maps}")
        for field in _OF_MAPS:
            if self.is_overridden(field) and not (self.vectors and field in ("queries", "keys")):
                raise invalid(field, 'has no effect with "maps": false: leave one of them out')


ATTENTION_NAMES = {name: f"attention.{name}" for name in AttentionOptions.model_fields}
"""What a request calls the options of its field `attention`."""


class AttentionRequest(WithEdges, AttentionOptions, InputsRequest):
    """Texts to return attention maps for."""

    outputs: Annotated[tuple[AttentionOutput, ...], Field(max_length=5), at_most(5)] = Field(
        (),
        description="Embeddings from the same pass, as in `/encode`; and for each head its query and key "
        "vectors, whose dot products times `score_scale` are its scores, and the norms of what it adds to "
        "each token.",
    )
    pooling: Pooling | None = POOLING
    normalize: StrictBool | None = NORMALIZE
    dimensions: PositiveNumber | None = DIMENSIONS
    instead_of_maps: ClassVar[str] = '"summary": true, or with query, key or output_norm in outputs'

    @property
    def vectors(self) -> tuple[HeadVector, ...]:
        """The vectors that are returned of each head and token, besides maps."""
        return tuple(one for one in HEAD_VECTORS if one in self.outputs)

    @model_validator(mode="after")
    def _effective(self) -> "AttentionRequest":
        _check_pooled(self, self.outputs)
        if self.edges is not None and self.vectors:
            raise invalid(
                "outputs", f"has {self.vectors[0]!r}, and edges have no vectors: leave one of them out"
            )
        return self

    @property
    def no_uint8(self) -> str:
        """Why the response cannot have arrays of uint8; "" if it can."""
        if not self.maps:
            return NO_MAPS
        return "which cannot hold negative scores" if self.weights == "score" else ""

    @property
    def embeddings(self) -> EmbedOptions:
        """The requested embeddings, of the last layer."""
        outputs = tuple(one for one in ("sentence", "tokens") if one in self.outputs)
        return self.fill(EmbedOptions, layers=(-1,), outputs=outputs)
