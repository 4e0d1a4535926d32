"""The whole contract between the rooms: what is run, what is wanted of it, and what comes back.

Dimension letters, here and everywhere: B sequences, T packed tokens, N tokens of one sequence,
L layers, H heads, D head size, C hidden size, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]

Weights = Literal["probability", "score", "value_norm"]
Aggregate = Literal["none", "mean", "max", "rollout"]
MapDtype = Literal["float32", "float16", "uint8"]
Statistic = Literal[
    "entropy",
    "confidence",
    "mean_distance",
    "self",
    "previous",
    "next",
    "special",
    "argmax_self",
    "argmax_previous",
    "argmax_next",
]
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)
"""What a summary measures of each head, in this order; `docs/api.md` defines them."""
PoolingMode = Literal["cls", "max", "mean", "mean_sqrt_len", "weighted_mean", "last"]
"""How the hidden states of a sequence become one vector; several modes are concatenated."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """One tokenized input, in columns of equal length N.

    `offsets` count Unicode code points of the text a token comes from, [0, 0] for special and prompt
    tokens; `word_ids` start at 0 in each text of a pair and are None for those tokens. `special` means
    added by the tokenizer: a literal "[SEP]" in a text is not special. `prompt_length` is the number of
    leading tokens, special ones included, that belong to the prompt. `original_length` counts the
    tokens before anything was cut.
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

    def __len__(self) -> int:
        """Count the tokens that are run."""
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
class Axis:
    """The rows or the columns that a map keeps, each made of one token or of the pieces of a word.

    `positions` is what each is called, in the order it is wanted in, repeated where it is. Of words, `tokens`
    are the positions of their pieces, end to end, and `starts` says where in them each word begins: each
    word once, in the order of its position. Of tokens, both are None.
    """

    positions: tuple[int, ...]
    tokens: tuple[int, ...] | None = None
    starts: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class AttentionWant:
    """Attention maps: chosen layers and heads (from 0), rows and columns (None: every token).

    `weights` are the softmax weights, the scaled scores before it, or the norms of the weighted values.
    With `aggregate` "rollout" there is one map, of layers 0 to the largest of `layers`. A row of a word is
    the mean of its pieces' rows, a column their sum. `renormalize` makes the rows of what is chosen sum to 1;
    `top_k` keeps the largest of each; in both, a column counts as often as it is listed. `dtype` is that of
    the map, for numbers up to 1; uint8 is in 255ths.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    weights: Weights = "probability"
    aggregate: Aggregate = "none"
    queries: Axis | None = None
    keys: Axis | None = None
    renormalize: bool = False
    top_k: int | None = None
    dtype: MapDtype = "float32"


@dataclass(frozen=True, slots=True)
class SummaryWant:
    """Statistics of the attention of each chosen layer and head.

    `units` are what the maps have rows and columns of, one after the other: the tokens or words that remain
    (None: every token). With `renormalize` their rows sum to 1 again. `special` lists which of the units are
    special tokens, counted from the first that remains.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    special: tuple[int, ...]
    statistics: tuple[Statistic, ...] = STATISTICS
    units: Axis | None = None
    renormalize: bool = False


@dataclass(frozen=True, slots=True)
class Want:
    """What one sequence must return. It travels with the sequence through shared batches.

    All indices are already counted from the start and known to exist.
    """

    sentence: SentenceWant | None = None
    token_layers: tuple[int, ...] = ()
    attention: AttentionWant | None = None
    summary: SummaryWant | None = None


@dataclass(frozen=True, slots=True)
class Top:
    """The largest weights of each row, largest first, ties by position.

    `keys`, int32, their positions, and `weights`, float32, have the shape of the map but for its last axis,
    which has k; `residual`, float32, has no such axis and is the sum of what is left out.
    """

    keys: NDArray[np.int32]
    weights: FloatArray
    residual: FloatArray


@dataclass(frozen=True, slots=True)
class Output:
    """What a sequence wants, as C-contiguous arrays, of float32 unless said otherwise.

    `sentence` (dimensions,); `tokens` (layers, N, C); `attention` (layers, heads, queries, keys) in the
    want's dtype, without heads where they were aggregated and (queries, keys) for a rollout; `top` in its
    place with `top_k`; `summary` has its statistics by name, each (layers, heads). `finite` is False when
    there was a NaN or an infinity that the dtype of a map may hide.
    """

    sentence: FloatArray | None = None
    tokens: FloatArray | None = None
    attention: NDArray[Any] | None = None
    top: Top | None = None
    summary: dict[str, FloatArray] | None = None
    finite: bool = True


@dataclass(frozen=True, slots=True)
class Batch:
    """Sequences end to end, nothing padded.

    `input_ids` and `segment_ids` are int64 of shape (T,); sequence b is
    `input_ids[cu_seqlens[b]:cu_seqlens[b + 1]]`, and `cu_seqlens` is int64 of shape (B + 1,).
    """

    input_ids: NDArray[np.int64]
    segment_ids: NDArray[np.int64]
    cu_seqlens: NDArray[np.int64]
    wants: tuple[Want, ...]

    @classmethod
    def pack(cls, encodings: Sequence[Encoding], wants: Sequence[Want]) -> "Batch":
        """Lay encodings end to end, in order; `wants` belong to them one by one."""
        lengths = [len(encoding) for encoding in encodings]
        return cls(
            input_ids=np.array([i for e in encodings for i in e.token_ids], dtype=np.int64),
            segment_ids=np.array([i for e in encodings for i in e.segment_ids], dtype=np.int64),
            cu_seqlens=np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))),
            wants=tuple(wants),
        )

    def __len__(self) -> int:
        """Count the sequences."""
        return len(self.cu_seqlens) - 1


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a served model is, for `/info` and for checking requests.

    `sentence_size` is the length of a sentence vector as the model itself pools; `dense` says that
    linear layers follow the pooling, so that only vectors of the pooled size can pass. `provider` is what
    of a runtime computes, None where there is only one. `opens` says that every hidden state and the
    attention can be read; otherwise it is the last hidden state alone. `kernels` are the instructions of
    the kernels of our own that it runs on, None where it does not; `no_kernels` says why not, where they
    could be expected.
    """

    family: str
    layers: int
    heads: int
    hidden_size: int
    max_length: int
    pooling: tuple[PoolingMode, ...]
    normalize: bool
    sentence_size: int
    dense: bool
    prompts: dict[str, str]
    default_prompt_name: str | None
    include_prompt: bool
    backend: str
    device: str
    dtype: str
    provider: str | None = None
    opens: bool = True
    kernels: str | None = None
    no_kernels: str | None = None


class Backend(Protocol):
    """A way to run a model. Called from as many threads at a time as it has lanes."""

    @property
    def lanes(self) -> int:
        """How many batches should run side by side when many wait."""
        ...

    @property
    def info(self) -> ModelInfo:
        """What is served."""
        ...

    @property
    def budgets(self) -> Sequence[int]:
        """The sizes of batches, in tokens, of which one runs best, in order; a single one needs no trial."""
        ...

    def run(self, batch: Batch, *, lanes: int = 1) -> list[Output]:
        """Run one batch; the outputs stand in the order of the sequences.

        It uses its share of the cores when `lanes` batches run side by side.
        Raises OutOfMemory when a smaller batch may do, and any other exception when the computation
        fails; nothing is returned in part.
        """
        ...

    def cost(self, lengths: Sequence[int]) -> int:
        """Count the tokens that running sequences of these lengths together costs, padding included."""
        ...

    def give_back(self) -> None:
        """Give back to the system what is kept for further batches; called when none has come of late."""
        ...
