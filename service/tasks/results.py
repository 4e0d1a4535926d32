"""The results of a task: for each input columns and arrays, and how large they can become."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from model.contract import Encoding, FloatArray

MAPS = frozenset(("attention", "top_weights", "residual", "thumbnails"))
"""Arrays that `decimals` rounds in JSON and that `uint8` quantizes; the others are sent unchanged."""
VECTORS = frozenset(("embedding", "chunks"))
"""Arrays that have the `precision` of the response."""
NESTED = {
    "chunks": ("chunks", "embeddings"),
    "sparse_ids": ("sparse", "token_ids"),
    "sparse_weights": ("sparse", "weights"),
}
"""Arrays that JSON puts into a column, which is an object: that column, and their name there."""


@dataclass(frozen=True, slots=True)
class Item:
    """The result for one input.

    `columns` are ready for orjson. `arrays` are written in order; their dtype is float32, int32 (positions),
    for maps the array type of the response: float16, or round(255·p) in uint8, and for vectors the dtype of
    the response's precision. `summary` has float32 arrays of shape (layers, heads), which stay float32 in
    binary formats whatever the array type.
    """

    columns: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]
    summary: Mapping[str, FloatArray] | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """The maximum size of one item, known before anything is computed.

    `arrays` are shapes as computed, of vectors before they are quantized; `labels` counts the integers in
    additional column lists, `text_bytes` the UTF-8 bytes of additional strings, of which there are at most as
    many as tokens; `summary` has the shape of each statistic. `column_bytes` bounds further
    columns as JSON; `held_bytes` counts arrays that wait until the item is made of them.
    """

    arrays: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    labels: int = 0
    text_bytes: int = 0
    summary: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    column_bytes: int = 0
    held_bytes: int = 0


def columns(index: int, encoding: Encoding) -> dict[str, Any]:
    """Collect the token columns of one item, ready for JSON."""
    return {
        "index": index,
        "tokens": encoding.tokens,
        "token_ids": encoding.token_ids,
        "offsets": encoding.offsets,
        "word_ids": encoding.word_ids,
        "segment_ids": encoding.segment_ids,
        "special": encoding.special,
        "truncated": encoding.truncated,
        "original_length": encoding.original_length,
    }


def present(**arrays: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
    """Drop arrays that are None, which were not requested."""
    return {name: array for name, array in arrays.items() if array is not None}
