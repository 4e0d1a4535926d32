"""Reduces rows of attention maps before they are returned: merges words, rescales, keeps the k largest.

All functions take float32, with any leading axes `…`, and return it unless stated otherwise. A map `p` is
(…, N, M): rows are queries and sum to 1, columns are keys.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.arrays import NUMPY, Array, IntArray, Operations
from model.contract import FloatArray, MapDtype

_CHUNK = 1 << 18
"""Values ranked at a time: their 8-byte keys then fit into a core's own cache."""


def merge_pieces(
    p: Array, *, rows: IntArray | None = None, columns: IntArray | None = None, ops: Operations = NUMPY
) -> Array:
    """Merge pieces into words: sum over a key word, mean over a query word (Clark et al. 2019, 1906.04341).

    `p` (…, rows, columns) of pieces -> (…, query words, key words). `rows` and `columns` are the first piece
    of each word, strictly increasing from 0; None leaves an axis unchanged.
    """
    if columns is not None:
        p = ops.merge(p, columns, -1)
    if rows is not None:
        pieces = np.diff(rows, append=p.shape[-2]).astype(np.float32)
        p = ops.merge(p, rows, -2) / ops.array(pieces)[:, None]
    return p


def renormalize(p: Array, counts: NDArray[np.integer] | None = None) -> Array:
    """Divide each row by its sum: (…, N, M) of numbers ≥ 0 -> (…, N, M). Zeros stay zeros, and NaN stays NaN.

    `counts` (M,) is how often each column counts in the sum; once by default.
    """
    counted = p if counts is None else p * counts.astype(np.float32)
    sums = counted.sum(-1, keepdims=True)
    return p / (sums + (sums == 0))


def rounded(p: FloatArray, dtype: MapDtype) -> NDArray[Any]:
    """Round numbers to a dtype of maps: uint8 counts 255ths, from 0 to 1."""
    match dtype:
        case "uint8":
            with np.errstate(invalid="ignore"):  # a NaN is reported separately
                return np.rint(p * 255).clip(0, 255).astype(np.uint8)
        case "float16":
            return NUMPY.numpy_float16(p)
        case "float32":
            return p


def top_k(
    p: FloatArray,
    k: int,
    positions: Sequence[int] | NDArray[np.integer],
    counts: NDArray[np.integer] | None = None,
) -> tuple[NDArray[np.int32], FloatArray, FloatArray]:
    """Find the k ≥ 1 largest values of each row, and the sum of the rest.

    `p` (…, M) holds any numbers but NaN and ∞; −∞ adds nothing to the sum. `positions` (M,) names each
    column. `counts` (M,) is how often each column is repeated in the row, at least once; once by default. k
    is clipped to the number of columns, repeats included. Returns the positions of the largest (…, k) int32,
    largest first, ties by lower position and then by lower column; their values (…, k); and the sum of the
    other values of the row (…), 0 if there are none. A repeated column is ranked only once.
    """
    *leading, columns = p.shape
    often = np.ones(columns, np.int64) if counts is None else np.asarray(counts, np.int64)
    k, distinct = min(k, int(often.sum())), min(k, columns)
    names = np.asarray(positions, dtype=np.int32)
    order = np.argsort(names, kind="stable")  # (M,): columns by position, then by themselves
    flat = np.ascontiguousarray(p, dtype=np.float32).reshape(math.prod(leading), columns)  # (rows, M)
    found = np.empty((len(flat), k), dtype=np.intp)
    residual = np.zeros(len(flat), dtype=np.float32)
    step = max(1, _CHUNK // max(1, columns))
    left: NDArray[np.float32] | float
    for start in range(0, len(flat) if k else 0, step):
        part = slice(start, start + step)
        first = _largest(flat[part], distinct, order)
        if counts is None:
            found[part], others, left = first, flat[part].copy(), 0.0
        else:
            before = often[first].cumsum(-1) - often[first]
            taken = np.clip(k - before, 0, often[first])  # (rows, distinct): how many repeats fit into k
            found[part] = np.repeat(first, taken.ravel()).reshape(-1, k)
            others = flat[part] * often.astype(np.float32)
            left = np.take_along_axis(flat[part], first, -1) * (often[first] - taken).astype(np.float32)
        np.put_along_axis(others, first, left, axis=-1)
        residual[part] = others.sum(-1, where=others > -np.inf)
    weights = np.take_along_axis(flat, found, axis=-1)
    shape = (*leading, k)
    return names[found].reshape(shape), weights.reshape(shape), residual.reshape(leading)


def _largest(values: FloatArray, k: int, order: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the columns of the k largest values of each row (rows, M), largest first, ties by `order`."""
    rank = np.empty(len(order), dtype=np.uint64)
    rank[order] = np.arange(len(order), dtype=np.uint64)
    keys = (_descending(values) << np.uint64(32)) | rank  # (rows, M), all different within a row
    first = np.sort(np.partition(keys, k - 1, axis=-1)[:, :k], axis=-1)  # (rows, k)
    return order[(first & np.uint64(0xFFFFFFFF)).astype(np.intp)]


def _descending(values: FloatArray) -> NDArray[np.uint64]:
    """Map float32 to integers below 2³² in reverse order: the largest float first; −0.0 equals 0.0.

    Read as integers, the bits of floats ≥ 0 sort in ascending order, those of negative floats in descending
    order.
    """
    bits = (values + np.float32(0)).view(np.uint32)
    sign, rest = np.uint32(1 << 31), np.uint32((1 << 31) - 1)
    return np.where(bits < sign, rest - bits, bits).astype(np.uint64)
