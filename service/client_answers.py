"""The items of an answer as a client has them: typed columns and float32 arrays.

N tokens, L layers, H heads, Q queries, K keys, W words, C hidden size. Indices count from 0.
"""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]
Json = Mapping[str, Any]

T = TypeVar("T")
AXES = ("layer", "head", "query", "key")
_LABELS = {"layer": "layers", "head": "heads", "query": "queries", "key": "keys"}


@dataclass(frozen=True, eq=False)
class Answer(Sequence[T]):
    """The items in the order of the inputs.

    `usage["input_tokens"]` are the tokens really run. `max_error` bounds what a smaller `dtype` took from any
    number; None where the answer does not say.
    """

    model: str
    items: tuple[T, ...]
    usage: Mapping[str, int]
    max_error: float | None
    request_id: str | None

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)


@dataclass(frozen=True, eq=False)
class Tokens:
    """What was run for one input, in columns of N tokens, whatever was selected."""

    index: int
    """Which input this is."""
    tokens: list[str]
    token_ids: IntArray
    """(N,)"""
    offsets: IntArray
    """(N, 2): [start, end) in the text a token comes from, as Python slices it; 0, 0 for special tokens."""
    word_ids: list[int | None]
    """From 0 in each text of a pair; None for special and prompt tokens."""
    segment_ids: IntArray
    """(N,): which text of a pair."""
    special: NDArray[np.bool_]
    """(N,): added by the tokenizer."""
    truncated: bool
    original_length: int
    """Tokens before the cut."""
    embedding: FloatArray | None
    """The sentence vector, (dimensions,), with "sentence" in `outputs`."""
    token_embeddings: FloatArray | None
    """(layers, N, C), with "tokens" in `outputs`."""


@dataclass(frozen=True, eq=False)
class Encoded(Tokens):
    """The vectors of one input."""


class BertViz(NamedTuple):
    """The arguments of `bertviz.head_view` and `bertviz.model_view`, in their order."""

    attention: list[Any]
    """One torch tensor per layer, (1, H, N, N), float32."""
    tokens: list[str]
    sentence_b_start: int | None
    """The first token of the second text of a pair."""


@dataclass(frozen=True, eq=False)
class AttentionMaps(Tokens):
    """The maps of one input. `axes` says what the axes of the arrays are, label lists name their indices."""

    axes: tuple[str, ...]
    layers: list[int] | None
    heads: list[int] | None
    queries: list[int] | None
    keys: list[int] | None
    attention: FloatArray | None
    """(L, H, Q, K), less the axes that were dropped; None with `top_k` and with maps=False."""
    top_keys: NDArray[np.int32] | None
    """With `top_k`, in the shape of `attention` with k for K: positions in the whole input, largest first."""
    top_weights: FloatArray | None
    """The weights of `top_keys`."""
    residual: FloatArray | None
    """What each row of `top_weights` leaves out, without the last axis."""
    summary: dict[str, FloatArray] | None
    """(L, H) each, whatever the axes are, with `summary`."""
    words: list[str] | None
    """W words, with level="word"."""
    word_offsets: IntArray | None
    """(W, 2)"""

    def to_bertviz(self) -> BertViz:
        """Hand over to BertViz: `head_view(*item.to_bertviz())`, `model_view(*item.to_bertviz())`.

        Layers and heads that were selected are numbered from 0 there. Raises ValueError if the maps are not
        whole, and ModuleNotFoundError without torch, which BertViz (1.4) itself needs.
        """
        maps, every = self.attention, list(range(len(self.tokens)))
        if maps is None or self.axes != AXES:
            raise ValueError(
                "BertViz shows the whole map of each head: leave aggregate, top_k and maps out of "
                "the request."
            )
        if self.words is not None or self.queries != every or self.keys != every:
            raise ValueError(
                "BertViz shows a row and a column for each token: leave level, special_tokens, queries "
                "and keys out of the request."
            )
        try:
            torch = importlib.import_module("torch")  # BertViz stacks tensors; nobody else here needs torch
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "BertViz reads torch tensors: install torch, as it says itself."
            ) from None
        second = np.flatnonzero(self.segment_ids == 1)
        return BertViz(
            attention=[torch.tensor(layer)[None] for layer in maps],  # (1, H, N, N) each
            tokens=self.tokens,
            sentence_b_start=int(second[0]) if second.size else None,
        )


def encoded(item: Json, _axes: Sequence[str], scale: float) -> Encoded:
    """Read an item of `/encode`; raises KeyError, TypeError or ValueError if it is none."""
    return Encoded(**_columns(item, scale))


def attention_maps(item: Json, axes: Sequence[str], scale: float) -> AttentionMaps:
    """Read an item of `/attention`, of lists or arrays; those of uint8 are multiplied by `scale`.

    Raises KeyError, TypeError or ValueError if it is none, or its labels do not fit its arrays.
    """
    labels: dict[str, Any] = {name: item.get(name) for name in _LABELS.values()}
    shape = [len(labels[_LABELS[axis]]) for axis in axes]
    rows = shape[:-1]
    prefix, word_offsets = "summary.", item.get("word_offsets")
    summary = item.get("summary")
    if summary is None:  # an archive has each statistic as an array of its own
        summary = {name.removeprefix(prefix): item[name] for name in item if name.startswith(prefix)} or None
    return AttentionMaps(
        **_columns(item, scale),
        **labels,
        axes=tuple(axes),
        attention=_floats(item.get("attention"), scale, shape),
        top_keys=_top(item.get("top_keys"), rows, np.int32),
        top_weights=_floats(_top(item.get("top_weights"), rows), scale),
        residual=_floats(item.get("residual"), scale, rows),
        summary=summary and {name: np.asarray(value, np.float32) for name, value in summary.items()},
        words=item.get("words"),
        word_offsets=None if word_offsets is None else np.asarray(word_offsets, np.int64).reshape(-1, 2),
    )


def _columns(item: Json, scale: float) -> dict[str, Any]:
    count = len(item["tokens"])
    return {
        "index": item["index"],
        "tokens": item["tokens"],
        "token_ids": np.asarray(item["token_ids"], np.int64).reshape(count),
        "offsets": np.asarray(item["offsets"], np.int64).reshape(count, 2),
        "word_ids": item["word_ids"],
        "segment_ids": np.asarray(item["segment_ids"], np.int64).reshape(count),
        "special": np.asarray(item["special"], np.bool_).reshape(count),
        "truncated": item["truncated"],
        "original_length": item["original_length"],
        "embedding": _floats(item.get("embedding"), scale),
        "token_embeddings": _floats(item.get("token_embeddings"), scale),
    }


def _floats(values: Any, scale: float, shape: Sequence[int] | None = None) -> FloatArray | None:
    """Make float32 of lists or of an array; the shape is what lists without rows cannot say."""
    if values is None:
        return None
    stored = values if isinstance(values, np.ndarray) else np.asarray(values, np.float32)
    array: FloatArray = np.asarray(stored, np.float32)
    if stored.dtype == np.uint8:
        array *= np.float32(scale)
    return array if shape is None else array.reshape(shape)


def _top(values: Any, rows: Sequence[int], dtype: type | None = None) -> NDArray[Any] | None:
    """Give k columns to each row, also where there are no rows."""
    if values is None:
        return None
    array = np.asarray(values, dtype)
    return array.reshape(*rows, array.size // max(1, int(np.prod(rows))))
