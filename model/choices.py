"""How a model can be run and observed, as users choose it; each list of names is only here."""

from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["auto", "torch", "onnx"]
"""The runtimes; "auto" runs a checkpoint with PyTorch if it is installed, else a graph."""
Dtype = Literal["auto", "float32", "bfloat16", "float16", "int8"]
"""What matrix products are computed in: int8 rounds their factors, and what is between them has more bits."""
Processors = Literal["any", "vnni", "arm64"]
"""What an int8 graph is for: any processor, with weights of seven bits; x86 with VNNI, or ARM, with eight."""
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
"""What can be read of each head and token: the vectors that scores compare, and how long an output is."""
HEAD_VECTORS: tuple[HeadVector, ...] = get_args(HeadVector)
VECTOR_NAMES: dict[HeadVector, str] = {
    "query": "query_vectors",
    "key": "key_vectors",
    "output_norm": "output_norms",
}
"""The names of their arrays."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The rows or columns that a map keeps. Each is one token, or one word made of its pieces.

    `positions` are their token or word indices in the requested order; an index may repeat. For words,
    `tokens` are the token positions of their pieces, end to end, and `starts` is where each word begins in
    `tokens`: each word once, in order of position. For tokens, both are None.
    """

    positions: tuple[int, ...]
    tokens: tuple[int, ...] | None = None
    starts: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class LensWant:
    """The words that a model's predictor makes of hidden states: the logit lens (nostalgebraist 2020).

    Of the hidden states `layers` (0 is the embedding output) at the tokens `rows`, the `top_k` words, largest
    first, ties by id: `lens_ids` int32, `lens_logits` float32, and `lens_probabilities` float32, the softmax
    over the whole vocabulary; each (layers, rows, k). States before the last go through the final norm first,
    if the model has one. `passes` says how many plain passes of the sequence take about as long.
    """

    layers: tuple[int, ...]
    rows: tuple[int, ...]
    top_k: int
    passes: int = 0


@dataclass(frozen=True, slots=True)
class ContributionsWant:
    """What each token adds to the sentence vector that is wanted too: `contributions`, float64 (N + 1, E).

    The rows sum to the vector; the last one is what the biases of dense layers add.
    """


@dataclass(frozen=True, slots=True)
class TokenPooling:
    """How the vectors of the tokens of a text become fewer: one for each `factor` of them, at least 1.

    The first `protected` ones stay. With `normalize` the others get unit length again.
    """

    factor: float
    protected: int = 1
    normalize: bool = True


@dataclass(frozen=True, slots=True)
class TokenVectorsWant:
    """The vectors of tokens `rows` for late interaction: `token_vectors` float32 (rows, E), of unit norm.

    With `pooling` there are fewer, and `token_clusters` int32 (rows,) says which of them each token is in.
    """

    rows: tuple[int, ...]
    pooling: TokenPooling | None = None


@dataclass(frozen=True, slots=True)
class Interaction:
    """How vectors of tokens make a score: MaxSim, or with `mean` that divided by the vectors of the query.

    `empty` is MaxSim of a text without vectors. `pools`: texts of some role have fewer vectors than tokens.
    """

    mean: bool = False
    empty: float = 0.0
    pools: bool = False
