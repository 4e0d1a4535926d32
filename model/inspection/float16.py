"""float32 -> float16, as fast as the vector units are: numpy converts number by number."""

import numpy as np
from numpy.typing import NDArray

from model.contract import FloatArray

_SIGN, _REST = np.int32(1 << 15), np.int32((1 << 31) - 1)
_SMALLEST_NORMAL = np.float32(2.0**-14)
_LARGEST = np.float32(65504.0)
_DROPPED = np.int32(13)
"""Bits of a float32's fraction that a float16 has not."""
_REBIAS = np.int32((127 - 15) << 10)
_CHUNK = 1 << 16


def to_float16(values: FloatArray) -> NDArray[np.float16]:
    """Round float32 values to the nearest float16, ties to even: what `astype` gives, bit for bit.

    Where any value is beyond the range of float16, or is not finite, numpy converts them all.
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
    # Half a unit of the last place that stays, a little less where the number that stays is even.
    normal = (rest + (((rest >> _DROPPED) & 1) + 0xFFF) >> _DROPPED) - _REBIAS
    # Numbers below the smallest normal one count in steps of 2⁻²⁴.
    size = rest.view(np.float32)
    steps = np.rint(np.minimum(size, _SMALLEST_NORMAL) * np.float32(2.0**24)).astype(np.int32)
    halves = np.where(size < _SMALLEST_NORMAL, steps, normal) | ((raw >> 16) & _SIGN)
    np.copyto(bits, halves, casting="unsafe")
