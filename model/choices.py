"""The choices that users have in running and observing a model; each list of names is defined only here."""

from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["auto", "torch", "onnx"]
"""The runtimes; "auto" runs a checkpoint with PyTorch if it is installed, else a graph."""
Dtype = Literal["auto", "float32", "bfloat16", "float16", "int8"]
"""The dtype of matrix products: int8 rounds their factors, and values between products have more bits."""
Processors = Literal["any", "vnni", "arm64"]
"""What an int8 graph is for: any processor, with 7-bit weights; x86 with VNNI, or ARM, with 8-bit weights."""
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
HeadVector = Literal["query", "key", "output_norm"]
"""What can be read for each head and token: the vectors that scores compare, and the norm of the output."""
HEAD_VECTORS: tuple[HeadVector, ...] = get_args(HeadVector)
VECTOR_NAMES: dict[HeadVector, str] = {
    "query": "query_vectors",
    "key": "key_vectors",
    "output_norm": "output_norms",
}
"""The name of the array that holds each of them."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The rows or columns that a map keeps: each is one token, or one word made of its pieces.

    `positions` are their token or word indices in the requested order; an index may repeat. For words,
    `tokens` are the token positions of their pieces, end to end, and `starts` is where each word begins in
    `tokens`: each word once, in order of position. For tokens, both are None.
    """

    positions: tuple[int, ...]
    tokens: tuple[int, ...] | None = None
    starts: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class LensWant:
    """The words that a model's predictor reads from hidden states: the logit lens (nostalgebraist 2020).

    For the hidden states `layers` (0 is the embedding output) at the tokens `rows`, the `top_k` words,
    largest first, ties by id: `lens_ids` int32, `lens_logits` float32, and `lens_probabilities` float32, the
    softmax over the whole vocabulary; each (layers, rows, k). States before the last go through the final
    norm first, if the model has one. `passes` is about how long this takes, in plain passes of the sequence.
    """

    layers: tuple[int, ...]
    rows: tuple[int, ...]
    top_k: int
    passes: int = 0


@dataclass(frozen=True, slots=True)
class ContributionsWant:
    """What each token adds to the sentence vector, also wanted: `contributions`, float64 (N + 1, E).

    The rows sum to the vector; the last row is what the biases of dense layers add.
    """


@dataclass(frozen=True, slots=True)
class TokenPooling:
    """How the token vectors of a text are pooled into fewer: one for every `factor` of them, at least 1.

    The first `protected` vectors stay. With `normalize`, the others are scaled to unit length again.
    """

    factor: float
    protected: int = 1
    normalize: bool = True


@dataclass(frozen=True, slots=True)
class TokenVectorsWant:
    """The vectors of tokens `rows` for late interaction: `token_vectors` float32 (rows, E), of unit norm.

    With `pooling` there are fewer vectors; `token_clusters` int32 (rows,) says which one each token is in.
    """

    rows: tuple[int, ...]
    pooling: TokenPooling | None = None


@dataclass(frozen=True, slots=True)
class Interaction:
    """How token vectors make a score: MaxSim, or with `mean`, MaxSim divided by the number of query vectors.

    `empty` is the MaxSim of a text without vectors. `pools`: some role's texts get fewer vectors than tokens.
    """

    mean: bool = False
    empty: float = 0.0
    pools: bool = False
