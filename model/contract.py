"""The contract between `model/` and its callers: what runs, what each sequence must return, the outputs.

Dimension letters, here and everywhere: B sequences, T packed tokens, N tokens of one sequence,
L layers, H heads, D head size, C hidden size, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from model.choices import (
    HEAD_VECTORS,
    Axis,
    ContributionsWant,
    HeadVector,
    Interaction,
    LensWant,
    Statistic,
    TokenPooling,
    TokenVectorsWant,
)
from model.encoder.interventions import INTERVENTION_KINDS, GradientPoint, InterventionKind, Interventions
from model.progress import Progress

FloatArray = NDArray[np.float32]

Weights = Literal["probability", "score", "value_norm"]
Aggregate = Literal["none", "mean", "max", "rollout"]
MapDtype = Literal["float32", "float16", "uint8"]
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)
"""The statistics of a summary, in this order; `docs/api.md` defines them."""
PoolingMode = Literal["mean", "cls", "max", "mean_sqrt_len", "weighted_mean", "last"]
"""How the hidden states of a sequence become one vector; several modes are concatenated."""
Pooling = Literal["mean", "cls", "max", "mean_max", "mean_sqrt_len", "weighted_mean", "last"]
"""The poolings that requests may choose: one mode, or `mean_max` for `mean` and `max` together."""
HeadKind = Literal[
    "classification", "token_classification", "masked_words", "autoencoder", "late_interaction", "hybrid"
]
"""What a model predicts from the last hidden state: see `docs/models.md`."""
ScoreFunction = Literal["softmax", "sigmoid", "identity"]
"""How logits become scores."""
Role = Literal["query", "document"]
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
"""How two sentence vectors are compared: `model/heads/similarity.py` defines each."""
SIMILARITIES: tuple[Similarity, ...] = get_args(Similarity)


@dataclass(slots=True)
class Encoding:
    """One tokenized input, in columns of equal length N.

    `offsets` count Unicode code points in the text that a token comes from; special and prompt tokens have
    [0, 0]. `word_ids` start at 0 in each text of a pair and are None for special and prompt tokens. `special`
    marks tokens added by the tokenizer: a literal "[SEP]" in a text is not. `prompt_length` counts the
    leading tokens of the prompt, special ones included; `original_length` is the length before truncation.
    For late interaction, `vector_rows` are the tokens that have a vector, `token_pooling` says how to pool
    these, and `unattended` counts the tokens at the end that attend to others, but that no token attends to.
    """

    token_ids: list[int]
    segment_ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    word_ids: list[int | None]
    special: list[bool]
    truncated: bool
    original_length: int
    prompt_length: int = 0
    vector_rows: tuple[int, ...] = ()
    token_pooling: TokenPooling | None = None
    unattended: int = 0

    def __len__(self) -> int:
        """Return the number of tokens that are run."""
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class SentenceWant:
    """One pooled vector: hidden states `layers` (0 is the embedding output), each pooled in `modes`."""

    modes: tuple[PoolingMode, ...] = ("mean",)
    layers: tuple[int, ...] = (-1,)
    normalize: bool = False
    dimensions: int | None = None
    skip: int = 0
    """Leading tokens left out of the pooling (a prompt that the model does not pool)."""


@dataclass(frozen=True, slots=True)
class AttentionWant:
    """Attention maps: the selected layers and heads (from 0), rows and columns (None: every token).

    `weights` are the softmax weights, the scaled scores before the softmax, or the norms of the weighted
    values. With `aggregate` "rollout" there is one map, over layers 0 to the largest of `layers`. A word's
    row is the mean of its pieces' rows; its column is the sum of their columns. `renormalize` makes each row
    sum to 1; `top_k` keeps each row's largest weights. For both, a column counts as often as it is listed.
    `thumbnail` divides the listed rows, and columns, into at most that many cells, each the largest of its
    weights; not with `top_k`. `edges` keeps only the weights of these (row, column) pairs, each listed once.
    `dtype` is the map's, for numbers up to 1; uint8 counts 255ths. `vectors` are read from the same layers,
    heads, rows and columns, which must then be tokens; without `maps`, only they are read.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    weights: Weights = "probability"
    aggregate: Aggregate = "none"
    queries: Axis | None = None
    keys: Axis | None = None
    renormalize: bool = False
    top_k: int | None = None
    thumbnail: int | None = None
    edges: tuple[tuple[int, int], ...] | None = None
    dtype: MapDtype = "float32"
    vectors: tuple[HeadVector, ...] = ()
    maps: bool = True


@dataclass(frozen=True, slots=True)
class SummaryWant:
    """Statistics of the attention of each selected layer and head.

    `units` are the tokens or words that are both the rows and the columns of the maps, in order (None: every
    token). `renormalize` makes each row sum to 1 again. `special` are the indices in `units` of the special
    tokens.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    special: tuple[int, ...]
    statistics: tuple[Statistic, ...] = STATISTICS
    units: Axis | None = None
    renormalize: bool = False


@dataclass(frozen=True, slots=True)
class LogitsWant:
    """The logits of the head: `logits` (labels,), or `token_logits` (N, labels) if it labels tokens."""


@dataclass(frozen=True, slots=True)
class SparseWant:
    """The `top_k` largest weights of words or features; None: all above 0, or as many as the folder keeps.

    `sparse_ids` int32 (k,) and `sparse_weights` float32 (k,), largest first, ties by id. With `table`, a
    query's tokens are only looked up in a table. `skip` is as in `SentenceWant`, for autoencoders' features.
    """

    top_k: int | None = None
    table: bool = False
    skip: int = 0


@dataclass(frozen=True, slots=True)
class ChunksWant:
    """One vector for each span [start, stop) of tokens, pooled with `mean`: `chunks` (spans, E).

    Dense layers follow, then `dimensions` and `normalize`; with `means`, none of these: (spans, C).
    """

    spans: tuple[tuple[int, int], ...]
    normalize: bool = False
    dimensions: int | None = None
    means: bool = False


HeadWant = LogitsWant | SparseWant | TokenVectorsWant | ChunksWant | ContributionsWant
"""What is computed from the last hidden state of a sequence, besides its sentence vector."""


@dataclass(frozen=True, slots=True)
class Want:
    """What one sequence must return; travels with the sequence through shared batches.

    All indices are non-negative and already checked against the model, and so is `task`, one of the model's:
    the sequence runs with the adapter of that task, or without one if it is None. `interventions` change
    only this sequence's run, and everything returned is from the changed run. With a `gradient`, only
    `Output.heads["gradient"]` (N,) and `["value"]` (1,) are returned, for the score of what is wanted.
    """

    sentence: SentenceWant | None = None
    token_layers: tuple[int, ...] = ()
    attention: AttentionWant | None = None
    summary: SummaryWant | None = None
    task: str | None = None
    heads: tuple[HeadWant, ...] = ()
    interventions: Interventions | None = None
    gradient: GradientPoint | None = None
    lens: LensWant | None = None

    @property
    def passes(self) -> int:
        """Roughly how long the run takes, in plain passes of the sequence."""
        passes = 1 if self.gradient is None else self.gradient.passes
        return passes if self.lens is None else passes + self.lens.passes

    def states(self, last: int) -> set[int]:
        """Return the numbers of the hidden states that are read; `last` is the number of the last one."""
        pooled = self.sentence.layers if self.sentence is not None else ()
        predicted = self.lens.layers if self.lens is not None else ()
        return {*self.token_layers, *pooled, *predicted, *((last,) if self.heads else ())}


@dataclass(frozen=True, slots=True)
class Top:
    """The largest weights of each row, largest first, ties by position.

    `keys` (int32, the positions) and `weights` (float32) have the shape of the map, except that the last
    axis has length k. `residual` (float32) lacks that axis; it is the sum of the weights left out.
    """

    keys: NDArray[np.int32]
    weights: FloatArray
    residual: FloatArray


@dataclass(slots=True)
class Output:
    """The results of one sequence, as C-contiguous arrays, float32 unless stated otherwise.

    `sentence` (dimensions,); `tokens` (layers, N, C); `attention` (layers, heads, queries, keys) in the
    want's dtype, without the heads axis if heads were aggregated, and (queries, keys) for a rollout; one axis
    of edges replaces the last two if the want has `edges`. With a `top_k`, `top` replaces `attention`; with a
    `thumbnail`, `thumbnails` do, in cells. `summary` has statistics by name, each (layers, heads).
    `heads` has the arrays of wanted heads and the lens, under the names that the wants give, and of wanted
    vectors: `query_vectors` (layers, heads, rows, D), `key_vectors` (layers, heads, columns, D) and
    `output_norms` (layers, heads, rows).
    `finite` is False if there was a NaN or an infinity, which the dtype of a map may hide.
    """

    sentence: FloatArray | None = None
    tokens: FloatArray | None = None
    attention: NDArray[Any] | None = None
    top: Top | None = None
    summary: dict[str, FloatArray] | None = None
    heads: dict[str, NDArray[Any]] = field(default_factory=dict)
    finite: bool = True
    thumbnails: NDArray[Any] | None = None


@dataclass(slots=True)
class Batch:
    """Sequences end to end, without padding.

    `input_ids` and `segment_ids` are int64 of shape (T,); sequence b is
    `input_ids[cu_seqlens[b]:cu_seqlens[b + 1]]`, and `cu_seqlens` is int64 of shape (B + 1,).
    """

    input_ids: NDArray[np.int64]
    segment_ids: NDArray[np.int64]
    cu_seqlens: NDArray[np.int64]
    wants: tuple[Want, ...]
    unattended: tuple[int, ...] = ()
    """For each sequence, how many tokens at its end no token attends to; empty if no sequence has any."""

    @classmethod
    def pack(cls, encodings: Sequence[Encoding], wants: Sequence[Want]) -> "Batch":
        """Concatenate encodings in order; `wants` has one entry for each."""
        lengths = [len(encoding.token_ids) for encoding in encodings]
        return cls(
            input_ids=np.array([*chain.from_iterable([e.token_ids for e in encodings])], dtype=np.int64),
            segment_ids=np.array([*chain.from_iterable([e.segment_ids for e in encodings])], dtype=np.int64),
            cu_seqlens=np.array([0, *accumulate(lengths)], dtype=np.int64),
            wants=tuple(wants),
            unattended=tuple(e.unattended for e in encodings) if any(e.unattended for e in encodings) else (),
        )

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.cu_seqlens) - 1


@dataclass(frozen=True, slots=True)
class HeadInfo:
    """Describes the head of a model: the `labels` of a classifier, in the order of its logits.

    `activation` turns logits into scores. A token's vector, or a sparse one, has `size` numbers; `kept` stay
    by default. `query_table` is the role of texts sent without one. `interaction` scores token vectors.
    """

    kind: HeadKind
    labels: tuple[str, ...] = ()
    activation: ScoreFunction = "identity"
    size: int | None = None
    kept: int | None = None
    query_table: Role | None = None
    interaction: Interaction = field(default_factory=Interaction)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Describes a served model, for `/info` and for checking requests.

    `attention_layers` are the layers, from 0, whose attention can be read. `sentence_size` is the size of a
    vector under the model's own pooling. `dense`: steps such as linear layers follow the pooling, and accept
    only vectors of the pooled size. `differentiable`: the embeddings are read only through hidden state 0.
    `provider` is the runtime's, None if it has only one. `exposes_attention`: every hidden state and the
    attention can be read; if False, only the last hidden state can, and without `exposes_tokens` not even
    that: the graph returns only sentence vectors, pooled as `pooling` says, empty if not known. `kernels` is
    the instruction set of the native kernels, None without them; `no_kernels` says why. `tasks` names the
    adapters, `default_task` the one for requests without a task. `similarity` compares sentence vectors;
    `no_ranking` is why texts cannot be ranked by them, None if they can. `nonlinear` names a step after
    pooling that is not linear; `mask_token` and `padding_token` are ids. `pairs_take_prompt`: False if a chat
    template has no place for a prompt. `weight_bytes` is the size of weights or graph, `parameters` their
    number, None in a graph. `processors`: what an int8 graph is for. `head_sizes`: D of each layer;
    `score_scale` multiplies dot products, None: 1/√D. `has_lens`: the predictor can read every hidden state.
    """

    family: str
    layers: int
    heads: int
    attention_layers: tuple[int, ...]
    hidden_size: int
    max_length: int
    pooling: tuple[PoolingMode, ...]
    normalize: bool
    sentence_size: int
    dense: bool
    prompts: dict[str, str] = field(hash=False)
    default_prompt_name: str | None
    include_prompt: bool
    backend: str
    device: str
    dtype: str
    provider: str | None = None
    exposes_attention: bool = True
    exposes_tokens: bool = True
    kernels: str | None = None
    no_kernels: str | None = None
    tasks: tuple[str, ...] = ()
    default_task: str | None = None
    head: HeadInfo | None = None
    similarity: Similarity = "cosine"
    no_ranking: str | None = None
    nonlinear: str | None = None
    differentiable: bool = True
    mask_token: int | None = None
    padding_token: int | None = None
    pairs_take_prompt: bool = True
    weight_bytes: int = 0
    parameters: int | None = None
    processors: str | None = None
    interventions: tuple[InterventionKind, ...] = INTERVENTION_KINDS
    head_sizes: tuple[int, ...] = ()
    score_scale: float | None = None
    head_vectors: tuple[HeadVector, ...] = HEAD_VECTORS
    has_lens: bool = True

    @property
    def runs(self) -> str:
        """What the model runs on, in words."""
        sentence = f"{self.dtype} on {self.device} by {self.provider or self.backend}"
        if self.kernels is not None:
            return f"{sentence}, with native kernels ({self.kernels})"
        return sentence if self.no_kernels is None else f"{sentence}; no native kernels: {self.no_kernels}"


class Backend(Protocol):
    """A way to run a model. Up to `lanes` threads call it at the same time."""

    @property
    def lanes(self) -> int:
        """How many batches should run side by side when the queue is full."""

    @property
    def info(self) -> ModelInfo:
        """Describes the model and how it runs."""

    @property
    def budget(self) -> int:
        """How many tokens a batch should have, unless the settings say."""

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        """Run one batch; returns one output for each sequence, in order.

        The call uses its share of the cores when `lanes` batches run side by side. It counts in `progress`
        what it has finished, and ends within a layer after `stop` was called there.
        Raises OutOfMemory if a smaller batch might succeed, Stopped if it ended early, and any other
        exception if the computation fails; it never returns partial results.
        """

    def cost(self, lengths: Sequence[int]) -> int:
        """Return the cost, in tokens with padding, of running sequences of these lengths together."""

    def finish(self, means: FloatArray, want: ChunksWant) -> FloatArray:
        """Turn the means of the chunks' last hidden states (spans, C) into their vectors (spans, E)."""

    def trim_memory(self) -> None:
        """Return the memory kept for later batches to the operating system; called after idle time."""

    @property
    def prepares_short(self) -> bool:
        """Whether native kernels run the layers in one call, with what a short text needs kept ready."""

    def end_helpers(self) -> None:
        """End the threads that the calling thread's passes have started; the next pass starts new ones."""
