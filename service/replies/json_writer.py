"""Writes items as JSON: one document for all of them, or a line for each (ndjson); bounds an array's text."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from service.replies.json_arrays import (
    FEW_VALUES,
    PIECE_VALUES,
    TABLE_DECIMALS,
    array_text,
    in_parts,
    plain,
    text_size,
)
from service.replies.style import AnswerStyle
from service.tasks.results import INTEGERS, MAPS, SUMMARY, Item, place_of

Piece = bytes | memoryview

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_PASSTHROUGH_DATACLASS
_PIECE_BYTES = 256 * 1024
# Bytes of the name of an array, with its punctuation.
_NAME_BYTES = 320
# Bytes of the longest text of a float32 (-1234567900000000.0), an int32 and an int8, with its comma.
_FLOAT_BYTES, _INTEGER_BYTES, _BYTE_BYTES = 20, 12, 5


@dataclass(frozen=True, slots=True)
class _Numbers:
    """An array, and how its numbers are rounded."""

    array: NDArray[Any]
    decimals: int
    unit: bool


def array_bytes(style: AnswerStyle, name: str, shape: tuple[int, ...]) -> int:
    """Bound the bytes of the text of an array, with its name."""
    number = _FLOAT_BYTES
    if style.quantizes(name):
        number = _BYTE_BYTES
    elif name in INTEGERS:
        number = _INTEGER_BYTES
    elif name in MAPS and style.unit and style.decimals is not None and style.decimals <= TABLE_DECIMALS:
        number = style.decimals + 3
    return _NAME_BYTES + text_size(shape, number)


def document(style: AnswerStyle, items: Iterable[Item], tokens: int) -> tuple[None, Iterator[Piece]]:
    """Write a response in pieces; `tokens` is the number of tokens run."""
    return None, _document(style, items, tokens)


def _document(style: AnswerStyle, items: Iterable[Item], tokens: int) -> Iterator[Piece]:
    if style.value is not None:
        before, after = (b"", b"") if style.frame is None else style.frame(tokens)
        yield before
        values = map(_value, map(style.value, items))
        yield from _listed(values) if style.listed else next(values)
        yield after() if callable(after) else after
    elif style.listed:
        yield _dumps(style.head)[:-1] + b',"data":'
        yield from _listed(map(partial(_item, style), items))
        yield b',"usage":{"input_tokens":%d}}' % tokens
    else:
        (item,) = items
        usage = {"usage": {"input_tokens": tokens}}
        yield from _item(style, Item({**style.head, **item.columns}, item.arrays), usage)


def lines(style: AnswerStyle, items: Iterable[Item]) -> Iterator[Piece]:
    """Write an ndjson line for each item, in pieces."""
    return gathered(piece for item in items for piece in (*_item(style, item), b"\n"))


def last_line(style: AnswerStyle, tokens: int) -> bytes:
    """Write the line after the last item."""
    return _dumps({**style.head, "usage": {"input_tokens": tokens}}) + b"\n"


def all_lines(style: AnswerStyle, items: Iterable[Item], tokens: int) -> tuple[None, Iterator[Piece]]:
    """Write an ndjson line for each item, and the line after the last one, in pieces."""

    def pieces() -> Iterator[Piece]:
        yield from lines(style, items)
        yield last_line(style, tokens)

    return None, pieces()


def gathered(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Join small consecutive pieces to save writes; large pieces are not copied."""
    small: list[Piece] = []
    size = 0
    for piece in pieces:
        large = len(piece) >= _PIECE_BYTES
        if not large:
            small.append(piece)
            size += len(piece)
        if small and (large or size >= _PIECE_BYTES):
            yield b"".join(small)
            small, size = [], 0
        if large:
            yield piece
    if small:
        yield b"".join(small)


def _item(style: AnswerStyle, item: Item, more: Mapping[str, Any] | None = None) -> Iterable[Piece]:
    """Write an item and `more` fields: at once if its arrays are small, otherwise each field by itself."""
    fields, small = dict(item.columns), True
    most = PIECE_VALUES if style.decimals is None else FEW_VALUES
    for name, array in item.arrays.items():
        small &= array.size <= most
        column, member = place_of(name)
        numbers = array if style.decimals is None else _rounded(style, style.decimals, name, array)
        fields[column] = {**fields.get(column, {}), member: numbers} if member else numbers
    fields |= more or {}
    return (_dumps(fields),) if small else _members(fields)


def _rounded(style: AnswerStyle, decimals: int, name: str, array: NDArray[Any]) -> Any:
    if name not in MAPS and not name.startswith(SUMMARY):
        return array
    return _Numbers(array, decimals, style.unit and name in MAPS)


def _listed(values: Iterable[Iterable[Piece]]) -> Iterator[Piece]:
    between = b"["
    for value in values:
        yield between
        yield from value
        between = b","
    yield b"]"


def _members(fields: Mapping[str, Any]) -> Iterator[Piece]:
    between = b"{"
    for name, field in fields.items():
        yield between + _dumps(name) + b":"
        yield from _members(field) if isinstance(field, dict) else _value(field)
        between = b","
    yield b"}"


def _value(value: Any) -> Iterator[Piece]:
    """Write an array in pieces, a memoryview as it is, and anything else at once."""
    if isinstance(value, _Numbers):
        yield from array_text(value.array, value.decimals, unit=value.unit)
    elif isinstance(value, np.ndarray):
        yield from array_text(value, None)
    else:
        yield value if isinstance(value, memoryview) else _dumps(value)


def _dumps(value: Any) -> bytes:
    return orjson.dumps(value, default=_prepared, option=_OPTIONS)


def _prepared(value: Any) -> Any:
    """Convert what orjson cannot write itself: arrays to be rounded, arrays not contiguous, and `Parts`."""
    if isinstance(value, _Numbers):
        return plain(value.array, value.decimals)
    return plain(value, None) if isinstance(value, np.ndarray) else in_parts(value)
