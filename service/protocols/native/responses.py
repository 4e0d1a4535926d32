"""Response schemas; the field descriptions are the API's documentation."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from model.choices import Statistic
from model.contract import STATISTICS
from service.tasks.results import COLUMNS

Covered = list[tuple[int, int]]
COVERED: Any = Field(
    None,
    description="The part of a truncated text that was read, or of both texts of a pair: `[start, end]` in "
    "Unicode code points. Absent if nothing was truncated.",
)


class TokenColumns(BaseModel):
    """The tokens that were run, in columns of equal length."""

    index: int = Field(ge=0, description="The index of the input.")
    tokens: list[str]
    token_ids: list[int]
    offsets: list[tuple[int, int]] = Field(
        description="`[start, end]` in the token's text, in Unicode code points; "
        "`[0, 0]` for special and prompt tokens."
    )
    word_ids: list[int | None] = Field(
        description="Counted from 0 in each text of a pair; null for special and prompt tokens."
    )
    segment_ids: list[int] = Field(description="The text of a pair that each token belongs to, 0 or 1.")
    special: list[bool] = Field(description="Whether the tokenizer added the token.")
    truncated: bool
    original_length: int = Field(ge=0, description="Tokens before truncation.")
    covered: Covered | None = COVERED


def _without_some(schema: dict[str, Any]) -> None:
    """Say in a schema that the columns may be absent."""
    schema["required"] = [name for name in schema["required"] if name not in COLUMNS]


_CHOSEN = ConfigDict(json_schema_extra=_without_some)
"""For items that have only the columns that the request names in its field `columns`."""


class Usage(BaseModel):
    """The work done for a request."""

    input_tokens: int = Field(ge=0, description="Tokens run, without padding.")


class ChunkVectors(BaseModel):
    """The chunks of one text, in lists of equal length."""

    offsets: list[tuple[int, int]] = Field(
        description="`[start, end]` of each chunk in the text, in Unicode code points."
    )
    token_spans: list[tuple[int, int]] = Field(
        description="`[first, after]`: positions of the tokens that each vector is the mean of."
    )
    windows: list[tuple[int, int]] | None = Field(
        None,
        description="For a text longer than the model's limit: `[first, after]`, the tokens of the text in "
        "each window that was read.",
    )
    embeddings: list[list[float]] = Field(description="(chunks, dimensions).")


class SparseVector(BaseModel):
    """The words, or features, with a weight above 0, in lists of equal length: largest first, ties by id."""

    tokens: list[str]
    token_ids: list[int]
    weights: list[float]


class LogitLens(BaseModel):
    """The words that hidden states predict: largest logits first, ties by id."""

    layers: list[int] = Field(description="The hidden states: 0 is the output of the embedding layer.")
    positions: list[int] = Field(description="The positions of the tokens.")
    tokens: list[list[list[str]]]
    token_ids: list[list[list[int]]] = Field(description="(layers, positions, words), like all below.")
    logits: list[list[list[float]]]
    probabilities: list[list[list[float]]] = Field(description="The softmax over the whole vocabulary.")


class EncodeItem(TokenColumns):
    """The vectors of one input, and the words that are predicted of it."""

    model_config = _CHOSEN

    embedding: list[float] | None = Field(
        None, description="(dimensions,), with `sentence` in `outputs`; a list of integers with `precision`."
    )
    token_embeddings: list[list[list[float]]] | None = Field(
        None,
        description="(layers, tokens, hidden), with `tokens` in `outputs`; (1, rows, size) with `role`.",
    )
    token_rows: list[int] | None = Field(
        None, description="With `role`, the positions of the tokens that have a vector."
    )
    token_clusters: list[int] | None = Field(
        None,
        description="Where vectors are pooled: for each of `token_rows` the row of `token_embeddings` that "
        "its vector is part of.",
    )
    sparse: SparseVector | None = Field(None, description="With `sparse` in `outputs`.")
    logit_lens: LogitLens | None = Field(None, description="With `logit_lens` in `outputs`.")
    chunks: ChunkVectors | None = Field(None, description="With `chunks`, the vector of each part.")


class EncodeResponse(BaseModel):
    """The response of `/encode`."""

    model: str
    precision: Literal["int8", "uint8", "binary", "ubinary"] | None = Field(
        None, description="The precision of `embedding` and `chunks`; absent for float32."
    )
    data: list[EncodeItem]
    usage: Usage


_MEANINGS: dict[Statistic, str] = {
    "entropy": "In nats.",
    "confidence": "The largest weight of a row.",
    "mean_distance": "Weighted distance from query to key, in tokens or words.",
    "self": "Weight on the token or word itself.",
    "previous": "Weight on the previous one, 0 for the first.",
    "next": "Weight on the next one, 0 for the last.",
    "special": "Weight on special tokens.",
    "argmax_self": "Share of rows with the largest weight on themselves.",
    "argmax_previous": "Share of rows with the largest weight on the previous one.",
    "argmax_next": "Share of rows with the largest weight on the next one.",
}
_STATISTICS: dict[str, Any] = {
    name: (list[list[float]] | None, Field(None, description=_MEANINGS[name])) for name in STATISTICS
}
Summary = create_model(
    "Summary",
    __doc__="Statistics of the probabilities, each (layers, heads), averaged over all remaining rows.\n\n"
    "Those not listed in `statistics` are absent.",
    **_STATISTICS,
)


class MapsItem(TokenColumns):
    """The maps of one input, if it has any.

    `layers`, `heads`, `queries` and `keys` label the indices of `attention`.
    """

    words: list[str] | None = Field(None, description='Words of the whole input, with "level": "word".')
    word_offsets: list[tuple[int, int]] | None = Field(
        None, description="`[start, end]` of each word in its text; `[0, 0]` for special and prompt tokens."
    )
    layers: list[int] | None = Field(None, description="Absent if there is no layer axis.")
    heads: list[int] | None = Field(None, description="Absent if the heads were aggregated.")
    queries: list[int] | None = Field(None, description='Absent with "maps": false, like `keys`.')
    keys: list[int] | None = None
    attention: list[Any] | None = Field(None, description="Nested lists along `axes`.")
    top_keys: list[Any] | None = Field(
        None, description="With `top_k`, the positions of each row's largest weights, largest first."
    )
    top_weights: list[Any] | None = Field(None, description="The weights at `top_keys`.")
    residual: list[Any] | None = Field(None, description="The rest of each row's weight.")
    thumbnails: list[Any] | None = Field(
        None, description="With `thumbnail`, nested lists along `axes`, with cells of queries and of keys."
    )
    summary: Summary | None = None


class AttentionItem(MapsItem):
    """The maps of one input, and embeddings and vectors of heads from the same pass."""

    model_config = _CHOSEN

    edges: list[tuple[int, int]] | None = Field(
        None, description="With `edges`, instead of `queries` and `keys`: `[query, key]` of each weight."
    )
    embedding: list[float] | None = Field(None, description="(dimensions,), with `sentence` in `outputs`.")
    token_embeddings: list[list[list[float]]] | None = Field(
        None, description="(1, tokens, hidden), of the last layer, with `tokens` in `outputs`."
    )
    score_scale: float | None = Field(
        None,
        description="The factor of dot products of these vectors in scores; 1/√size in most models.",
    )
    query_vectors: list[list[list[list[float]]]] | None = Field(
        None, description="(layers, heads, queries, size), as scores compare them, with `query` in `outputs`."
    )
    key_vectors: list[list[list[list[float]]]] | None = Field(
        None,
        description="(layers, heads, keys, size), with `key` in `outputs`; for each head the key of its "
        "group.",
    )
    output_norms: list[list[list[float]]] | None = Field(
        None,
        description="(layers, heads, queries), with `output_norm` in `outputs`: the norm of what a head adds "
        "to a token, ‖Σ_j α_ij (x_j W_V + b_V) W_O‖.",
    )


class AttentionResponse(BaseModel):
    """The response of `/attention`."""

    model: str
    axes: list[Literal["layer", "head", "query", "key", "edge"]]
    data: list[AttentionItem]
    usage: Usage
