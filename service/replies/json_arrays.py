"""Arrays as JSON text, in pieces that hold the interpreter lock for about two milliseconds at most.

Probabilities are copied from a lookup table of formatted numbers: ten times faster than formatting each,
without the interpreter lock, and of a size known in advance. Everything else is formatted by orjson.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import orjson
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from model.contract import FloatArray
from service.tasks.results import Parts

PIECE_VALUES = 50_000
"""Numbers in one piece: about half a megabyte, and 1.5 ms of orjson, which holds the lock."""
TABLE_DECIMALS = 6
"""Maximum number of decimals for which the lookup table is used (ten megabytes for six)."""
FEW_VALUES = 1000
"""The most values for which the lookup table is not faster."""
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY


def array_text(
    array: NDArray[Any], decimals: int | None, *, unit: bool = False
) -> Iterator[bytes | memoryview]:
    """Write an array of float32 or integers, of any shape, as nested lists, in pieces.

    `decimals` (1 to 9) rounds to nearest; None writes the shortest text that parses to the same float32.
    Numbers of a `unit` array are clipped to [0, 1]; those of other arrays must be finite.
    """
    if decimals is not None and unit and decimals <= TABLE_DECIMALS and array.size > FEW_VALUES:
        yield from _in_pieces(array, lambda part: _look_up(part, decimals))
    else:
        yield from _in_pieces(array, lambda part: orjson.dumps(plain(part, decimals), option=_OPTIONS))


def plain(array: NDArray[Any], decimals: int | None) -> NDArray[Any]:
    """Round an array, and make it contiguous for orjson."""
    return np.ascontiguousarray(array if decimals is None else rounded(array, decimals))


def rounded(array: FloatArray, decimals: int) -> FloatArray:
    """Round such that the shortest text of each float32 has at most `decimals` decimals; never to −0."""
    exact = np.round(array.astype(np.float64), decimals)
    exact += 0.0
    return exact.astype(np.float32)


def in_parts(value: Any) -> list[orjson.Fragment]:
    """Write `Parts`, as the `default` of orjson, which would hold the interpreter lock for all of them."""
    if not isinstance(value, Parts):
        raise TypeError(f"cannot write {type(value).__name__}")
    return [orjson.Fragment(orjson.dumps(item, default=in_parts)) for item in value.items]


def text_size(shape: tuple[int, ...], number: int) -> int:
    """Count the bytes of nested lists whose numbers have `number` bytes each, including their comma."""
    size = number
    for length in reversed(shape):
        # Two brackets, minus the last comma, plus the comma after the list.
        size = length * size + 2 if length else 3
    return size - 1


def _in_pieces(
    array: NDArray[Any], write: Callable[[NDArray[Any]], bytes | memoryview]
) -> Iterator[bytes | memoryview]:
    """Write in one piece, or split along the first axes; `write` writes a part with its brackets."""
    if array.size <= PIECE_VALUES:
        yield write(array)
        return
    within = array.size // len(array)
    if within > PIECE_VALUES:
        for i, part in enumerate(array):
            yield b"," if i else b"["
            yield from _in_pieces(part, write)
        yield b"]"
        return
    step = PIECE_VALUES // within
    for start in range(0, len(array), step):
        # Keep only the first opening and the last closing bracket of the parts.
        text = memoryview(write(array[start : start + step]))
        yield b"".join((b"," if start else b"[", text[1:-1], b"" if start + step < len(array) else b"]"))


def _look_up(array: FloatArray, decimals: int) -> memoryview:
    """Write a non-empty array, where every number has the same width, and so has every list of an axis."""
    table, record = _table(decimals)
    scaled = np.multiply(array, 10.0**decimals, dtype=np.float64)  # float32 would sometimes misround
    np.rint(scaled, out=scaled)
    np.clip(scaled, 0, 10.0**decimals, out=scaled)
    text = np.empty(text_size(array.shape, record.itemsize) + 1, dtype=np.uint8)
    strides, size = [], text.size
    for length in array.shape:
        size = (size - 2) // length
        strides.append(size)
    numbers = as_strided(text[array.ndim :].view(np.uint8), (*array.shape, record.itemsize), (*strides, 1))
    fields = numbers.view(record)[..., 0]
    fields["text"] = table.take(scaled.astype(np.intp))
    fields["comma"] = ord(",")
    for depth in reversed(range(array.ndim)):
        # The lists along this axis: an opening bracket, and a closing one where the last comma was.
        lists = as_strided(text[depth:], array.shape[:depth], strides[:depth])
        lists[...] = ord("[")
        end = depth + strides[depth] * array.shape[depth]
        as_strided(text[end:], array.shape[:depth], strides[:depth])[...] = ord("]")
        if depth:
            as_strided(text[end + 1 :], array.shape[:depth], strides[:depth])[...] = ord(",")
    return text.data[:-1]


def prepare(decimals: int = TABLE_DECIMALS) -> None:
    """Build a lookup table before a request needs it: the largest takes 50 ms."""
    _table(decimals)


@cache
def _table(decimals: int) -> tuple[NDArray[Any], np.dtype[Any]]:
    """Format 0 to 1 in steps of 10^−decimals; returns the table and the layout of a number and comma."""
    steps = 10**decimals
    values = np.arange(steps + 1, dtype=np.int32)
    texts = np.empty((steps + 1, decimals + 2), dtype=np.uint8)
    texts[:, 0] = ord("0") + values // steps
    texts[:, 1] = ord(".")
    for place in range(decimals):
        texts[:, 2 + place] = ord("0") + values // 10 ** (decimals - 1 - place) % 10
    # Eight bytes are copied faster as a number than as bytes.
    kind = "u8" if decimals == 6 else f"V{decimals + 2}"
    return texts.view(kind).reshape(-1), np.dtype([("text", kind), ("comma", "u1")])
