"""What clients get; the field descriptions are the API's documentation."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class TokenColumns(BaseModel):
    """What was run, in columns of equal length."""

    index: int = Field(ge=0, description="Which input this is.")
    tokens: list[str]
    token_ids: list[int]
    offsets: list[tuple[int, int]] = Field(
        description="`[start, end]` in Unicode code points of the text a token comes from; "
        "`[0, 0]` for special and prompt tokens."
    )
    word_ids: list[int | None] = Field(
        description="From 0 in each text of a pair; null for special and prompt tokens."
    )
    segment_ids: list[int] = Field(description="Which text of a pair.")
    special: list[bool] = Field(description="Added by the tokenizer.")
    truncated: bool
    original_length: int = Field(ge=0, description="Tokens before the cut.")


class Usage(BaseModel):
    """What was computed."""

    input_tokens: int = Field(ge=0, description="Tokens really run.")


class EncodeItem(TokenColumns):
    """The vectors of one input."""

    embedding: list[float] | None = Field(None, description="(dimensions,), with `sentence` in `outputs`.")
    token_embeddings: list[list[list[float]]] | None = Field(
        None, description="(layers, tokens, hidden), with `tokens` in `outputs`."
    )


class EncodeResponse(BaseModel):
    """The answer of `/encode`."""

    model: str
    data: list[EncodeItem]
    usage: Usage


Statistic = list[list[float]] | None


class Summary(BaseModel):
    """Statistics of the probabilities, each (layers, heads), means over all rows that remain.

    Those that `statistics` does not name are absent.
    """

    model_config = ConfigDict(populate_by_name=True)

    entropy: Statistic = Field(None, description="In nats.")
    confidence: Statistic = Field(None, description="The largest weight of a row.")
    mean_distance: Statistic = Field(None, description="From query to key, in tokens or words.")
    self_: Statistic = Field(None, alias="self", description="Weight on the token or word itself.")
    previous: Statistic = Field(None, description="Weight on the one before, 0 for the first.")
    next: Statistic = Field(None, description="Weight on the one after, 0 for the last.")
    special: Statistic = Field(None, description="Weight on special tokens.")
    argmax_self: Statistic = Field(None, description="Share of rows whose largest weight is on themselves.")
    argmax_previous: Statistic = Field(None, description="Share of rows whose largest weight is just before.")
    argmax_next: Statistic = Field(None, description="Share of rows whose largest weight is just after.")


class AttentionItem(TokenColumns):
    """The maps of one input. The lists of labels name what each index of `attention` is."""

    words: list[str] | None = Field(None, description='Of the whole input, with "level": "word".')
    word_offsets: list[tuple[int, int]] | None = Field(
        None, description="Where each word stands in its text; `[0, 0]` for special and prompt tokens."
    )
    layers: list[int] | None = Field(None, description="Absent when there is no such axis.")
    heads: list[int] | None = Field(None, description="Absent when the heads were aggregated.")
    queries: list[int] | None = Field(None, description='Absent with "maps": false, like `keys`.')
    keys: list[int] | None = None
    embedding: list[float] | None = Field(None, description="(dimensions,), with `sentence` in `outputs`.")
    token_embeddings: list[list[list[float]]] | None = Field(
        None, description="(1, tokens, hidden), of the last layer, with `tokens` in `outputs`."
    )
    attention: list[Any] | None = Field(None, description="Nested lists along `axes`.")
    top_keys: list[Any] | None = Field(
        None, description="With `top_k`, positions of the largest weights of each row, largest first."
    )
    top_weights: list[Any] | None = Field(None, description="Those weights.")
    residual: list[Any] | None = Field(None, description="What each row has besides them.")
    summary: Summary | None = None


class AttentionResponse(BaseModel):
    """The answer of `/attention`."""

    model: str
    axes: list[Literal["layer", "head", "query", "key"]]
    data: list[AttentionItem]
    usage: Usage
