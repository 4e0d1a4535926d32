"""An upper bound on a response's size, from shapes and tokens, before anything is computed.

For binary formats it is close to the actual size. Compression is ignored.
"""

import math
from collections.abc import Iterable, Mapping
from functools import cache

from model.tokenization.decoding import json_bytes
from service.replies.formats import FORMATS
from service.replies.style import AnswerStyle
from service.tasks.results import VECTORS, Column, Expected

# The digits of a position, a comma and a bracket.
_LABEL_BYTES = 10
# Bytes of one token in each column, with its comma, quotes and brackets; for `tokens`, without the text.
_COLUMN_BYTES: Mapping[Column, int] = {
    "tokens": 5,
    "token_ids": 12,
    "offsets": 27,
    "word_ids": 12,
    "segment_ids": 2,
    "special": 6,
}
_ITEM_BYTES = 320
# The names of labels and words, with their punctuation.
_MORE_BYTES = 320
_ANSWER_BYTES = 256


def bound(style: AnswerStyle, expected: Iterable[Expected]) -> int:
    """Bound the bytes of an uncompressed response with such items."""
    return bound_head(style) + sum([bound_item(style, item) for item in expected])


def bound_head(style: AnswerStyle) -> int:
    """Bound the bytes of a response without its items."""
    return _ANSWER_BYTES + 6 * len(style.model)


def bound_item(style: AnswerStyle, item: Expected) -> int:
    """Bound the bytes of one item of a response."""
    return bound_columns(style, item) + bound_arrays(style, item.arrays, item.names)


def bound_columns(style: AnswerStyle, item: Expected) -> int:
    """Bound the bytes of an item without its arrays."""
    form = FORMATS[style.format]
    size = strings = item.column_bytes
    if item.encoding is not None and style.value is None:
        strings += json_bytes("".join(item.encoding.tokens)) if "tokens" in item.columns else 0
        size = strings + _ITEM_BYTES + len(item.encoding.token_ids) * _bytes_of_token(tuple(item.columns))
        if item.labels or item.column_bytes:
            size += _MORE_BYTES + item.labels * _LABEL_BYTES
    return size + strings if form.quoted else size


def bound_arrays(style: AnswerStyle, arrays: Mapping[str, tuple[int, ...]], names: Mapping[str, int]) -> int:
    """Bound the bytes of an item's arrays, given as shapes by name, and of the `names` of their numbers."""
    form = FORMATS[style.format]
    size = sum(
        [form.array_bytes(style, name, style.stored_shape(name, shape)) for name, shape in arrays.items()]
    )
    if not names:
        return size
    # Each list of names has two brackets and a comma; in a string, quotes and backslashes take one byte more.
    text = sum([math.prod(arrays[name]) * (each + 3) for name, each in names.items()])
    return size + text * (2 if form.quoted else 1)


@cache
def _bytes_of_token(columns: tuple[Column, ...]) -> int:
    """Bound the bytes of one token in some columns, without its text."""
    return sum(map(_COLUMN_BYTES.__getitem__, columns))


def waiting_bytes(style: AnswerStyle, expected: Iterable[Expected]) -> int:
    """Count the bytes held while other outputs are awaited: vectors to be quantized, and what items hold."""
    size = 0
    for item in expected:
        size += item.held_bytes
        if style.precision != "float32":
            size += 4 * sum(math.prod(shape) for name, shape in item.arrays.items() if name in VECTORS)
    return size
