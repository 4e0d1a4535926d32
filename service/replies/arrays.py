"""Arrays as bytes: the type each is stored in, and a bound on the resulting error.

A reader computes `float32(stored) × scale` for uint8 arrays, and uses floats as they are.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from service.replies.style import AnswerStyle
from service.tasks.results import MAPS, Item

_PIECE_BYTES = 512 * 1024
_FLOAT16_MAX = 65504.0
_SMALLEST_NORMAL = 2.0**-14  # of float16
_BELOW_ONE = 1 - 2.0**-24
# The smallest scale whose products are not subnormal: those would lose precision.
_SMALLEST_SCALE = 2.0**-126
# Error in uint8 steps: half a step for rounding, plus float32's error in p × 255 and in stored × scale.
_STEPS_OFF = 0.5 + 2.0**-14

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY


@dataclass(frozen=True, slots=True)
class Member:
    """A named array as stored in the file."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Stored:
    """An array and how it is stored; it is converted while it is written."""

    member: Member
    array: NDArray[Any]
    scale: float

    def pieces(self) -> Iterator[memoryview]:
        """Yield the bytes, in pieces of half a megabyte; an array that has the stored type is not copied."""
        dtype = self.member.dtype
        flat = np.ascontiguousarray(self.array).reshape(-1)
        step = _PIECE_BYTES // flat.itemsize
        for start in range(0, flat.size, step):
            part = flat[start : start + step]
            if part.dtype != dtype:
                part = to_bytes(part, self.scale) if dtype == np.uint8 else part.astype(dtype)
            yield part.view(np.uint8).data


@dataclass(frozen=True, slots=True)
class Packed:
    """All arrays of a response, and the rest of it as JSON."""

    arrays: list[Stored]
    meta: bytes

    @property
    def members(self) -> list[Member]:
        """The arrays' descriptions."""
        return [stored.member for stored in self.arrays]


def pack(style: AnswerStyle, items: Iterable[Item], tokens: int) -> Packed:
    """Choose the types and the scale, and write the rest of the response; reads every array once.

    The rest declares `dtype`, `scale` and `max_error`, an upper bound on the difference between a number that
    a reader gets and the one computed in float32. It is 0.0 for float32; statistics are always float32.
    `float32_arrays` names arrays that were to be float16 but have a number beyond its range.
    """
    items = list(items)
    exact = [
        Stored(Member(f"{_prefix(style, item)}summary.{name}", array.dtype, array.shape), array, 1.0)
        for item in items
        for name, array in (item.summary or {}).items()
    ]
    named = [
        (f"{_prefix(style, item)}{name}", array, name in MAPS)
        for item in items
        for name, array in item.arrays.items()
    ]
    scale = _scale(style, [array for _, array, is_map in named if is_map])
    stored, error = [], 0.0
    for name, array, is_map in named:
        dtype, off = _stored_as(style, array, scale, is_map=is_map)
        error = max(error, off)
        stored.append(Stored(Member(name, dtype, array.shape), array, scale))
    declared: dict[str, Any] = {"dtype": style.dtype, "scale": scale, "max_error": error}
    if style.dtype == "float16" and (
        kept := [one.member.name for one in stored if one.member.dtype == np.float32]
    ):
        declared["float32_arrays"] = kept
    usage = b',"usage":{"input_tokens":%d}}' % tokens
    if not style.listed:
        meta = orjson.dumps({**style.head, **items[0].columns, **declared})[:-1]
        return Packed(stored + exact, meta + usage)
    data = [orjson.dumps(item.columns, option=_OPTIONS) for item in items]
    meta = orjson.dumps({**style.head, **declared})[:-1] + b',"data":[' + b",".join(data) + b"]"
    return Packed(stored + exact, meta + usage)


def _prefix(style: AnswerStyle, item: Item) -> str:
    """Return what the names of an item's arrays begin with."""
    return f"{item.columns['index']}." if style.listed else ""


def cut(text: bytes) -> Iterator[memoryview]:
    """Split bytes into pieces."""
    for start in range(0, len(text), _PIECE_BYTES):
        yield memoryview(text)[start : start + _PIECE_BYTES]


def to_bytes(array: NDArray[Any], scale: float) -> NDArray[np.uint8]:
    """Quantize numbers from 0 to 255 × scale to the nearest of 256 steps, as uint8."""
    steps = np.divide(array, scale, dtype=np.float64)
    np.rint(steps, out=steps)
    np.clip(steps, 0, 255, out=steps)
    return steps.astype(np.uint8)


def _scale(style: AnswerStyle, maps: list[NDArray[Any]]) -> float:
    """Return the scale of a response: 1 for floats; for uint8, the largest number of all maps over 255."""
    if style.dtype != "uint8":
        return 1.0
    largest = 1.0 if style.unit else max(map(_largest, maps), default=0.0)
    return max(largest / 255, _SMALLEST_SCALE) if largest else 1 / 255


def _stored_as(
    style: AnswerStyle, array: NDArray[Any], scale: float, *, is_map: bool
) -> tuple[np.dtype[Any], float]:
    """Choose an array's stored type; returns it and the maximum error."""
    dtype = array.dtype
    if not is_map and dtype != np.float32:
        return dtype, 0.0  # int32 positions, or quantized vectors
    largest = 0.0
    if style.dtype == "float16":
        # NumPy is slow to find the largest float16; for probabilities it is not needed, since 1 is exact.
        largest = _BELOW_ONE if is_map and style.unit else _largest(array)
    if dtype == np.float32 and style.dtype == "uint8" and is_map:
        dtype = np.dtype(np.uint8)
    elif dtype == np.float32 and style.dtype == "float16" and largest <= _FLOAT16_MAX:
        dtype = np.dtype(np.float16)
    if dtype == np.uint8:
        return dtype, scale * _STEPS_OFF
    if dtype == np.float16:
        # Half the distance between neighbours at the largest number (11 bits), or among the subnormal ones.
        return dtype, 2.0 ** (math.frexp(max(largest, _SMALLEST_NORMAL))[1] - 12)
    return dtype, 0.0


def _largest(array: NDArray[Any]) -> float:
    """Return the largest magnitude of a finite number; 0.0 if there is none. Does not copy a finite array."""
    if not array.size:
        return 0.0
    low = float(array.min())
    if low == -math.inf:  # the score of a key that is hidden from a query
        low = float(array.min(where=array > -np.inf, initial=0))
    return max(float(array.max(initial=0)), -low)
