"""Arrays as bytes: the type each is stored in, and a bound on the resulting error.

A reader computes `float32(stored) × scale` for uint8 arrays, and uses floats as they are.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from service.replies.json_arrays import in_parts
from service.replies.style import AnswerStyle
from service.tasks.results import MAPS, SUMMARY, Item

_PIECE_BYTES = 512 * 1024
_FLOAT16_MAX = 65504.0
_SMALLEST_NORMAL = 2.0**-14  # of float16
_BELOW_ONE = 1 - 2.0**-24
# The smallest scale whose products are not subnormal: those would lose precision.
_SMALLEST_SCALE = 2.0**-126
# Error in uint8 steps: half a step for rounding, plus float32's error in p × 255 and in stored × scale.
_STEPS_OFF = 0.5 + 2.0**-14
# Bytes of an array's name, type and shape in a file, with both copies that a ZIP has.
_MEMBER_BYTES = 400


@dataclass(frozen=True, slots=True)
class Stored:
    """A named array and the type it is stored in; it is converted while it is written."""

    name: str
    array: NDArray[Any]
    dtype: np.dtype[Any]
    scale: float = 1.0

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.array.size * self.dtype.itemsize

    def pieces(self) -> Iterator[memoryview]:
        """Yield the bytes, in pieces of half a megabyte; an array in its stored type is not copied."""
        flat = np.ascontiguousarray(self.array).reshape(-1)
        step = _PIECE_BYTES // flat.itemsize
        for start in range(0, flat.size, step):
            part = flat[start : start + step]
            if part.dtype != self.dtype:
                part = to_bytes(part, self.scale) if self.dtype == np.uint8 else part.astype(self.dtype)
            yield part.view(np.uint8).data


@dataclass(frozen=True, slots=True)
class Packed:
    """All arrays of a response, and the rest of it as JSON."""

    arrays: list[Stored]
    meta: bytes


def array_bytes(style: AnswerStyle, name: str, shape: tuple[int, ...]) -> int:
    """Bound the bytes of an array in a file: its numbers, and its name, type and shape (twice in a ZIP)."""
    itemsize = 4
    if style.quantizes(name) or (name in MAPS and style.dtype == "uint8"):
        itemsize = 1
    elif name in MAPS and style.unit and style.dtype == "float16":  # other values may overflow float16
        itemsize = 2
    return _MEMBER_BYTES + math.prod(shape) * itemsize


def pack(style: AnswerStyle, items: Iterable[Item], tokens: int) -> Packed:
    """Choose the arrays' types and scale, and write the rest of the response; reads every array once.

    The rest declares `dtype`, `scale` and `max_error`, an upper bound on the difference between a number that
    a reader gets and the one computed in float32. The bound is 0.0 for float32; statistics are always
    float32. `float32_arrays` names arrays that were to be float16, but have a number beyond its range.
    """
    items = list(items)
    scale = _scale(style, [array for item in items for name, array in item.arrays.items() if name in MAPS])
    stored, exact, error = list[Stored](), list[Stored](), 0.0
    for item in items:
        prefix = f"{item.columns['index']}." if style.listed else ""
        for name, array in item.arrays.items():
            if name.startswith(SUMMARY):
                exact.append(Stored(prefix + name, array, array.dtype))
                continue
            dtype, off = _stored_as(style, array, scale, is_map=name in MAPS)
            error = max(error, off)
            stored.append(Stored(prefix + name, array, dtype, scale))
    declared: dict[str, Any] = {"dtype": style.dtype, "scale": scale, "max_error": error}
    if style.dtype == "float16" and (kept := [one.name for one in stored if one.dtype == np.float32]):
        declared["float32_arrays"] = kept
    usage = b',"usage":{"input_tokens":%d}}' % tokens
    if not style.listed:
        return Packed(stored + exact, _dumps({**style.head, **items[0].columns, **declared})[:-1] + usage)
    # One item at a time: orjson holds the interpreter lock.
    data = b',"data":[' + b",".join([_dumps(item.columns) for item in items]) + b"]"
    return Packed(stored + exact, _dumps({**style.head, **declared})[:-1] + data + usage)


def _dumps(fields: Mapping[str, Any]) -> bytes:
    return orjson.dumps(fields, default=in_parts, option=orjson.OPT_SERIALIZE_NUMPY)


def cut(text: bytes) -> Iterator[memoryview]:
    """Split bytes into pieces of half a megabyte."""
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
    """Choose an array's stored type; returns the type and the maximum error."""
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
