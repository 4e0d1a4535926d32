"""An upper bound on a response's size, known before anything is computed.

For binary formats it is close to the actual size. Compression is ignored.
"""

import math
from collections.abc import Mapping, Sequence
from heapq import nlargest

from model.contract import Encoding
from model.tokenization.decoding import json_bytes
from service.replies.json_arrays import TABLE_DECIMALS, text_size
from service.replies.style import AnswerStyle
from service.tasks.precision import stored_size
from service.tasks.results import MAPS, VECTORS, Expected

# The longest text that orjson writes for a float32, with its comma: -1234567900000000.0 in general,
# 0.0000123456789 for a probability.
_FLOAT_BYTES = 20
_PROBABILITY_BYTES = 16
# The digits of a position, a comma and a bracket; those of an int32 and a comma.
_LABEL_BYTES = 10
_INTEGER_BYTES = 12
# The digits of an int8, with its sign and comma.
_BYTE_BYTES = 5
# Token columns: id, word id, segment id, special, offsets, with their commas, quotes and brackets.
_TOKEN_BYTES = 64
_ITEM_BYTES = 320
# The names of labels, words and the statistics of a summary, with their punctuation.
_MORE_BYTES = 320
_ANSWER_BYTES = 256
# The index and the name of a text, with their punctuation; and a control character.
_LABELLED_BYTES = 40
_ESCAPED_BYTES = 6
# The fields of a ranked text, besides the text itself.
_RANKED_BYTES = 128
# In a file: an array's name, type and shape, twice in a ZIP.
_MEMBER_BYTES = 400


def bound(style: AnswerStyle, encodings: Sequence[Encoding], expected: Sequence[Expected]) -> int:
    """Bound the bytes of an uncompressed response; `expected` has one entry per encoding."""
    items = zip(encodings, expected, strict=True)
    return _ANSWER_BYTES + 6 * len(style.model) + sum(bound_item(style, *item) for item in items)


def bound_item(style: AnswerStyle, encoding: Encoding, expected: Expected) -> int:
    """Bound one item of such a response."""
    arrays = sum(_array_bytes(style, name, shape) for name, shape in expected.arrays.items())
    return _columns_bytes(style, encoding, expected) + _summary_bytes(style, expected.summary) + arrays


def bound_largest(style: AnswerStyle, items: Sequence[int], count: int) -> int:
    """Bound a response that will have `count` of the items whose bounds are given."""
    return _ANSWER_BYTES + 6 * len(style.model) + sum(nlargest(count, items))


def bound_ranked(text: str) -> int:
    """Bound the fields of a ranked text in JSON; `text` is empty if it is not returned."""
    return _RANKED_BYTES + _ESCAPED_BYTES * len(text)


def bound_alone(style: AnswerStyle, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Bound a response whose only item has arrays of these shapes and, besides them, a few short fields."""
    arrays = sum(_array_bytes(style, name, shape) for name, shape in shapes.items())
    return _ANSWER_BYTES + 6 * len(style.model) + _ITEM_BYTES + arrays


def bound_texts(style: AnswerStyle, text_bytes: int, items: int) -> int:
    """Bound a response of items that have one text each, of `text_bytes` bytes in all, and an index."""
    return _ANSWER_BYTES + 6 * len(style.model) + items * _LABELLED_BYTES + _ESCAPED_BYTES * text_bytes


def _columns_bytes(style: AnswerStyle, encoding: Encoding, item: Expected) -> int:
    # In a safetensors header the JSON is itself a JSON string: each quote and backslash is escaped.
    quoting = 2 if style.format == "safetensors" else 1
    if style.value is not None:
        return item.column_bytes
    size = _ITEM_BYTES + len(encoding) * _TOKEN_BYTES + quoting * json_bytes("".join(encoding.tokens))
    if item.labels or item.text_bytes or item.summary:
        size += _MORE_BYTES + item.labels * _LABEL_BYTES
    if item.text_bytes:
        size += quoting * (6 * item.text_bytes + 3 * len(encoding))
    return size + quoting * item.column_bytes


def waiting_bytes(style: AnswerStyle, expected: Sequence[Expected]) -> int:
    """Count the bytes of arrays that wait for the others: vectors to be quantized, and what items hold."""
    held = sum(item.held_bytes for item in expected)
    if style.precision == "float32":
        return held
    shapes = (shape for item in expected for name, shape in item.arrays.items() if name in VECTORS)
    return held + 4 * sum(map(math.prod, shapes))


def _array_bytes(style: AnswerStyle, name: str, shape: tuple[int, ...]) -> int:
    is_map = name in MAPS
    quantized = name in VECTORS and style.precision != "float32"
    if quantized:
        shape = (*shape[:-1], stored_size(shape[-1], style.precision))
    if not style.binary:
        return _ITEM_BYTES + text_size(shape, _number_bytes(style, name))
    itemsize = 1 if quantized else 4
    if is_map and style.dtype == "uint8":
        itemsize = 1
    elif is_map and style.unit and style.dtype == "float16":  # other values may overflow float16
        itemsize = 2
    return _MEMBER_BYTES + math.prod(shape) * itemsize


def _number_bytes(style: AnswerStyle, name: str) -> int:
    if name in ("top_keys", "sparse_ids"):
        return _INTEGER_BYTES
    if name in VECTORS and style.precision != "float32":
        return _BYTE_BYTES
    if name not in MAPS or not style.unit:
        return _FLOAT_BYTES
    if style.decimals is not None and style.decimals <= TABLE_DECIMALS:
        return style.decimals + 3
    return _PROBABILITY_BYTES


def _summary_bytes(style: AnswerStyle, summary: Mapping[str, tuple[int, ...]]) -> int:
    """Bound statistics: each number is in nats, or a distance in tokens of at most five digits."""
    values = sum(map(math.prod, summary.values()))
    if style.binary:
        return _MEMBER_BYTES * len(summary) + 4 * values
    number = _FLOAT_BYTES if style.decimals is None else min(_FLOAT_BYTES, style.decimals + 7)
    return values * (3 + number)  # 3: with one head per layer, every number is in a list of its own
