"""The parsed items of a response: typed columns and float32 arrays.

N tokens, L layers, H heads, Q queries, K keys, W words, C hidden size. Indices count from 0.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, get_args, overload

import numpy as np
from numpy.typing import NDArray

from headlight_client.bertviz import BertViz, to_bertviz
from headlight_client.frames import Columns, Row, data_frame

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]
Json = Mapping[str, Any]

T = TypeVar("T")
Column = Literal["tokens", "token_ids", "offsets", "word_ids", "segment_ids", "special"]
"""What an item says of each of its tokens."""
AXES = ("layer", "head", "query", "key")
_SUMMARY = "summary."
_COLUMNS = get_args(Column)
_LABELS = {"layer": "layers", "head": "heads", "query": "queries", "key": "keys", "edge": "edges"}


@dataclass(frozen=True, eq=False, repr=False)
class Answer(Sequence[T]):
    """The items in the order of the inputs: `answer[0]` is that of the first.

    `usage["input_tokens"]` is the number of tokens run, without padding. `max_error` bounds the error that a
    smaller `dtype` added to any number; None if the response does not declare it. `request_ids` has one id
    per request of the call.
    """

    model: str
    items: tuple[T, ...]
    usage: Mapping[str, int]
    max_error: float | None
    request_ids: tuple[str, ...]
    method: str | None = None
    """How texts were ranked: "cross-encoder", "late-interaction", "bi-encoder" or "hybrid"; or explained."""

    @property
    def request_id(self) -> str | None:
        """The id of the request in the service's log; the first if the call took several requests."""
        return self.request_ids[0] if self.request_ids else None

    @cached_property
    def embeddings(self) -> FloatArray:
        """The sentence vectors as one array, (texts, dimensions), float32.

        Raises ValueError if none were requested.
        """
        found = [getattr(item, "embedding", None) for item in self.items]
        vectors = [vector for vector in found if vector is not None]
        if not vectors or len(vectors) < len(found):
            raise ValueError('The response has no sentence vectors: use outputs=["sentence"].')
        return np.stack(vectors)

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with a row for each item, or with `summary` for each head of each item.

        The cells of the column `embedding` are arrays. Raises ModuleNotFoundError without pandas, and
        TypeError for an answer of `decode`, whose items are strings.
        """
        return data_frame([row for item in self.items for row in _rows_of(item)])

    def __repr__(self) -> str:
        first = self.items[0] if self.items else None
        parts = [f"model={self.model!r}", f"items={len(self)} × {type(first).__name__}"]
        vector = getattr(first, "embedding", None)
        if vector is not None:
            parts.append(f"embeddings={vector.dtype}{(len(self), *vector.shape)}")
        return f"Answer({', '.join([*parts, f'usage={dict(self.usage)}'])})"

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


@dataclass(frozen=True, eq=False, repr=False)
class Tokens:
    """The tokens run for one input, in columns of length N, whatever was selected.

    A column that `columns` left out raises AttributeError.
    """

    index: int
    """The index of the input."""
    tokens: list[str]
    token_ids: IntArray
    """(N,)"""
    offsets: IntArray
    """(N, 2): [start, end) in the token's text, as for Python slices; 0, 0 for special tokens."""
    word_ids: list[int | None]
    """Counted from 0 in each text of a pair; None for special and prompt tokens."""
    segment_ids: IntArray
    """(N,): the text of a pair that each token belongs to, 0 or 1."""
    special: NDArray[np.bool_]
    """(N,): whether the tokenizer added the token."""
    truncated: bool
    original_length: int
    """Tokens before truncation."""
    covered: list[list[int]] | None
    """What was read of a truncated text, or of both of a pair: [start, end), as for Python slices."""
    embedding: NDArray[Any] | None
    """The sentence vector, (dimensions,), with "sentence" in `outputs`; integers with another `precision`."""
    token_embeddings: FloatArray | None
    """(layers, N, C), with "tokens" in `outputs`."""

    def __post_init__(self) -> None:
        for name in _COLUMNS:
            if vars(self)[name] is None:
                del vars(self)[name]

    if not TYPE_CHECKING:  # the types of columns are those of the columns that are there

        def __getattr__(self, name: str) -> NoReturn:
            if name in _COLUMNS:
                raise AttributeError(f"This answer has no {name}: add it to `columns` in the call.")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with a row for each token; raises ModuleNotFoundError without pandas."""
        return data_frame(self._token_columns())

    def _rows(self) -> list[Row]:
        """The rows of `Answer.to_pandas`."""
        row: Row = {
            "index": self.index,
            **self._count(),
            "truncated": self.truncated,
            "original_length": self.original_length,
        }
        if self.embedding is not None:
            row["embedding"] = self.embedding
        return [row]

    def _count(self) -> dict[str, int]:
        """The number of tokens, if any column says it."""
        column = next((vars(self)[name] for name in _COLUMNS if name in vars(self)), None)
        return {} if column is None else {"tokens": len(column)}

    def _token_columns(self) -> Columns:
        found: Columns = {}
        for name in _COLUMNS:
            column = vars(self).get(name)
            if name == "offsets" and column is not None:
                found |= {"start": column[:, 0].tolist(), "end": column[:, 1].tolist()}
            elif column is not None:
                found[name.removesuffix("s")] = column if isinstance(column, list) else column.tolist()
        return found

    def __repr__(self) -> str:
        """Show the item's fields, and the types and shapes of its arrays, in one line."""
        shown = [f"{name}={value}" for name, value in {"index": self.index, **self._count()}.items()]
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray) and name not in (*_COLUMNS, "word_offsets"):
                shown.append(f"{name}={value.dtype}{value.shape}")
        return f"{type(self).__name__}({', '.join(shown + self._more())})"

    def _more(self) -> list[str]:
        return ["truncated=True"] if self.truncated else []


@dataclass(frozen=True, eq=False)
class Chunks:
    """The vectors of parts of a text."""

    embeddings: NDArray[Any]
    """(chunks, dimensions)"""
    offsets: IntArray
    """(chunks, 2): [start, end) in the text, as for Python slices."""
    token_spans: IntArray
    """(chunks, 2): the tokens [first, after) of each chunk."""
    windows: IntArray | None
    """(windows, 2): the tokens [first, after) read together, of a text longer than the model reads."""


@dataclass(frozen=True, eq=False)
class SparseVector:
    """Weights of words of the vocabulary, or of learned features, largest first."""

    token_ids: IntArray
    tokens: list[str]
    weights: FloatArray


@dataclass(frozen=True, eq=False)
class LogitLens:
    """The words that hidden states predict: of each layer and position the k largest, largest first."""

    layers: list[int]
    """L hidden states: 0 is the output of the embedding layer."""
    positions: list[int]
    """P positions of tokens."""
    tokens: list[list[list[str]]]
    """The words, in the shape of their ids."""
    token_ids: NDArray[np.int32]
    """(L, P, k)"""
    logits: FloatArray
    """(L, P, k)"""
    probabilities: FloatArray
    """(L, P, k): the softmax over the whole vocabulary."""


@dataclass(frozen=True, eq=False, repr=False)
class Encoded(Tokens):
    """The vectors of one input."""

    chunks: Chunks | None
    """With `chunks`."""
    sparse: SparseVector | None
    """With "sparse" in `outputs`."""
    logit_lens: LogitLens | None
    """With "logit_lens" in `outputs`."""
    token_rows: list[int] | None
    """With `role`: the tokens that have a vector, one each in `token_embeddings` unless `token_clusters`."""
    token_clusters: list[int] | None
    """Where vectors are pooled: for each of `token_rows` the row of `token_embeddings` that it is part of."""


@dataclass(frozen=True, eq=False, repr=False)
class AttentionMaps(Tokens):
    """The maps of one input. `axes` names the axes of the arrays; `layers` to `keys` label their indices."""

    axes: tuple[str, ...]
    layers: list[int] | None
    heads: list[int] | None
    queries: list[int] | None
    keys: list[int] | None
    edges: list[list[int]] | None
    """With `edges`, in the place of `queries` and `keys`: [query, key] each."""
    attention: FloatArray | None
    """(L, H, Q, K), with `edges` (L, H, E), without the axes that were aggregated.

    None with `top_k`, `thumbnail` and maps=False."""
    top_keys: NDArray[np.int32] | None
    """With `top_k`, in the shape of `attention` with k for K: positions in the whole input, largest first."""
    top_weights: FloatArray | None
    """The weights of `top_keys`."""
    residual: FloatArray | None
    """The rest of each row's weight, in the shape of `top_weights` without the last axis."""
    thumbnails: FloatArray | None
    """With `thumbnail`, the largest weight of each cell; at most k cells for Q, and for K."""
    summary: dict[str, FloatArray] | None
    """(L, H) each, whatever the axes are, with `summary`."""
    query_vectors: FloatArray | None
    """(L, H, Q, D), as scores compare them, with "query" in `outputs`."""
    key_vectors: FloatArray | None
    """(L, H, K, D), with "key" in `outputs`; heads that share a key have it each."""
    score_scale: float | None
    """What scores multiply dot products of these vectors by."""
    output_norms: FloatArray | None
    """(L, H, Q): how long what a head adds to a token is, with "output_norm" in `outputs`."""
    words: list[str] | None
    """W words, with level="word"."""
    word_offsets: IntArray | None
    """(W, 2)"""

    def to_bertviz(self) -> BertViz:
        """Convert for BertViz: `head_view(*item.to_bertviz())`, `model_view(*item.to_bertviz())`.

        Maps of words are shown with words, and maps without special tokens without them. BertViz numbers the
        selected layers and heads from 0. Raises ValueError if the maps are not complete, and
        ModuleNotFoundError without torch, which BertViz (1.4) itself requires.
        """
        return to_bertviz(self.attention, self.axes, (self.queries, self.keys), self._names())

    def _rows(self) -> list[Row]:
        """The rows of `Answer.to_pandas`: with `summary` one for each head, each statistic a column."""
        if self.summary is None or self.layers is None or self.heads is None:
            return super()._rows()
        return [
            {
                "index": self.index,
                "layer": layer,
                "head": head,
                **{name: float(values[i, j]) for name, values in self.summary.items()},
            }
            for i, layer in enumerate(self.layers)
            for j, head in enumerate(self.heads)
        ]

    def _names(self) -> list[tuple[str, int, bool]]:
        """List the tokens or words, each with its segment id and whether it is special."""
        segments, special = self.segment_ids.tolist(), self.special.tolist()
        if self.words is None:
            return list(zip(self.tokens, segments, special, strict=True))
        # Special and prompt tokens are words of their own.
        columns = enumerate(zip(segments, self.word_ids, strict=True))
        keys = [(segment, word, i if word is None else -1) for i, (segment, word) in columns]
        firsts = [next(pieces)[0] for _, pieces in groupby(enumerate(keys), key=lambda token: token[1])]
        return [(word, segments[i], special[i]) for word, i in zip(self.words, firsts, strict=False)]

    def _more(self) -> list[str]:
        shown = [] if self.attention is None else [f"axes=({', '.join(self.axes)})"]
        if self.words is not None:
            shown.append(f"words={len(self.words)}")
        if self.summary is not None:
            shown.append(f"summary=[{', '.join(self.summary)}]")
        return shown + super()._more()


def _rows_of(item: object) -> list[Row]:
    if rows := getattr(item, "_rows", None):
        return list(rows())
    raise TypeError(f"to_pandas() needs items with fields, but these are of type {type(item).__name__}.")


def joined(answers: Sequence[Answer[T]]) -> Answer[T]:
    """Join the answers to the parts of a call, in order."""
    usage: Counter[str] = Counter()
    for answer in answers:
        usage.update(answer.usage)
    errors = [answer.max_error for answer in answers]
    return Answer(
        model=answers[0].model,
        items=tuple(item for answer in answers for item in answer),
        usage=dict(usage),
        max_error=None if None in errors else max(error for error in errors if error is not None),
        request_ids=tuple(name for answer in answers for name in answer.request_ids),
        method=answers[0].method,
    )


def encoded(item: Json, _axes: Sequence[str], scale: float) -> Encoded:
    """Parse an item of `/encode`; raises KeyError, TypeError or ValueError if it is invalid."""
    return Encoded(
        **token_columns(item, scale),
        chunks=_chunks(item),
        sparse=_sparse(item),
        logit_lens=_logit_lens(item, scale),
        token_rows=item.get("token_rows"),
        token_clusters=item.get("token_clusters"),
    )


def attention_maps(item: Json, axes: Sequence[str], scale: float) -> AttentionMaps:
    """Parse an item of `/attention`, with lists or arrays; uint8 arrays are multiplied by `scale`.

    Raises KeyError, TypeError or ValueError if it is invalid, or its labels do not match its arrays.
    """
    labels: dict[str, Any] = {name: item.get(name) for name in _LABELS.values()}
    shape = [len(labels[_LABELS[axis]]) for axis in axes]
    rows = shape[:-1]
    word_offsets = item.get("word_offsets")
    return AttentionMaps(
        **token_columns(item, scale),
        **labels,
        axes=tuple(axes),
        attention=_floats(item.get("attention"), scale, shape),
        top_keys=_top(item.get("top_keys"), rows, np.int32),
        top_weights=_floats(_top(item.get("top_weights"), rows), scale),
        residual=_floats(item.get("residual"), scale, rows),
        thumbnails=_thumbnails(item.get("thumbnails"), scale, rows[:-1]),
        summary=_summary(item),
        **_of_heads(item, labels, scale),
        words=item.get("words"),
        word_offsets=None if word_offsets is None else np.asarray(word_offsets, np.int64).reshape(-1, 2),
    )


def _of_heads(item: Json, labels: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """Parse the vectors of heads, and the norms of their outputs."""
    found: dict[str, Any] = {"score_scale": item.get("score_scale")}
    for name, tokens in (("query_vectors", "queries"), ("key_vectors", "keys"), ("output_norms", "queries")):
        values = item.get(name)
        shape = [len(labels[label]) for label in ("layers", "heads", tokens) if values is not None]
        norms = name == "output_norms"
        found[name] = _floats(values, scale, shape) if norms else _floats(_top(values, shape), scale)
    return found


def _summary(item: Json) -> dict[str, FloatArray] | None:
    """Parse the statistics, sent as JSON or as arrays named like `summary.entropy`."""
    statistics = dict(item.get("summary") or {})
    statistics |= {name.removeprefix(_SUMMARY): item[name] for name in item if name.startswith(_SUMMARY)}
    return {name: np.asarray(values, np.float32) for name, values in statistics.items()} or None


def token_columns(item: Json, scale: float) -> dict[str, Any]:
    """Parse the fields that items of all routes have in common; raises as the others do."""
    count = next((len(item[name]) for name in _COLUMNS if name in item), 0)

    def array(name: str, dtype: type, *more: int) -> NDArray[Any] | None:
        return np.asarray(item[name], dtype).reshape(count, *more) if name in item else None

    return {
        "index": item["index"],
        "tokens": item.get("tokens"),
        "token_ids": array("token_ids", np.int64),
        "offsets": array("offsets", np.int64, 2),
        "word_ids": item.get("word_ids"),
        "segment_ids": array("segment_ids", np.int64),
        "special": array("special", np.bool_),
        "truncated": item["truncated"],
        "original_length": item["original_length"],
        "covered": item.get("covered"),
        "embedding": _vectors(item.get("embedding"), item),
        "token_embeddings": _floats(item.get("token_embeddings"), scale),
    }


_STORED = {"int8": np.int8, "binary": np.int8, "uint8": np.uint8, "ubinary": np.uint8}
"""The types of vectors by `precision`."""


def _vectors(values: Any, item: Json) -> NDArray[Any] | None:
    """Convert vectors to float32, or to the integers of the item's precision."""
    dtype: Any = _STORED.get(item.get("precision", "float32"), np.float32)
    return None if values is None else np.asarray(values, dtype)


def _chunks(item: Json) -> Chunks | None:
    chunks = item.get("chunks")
    if chunks is None:
        return None
    names = ("offsets", "token_spans", "windows")
    offsets, spans, windows = (np.asarray(chunks.get(name, ()), np.int64).reshape(-1, 2) for name in names)
    vectors = np.atleast_2d(np.asarray(_vectors(chunks["embeddings"], item)))
    # A list of no chunks becomes one row.
    return Chunks(vectors[: len(offsets)], offsets, spans, windows if len(windows) else None)


def _sparse(item: Json) -> SparseVector | None:
    """Parse a sparse vector, whose numbers are in JSON or in arrays of their own."""
    sparse = item.get("sparse")
    if sparse is None:
        return None
    ids, weights = (
        item.get(array, sparse.get(name))
        for array, name in (("sparse_ids", "token_ids"), ("sparse_weights", "weights"))
    )
    return SparseVector(np.asarray(ids, np.int64), sparse["tokens"], np.asarray(weights, np.float32))


def _logit_lens(item: Json, scale: float) -> LogitLens | None:
    """Parse the words of hidden states, whose numbers are in JSON or in arrays of their own."""
    lens = item.get("logit_lens")
    if lens is None:
        return None
    ids, logits, shares = (
        item.get(array, lens.get(name))
        for array, name in (
            ("lens_ids", "token_ids"),
            ("lens_logits", "logits"),
            ("lens_probabilities", "probabilities"),
        )
    )
    shape = (len(lens["layers"]), len(lens["positions"]), -1)
    return LogitLens(
        lens["layers"],
        lens["positions"],
        lens["tokens"],
        np.asarray(ids, np.int32).reshape(shape),
        np.asarray(_floats(logits, scale)).reshape(shape),
        np.asarray(_floats(shares, scale)).reshape(shape),
    )


def _floats(values: Any, scale: float, shape: Sequence[int] | None = None) -> FloatArray | None:
    """Convert lists or an array to float32; `shape` is needed because lists without rows have none."""
    if values is None:
        return None
    stored = values if isinstance(values, np.ndarray) else np.asarray(values, np.float32)
    array: FloatArray = np.asarray(stored, np.float32)
    if stored.dtype == np.uint8:
        array *= np.float32(scale)
    return array if shape is None else array.reshape(shape)


def _thumbnails(values: Any, scale: float, leading: Sequence[int]) -> FloatArray | None:
    """Convert thumbnails; those of nothing have neither rows nor columns, which lists do not say."""
    array = _floats(values, scale)
    return array if array is None or array.size else array.reshape(*leading, 0, 0)


def _top(values: Any, rows: Sequence[int], dtype: type | None = None) -> NDArray[Any] | None:
    """Reshape to k columns per row, even if there are no rows."""
    if values is None:
        return None
    array = np.asarray(values, dtype)
    return array.reshape(*rows, array.size // max(1, int(np.prod(rows))))
