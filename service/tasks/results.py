"""The results of a task: columns and arrays for each input, and how large they can become."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from numpy.typing import NDArray

from model.contract import Encoding

MAPS = frozenset(("attention", "top_weights", "residual", "thumbnails"))
"""Arrays that `decimals` rounds in JSON and that `uint8` quantizes."""
SUMMARY = "summary."
"""The prefix of statistics' names: `decimals` rounds statistics, too, and in files they stay float32."""
VECTORS = frozenset(("embedding", "chunks"))
"""Arrays that have the `precision` of the response."""
INTEGERS = frozenset(("top_keys", "sparse_ids", "lens_ids"))
"""Arrays of int32."""
Column = Literal["tokens", "token_ids", "offsets", "word_ids", "segment_ids", "special"]
COLUMNS: tuple[Column, ...] = get_args(Column)
"""The columns with a value for each token of an item, in the order in which they are written."""
_NESTED = {
    "chunks": "chunks.embeddings",
    "sparse_ids": "sparse.token_ids",
    "sparse_weights": "sparse.weights",
    "lens_ids": "logit_lens.token_ids",
    "lens_logits": "logit_lens.logits",
    "lens_probabilities": "logit_lens.probabilities",
}


class Parts:
    """A list in a column that may be long: each of its items is written by itself."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items


@dataclass(slots=True)
class Item:
    """The result for one input.

    `columns` are ready for orjson, except for `Parts`. `arrays` are written in order, the statistics of a
    summary last; their dtype is float32, int32 (positions), for maps the array type of the response: float16,
    or round(255·p) in uint8, and for vectors the dtype of the response's precision. Statistics have the shape
    (layers, heads).
    """

    columns: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


@dataclass(slots=True)
class Expected:
    """The maximum size of one item, known before anything is computed.

    `arrays` has shapes as computed, those of vectors before they are quantized; `encoding` has the tokens
    whose `columns` the item has; `labels` counts the integers in further lists, and `column_bytes` bounds all
    else in JSON. `held_bytes` counts arrays that are held until the item is made from them. `names` has the
    arrays whose numbers are named, with a bound on the bytes of each such name in JSON.
    """

    arrays: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    encoding: Encoding | None = None
    labels: int = 0
    column_bytes: int = 0
    held_bytes: int = 0
    columns: Sequence[Column] = COLUMNS
    names: Mapping[str, int] = field(default_factory=dict)


def covered(encoding: Encoding) -> list[tuple[int, int]]:
    """Return what the tokens that run cover of a text, or of each of a pair: [start, end], in code points.

    Offsets ascend within a text, so only its first and last token are read: a batch may have 100,000 tokens.
    """
    special, segments, offsets = encoding.special, encoding.segment_ids, encoding.offsets
    start, end, found = encoding.prompt_length, len(offsets), []
    while start < end:
        stop = start + 1
        if not special[start]:
            stop = min(_next(special, 1, start, end), _next(segments, segments[start] + 1, start, end))
            first = next((i for i in range(start, stop) if offsets[i][0] < offsets[i][1]), None)
            if first is not None:
                last = next(i for i in reversed(range(start, stop)) if offsets[i][0] < offsets[i][1])
                found.append((offsets[first][0], offsets[last][1]))
        start = stop
    return found


def _next(values: list[Any], value: object, start: int, end: int) -> int:
    """Find the next place of a value, `end` if there is none."""
    try:
        return values.index(value, start)
    except ValueError:
        return end


def lengths(encoding: Encoding) -> dict[str, Any]:
    """Say how much of an input was read."""
    found = {"truncated": encoding.truncated, "original_length": encoding.original_length}
    return {**found, "covered": covered(encoding)} if encoding.truncated else found


def columns(index: int, encoding: Encoding, chosen: Sequence[Column] = COLUMNS) -> dict[str, Any]:
    """Collect the chosen token columns of one item, ready for JSON."""
    every: dict[str, Any] = {
        "index": index,
        "tokens": encoding.tokens,
        "token_ids": encoding.token_ids,
        "offsets": encoding.offsets,
        "word_ids": encoding.word_ids,
        "segment_ids": encoding.segment_ids,
        "special": encoding.special,
        **lengths(encoding),
    }
    if len(chosen) == len(COLUMNS):
        return every
    return {name: value for name, value in every.items() if name in chosen or name not in COLUMNS}


def place_of(name: str) -> tuple[str, str]:
    """Return the JSON field of an array, and the array's name in it if the field is an object, or ""."""
    column, _, member = _NESTED.get(name, name).partition(".")
    return column, member
