"""Converts float32 to float16 with vector instructions: numpy converts one number at a time."""

import numpy as np
from numpy.typing import NDArray

from model.contract import FloatArray

_SIGN, _REST = np.int32(1 << 15), np.int32((1 << 31) - 1)
_SMALLEST_NORMAL = np.float32(2.0**-14)
_LARGEST = np.float32(65504.0)
_DROPPED = np.int32(13)
"""Bits of a float32's fraction that a float16 lacks."""
_REBIAS = np.int32((127 - 15) << 10)
_CHUNK = 1 << 16


def to_float16(values: FloatArray) -> NDArray[np.float16]:
    """Round float32 values to the nearest float16, ties to even, bit for bit as `astype` does.

    If any value is out of float16's range or not finite, numpy converts all of them.
    """
    flat = np.ascontiguousarray(values).reshape(-1)
    if flat.size and not np.abs(flat).max() <= _LARGEST:
        with np.errstate(over="ignore"):
            return values.astype(np.float16)
    bits = np.empty(flat.shape, np.uint16)
    for start in range(0, len(flat), _CHUNK):
        part = slice(start, start + _CHUNK)
        _round(flat[part], bits[part])
    return bits.view(np.float16).reshape(values.shape)


def _round(values: FloatArray, bits: NDArray[np.uint16]) -> None:
    raw = values.view(np.int32)
    rest = raw & _REST
    # Add half a unit of the last kept bit, or one bit less if the kept number is even: ties go to even.
    normal = (rest + (((rest >> _DROPPED) & 1) + 0xFFF) >> _DROPPED) - _REBIAS
    # Subnormal numbers are multiples of 2⁻²⁴.
    size = rest.view(np.float32)
    steps = np.rint(np.minimum(size, _SMALLEST_NORMAL) * np.float32(2.0**24)).astype(np.int32)
    halves = np.where(size < _SMALLEST_NORMAL, steps, normal) | ((raw >> 16) & _SIGN)
    np.copyto(bits, halves, casting="unsafe")
