"""Items -> JSON: one document for all of them, or a line for each (ndjson)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from service.replies.json_arrays import array_text, plain
from service.replies.style import AnswerStyle
from service.tasks.results import MAPS, NESTED, Item

Piece = bytes | memoryview

_PIECE_BYTES = 256 * 1024


def whole(style: AnswerStyle, items: Iterable[Item], tokens: int) -> bytes:
    """Write a short response at once, holding the interpreter lock."""
    if style.value is not None:
        values = [_contiguous(style.value(item)) for item in items]
        before, after = _frame(style, tokens)
        if isinstance(values[0], memoryview):
            return b"".join((before, values[0], after))
        text = orjson.dumps(values if style.listed else values[0], option=orjson.OPT_SERIALIZE_NUMPY)
        return before + text + after
    trees = [_tree(style, item) for item in items]
    body = {"data": trees} if style.listed else trees[0]
    answer = {**style.head, **body, "usage": {"input_tokens": tokens}}
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def document(style: AnswerStyle, items: Iterable[Item], tokens: int) -> Iterator[Piece]:
    """Write a response in pieces; `tokens` is the number of tokens run."""
    if style.value is not None:
        before, after = _frame(style, tokens)
        return gathered(chain((before,), _values(style.value, items, listed=style.listed), (after,)))
    return gathered(_document(style, items, tokens))


def lines(style: AnswerStyle, items: Iterable[Item]) -> Iterator[Piece]:
    """Write an ndjson line for each item, in pieces."""
    return gathered(piece for item in items for piece in (*_item(style, item), b"\n"))


def all_lines(style: AnswerStyle, items: Iterable[Item], tokens: int) -> Iterator[Piece]:
    """Write an ndjson line for each item, and the line after the last one, in pieces."""
    yield from lines(style, items)
    yield last_line(style, tokens)


def last_line(style: AnswerStyle, tokens: int) -> bytes:
    """Write the line after the last item."""
    return orjson.dumps({**style.head, "usage": {"input_tokens": tokens}}) + b"\n"


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


def _document(style: AnswerStyle, items: Iterable[Item], tokens: int) -> Iterator[Piece]:
    usage = b',"usage":' + orjson.dumps({"input_tokens": tokens}) + b"}"
    if not style.listed:
        (item,) = items
        yield from _members(style, replace(item, columns={**style.head, **item.columns}))
        yield usage
        return
    yield orjson.dumps(style.head)[:-1] + b',"data":['
    for i, item in enumerate(items):
        if i:
            yield b","
        yield from _item(style, item)
    yield b"]" + usage


def _frame(style: AnswerStyle, tokens: int) -> tuple[bytes, bytes]:
    return (b"", b"") if style.frame is None else style.frame(tokens)


def _values(value: Callable[[Item], Any], items: Iterable[Item], *, listed: bool) -> Iterator[Piece]:
    """Write the values that stand for items, without names."""
    between = b"[" if listed else b""
    for item in items:
        yield between
        one = value(item)
        if isinstance(one, np.ndarray):
            yield from array_text(one, None)
        elif isinstance(one, memoryview):
            yield one
        else:
            yield orjson.dumps(one, option=orjson.OPT_SERIALIZE_NUMPY)
        between = b","
    yield b"]" if listed else b""


def _contiguous(value: Any) -> Any:
    return plain(value, None) if isinstance(value, np.ndarray) else value


def _item(style: AnswerStyle, item: Item) -> Iterator[Piece]:
    yield from _members(style, item)
    yield b"}"


def _members(style: AnswerStyle, item: Item) -> Iterator[Piece]:
    """Write an item without its closing brace."""
    objects = _objects(item)
    plain = {name: x for name, x in item.columns.items() if name not in objects}
    yield orjson.dumps(plain, option=orjson.OPT_SERIALIZE_NUMPY)[:-1]
    for name, array in item.arrays.items():
        if name not in NESTED:
            yield b',"%s":' % name.encode()
            yield from array_text(array, _decimals(style, name), unit=style.unit)
    for column, members in objects.items():
        yield b',"%s":' % column.encode() + orjson.dumps(item.columns[column])[:-1]
        for name, array in members.items():
            yield b',"%s":' % name.encode()
            yield from array_text(array, None)
        yield b"}"
    if item.summary is not None:
        for i, (name, array) in enumerate(item.summary.items()):
            yield b'%s"%s":' % (b"," if i else b',"summary":{', name.encode())
            yield from array_text(array, style.decimals)
        yield b"}"


def _tree(style: AnswerStyle, item: Item) -> dict[str, Any]:
    """Convert an item for orjson."""
    tree = dict(item.columns)
    for name, array in item.arrays.items():
        if name not in NESTED:
            tree[name] = plain(array, _decimals(style, name))
    for column, members in _objects(item).items():
        tree[column] = {**item.columns[column], **{name: plain(x, None) for name, x in members.items()}}
    if item.summary is not None:
        tree["summary"] = {name: plain(array, style.decimals) for name, array in item.summary.items()}
    return tree


def _objects(item: Item) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the columns that are objects with arrays, and these arrays by their names there."""
    objects: dict[str, dict[str, NDArray[Any]]] = {}
    for name, (column, member) in NESTED.items():
        if name in item.arrays:
            objects.setdefault(column, {})[member] = item.arrays[name]
    return objects


def _decimals(style: AnswerStyle, name: str) -> int | None:
    return style.decimals if name in MAPS else None
