"""What can be read off attention maps: one small function for each measure, in plain numpy.

All of them take float32 and give float32, over any leading axes `…`. A map `p` is (…, N, M): rows are
queries that sum to 1, columns are keys. The letters are those of `model.contract`, and M is a number of keys.
The weights themselves, softmax(q·kᵀ/√D), are those of Vaswani et al. 2017 (arXiv 1706.03762).
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from model.contract import FloatArray

Starts = Sequence[int] | NDArray[np.integer]
"""Where each word begins among the pieces: strictly increasing, the first is 0."""

_CHUNK = 1 << 18
"""Values ranked at a time: their keys of 8 bytes stay in a core's own cache."""


# ------------------------------------------------------------------------------------- whole maps


def value_norms(weights: FloatArray, values: FloatArray, output: FloatArray) -> FloatArray:
    """‖α_ij f_h(x_j)‖ with f_h(x) = (xW_V + b_V) W_O,h (Kobayashi et al. 2020, arXiv 2004.10102).

    `weights` α (…, H, N, M), `values` xW_V + b_V of each head (H, M, D), `output` W_O,h (H, D, C), all
    float32; returns (…, H, N, M). α_ij is a number, so its norm is α_ij ‖f_h(x_j)‖: M norms a head.
    """
    norms = np.linalg.norm(values @ output, axis=-1)  # (H, M)
    return weights * norms[:, None, :]


def rollout(maps: Sequence[FloatArray]) -> FloatArray:
    """R = Â_L … Â_1 with Â = ½(A + I) (Abnar & Zuidema 2020, arXiv 2005.00928).

    `maps` are the layers' A (N, N), already averaged over the heads, the first layer first, at least
    one; returns (N, N). Rows sum to 1: what of each input token arrives at a position, by attention
    and by the residual connection beside it.
    """
    result, *later = (_with_residual(map_) for map_ in maps)
    for mixed in later:
        result = mixed @ result
    return result


def _with_residual(map_: FloatArray) -> FloatArray:
    mixed = map_ * np.float32(0.5)
    np.einsum("ii->i", mixed)[...] += np.float32(0.5)
    return mixed


# ------------------------------------------------------------------------------------- statistics


def entropy(p: FloatArray) -> FloatArray:
    """−Σ_j p_ij ln p_ij in nats, the mean over the rows: (…, N, N) -> (…). 0·ln 0 is 0.

    How wide a head looks: 0 on a single token, ln N on all alike (Clark et al. 2019, arXiv 1906.04341).
    """
    logarithms = np.log(p, out=np.zeros_like(p), where=p > 0)
    # A row of a single 1 may sum to a little more than 1, and no entropy is negative.
    return np.maximum(0.0 - _over_rows(np.vecdot(p, logarithms)), np.float32(0))


def confidence(p: FloatArray) -> FloatArray:
    """max_j p_ij, the mean over the rows: (…, N, N) -> (…) (Voita et al. 2019, arXiv 1905.09418)."""
    return _over_rows(p.max(-1))


def mean_distance(p: FloatArray) -> FloatArray:
    """Σ_j p_ij |i − j| in tokens, the mean over the rows: (…, N, N) -> (…)."""
    positions = np.arange(p.shape[-1], dtype=np.float32)
    return _over_rows(np.vecdot(p, np.abs(positions[:, None] - positions)))


def self_mass(p: FloatArray) -> FloatArray:
    """p_ii, the mean over the rows: (…, N, N) -> (…) (Clark et al. 2019, arXiv 1906.04341)."""
    return _on_diagonal(p, 0)


def previous_mass(p: FloatArray) -> FloatArray:
    """p_i,i−1, the mean over all N rows, 0 for the first: (…, N, N) -> (…) (Clark et al. 2019)."""
    return _on_diagonal(p, -1)


def next_mass(p: FloatArray) -> FloatArray:
    """p_i,i+1, the mean over all N rows, 0 for the last: (…, N, N) -> (…) (Clark et al. 2019)."""
    return _on_diagonal(p, 1)


def special_mass(p: FloatArray, special: Sequence[bool] | NDArray[np.bool_]) -> FloatArray:
    """Σ_j p_ij over special tokens j, the mean over the rows: (…, N, N) -> (…) (Clark et al. 2019).

    `special` (N,) says which tokens they are.
    """
    return _over_rows(p[..., np.asarray(special, dtype=bool)].sum(-1))


def argmax_share(p: FloatArray, offset: int) -> FloatArray:
    """How many of the rows i have their largest weight at i + offset, as a share: (…, N, N) -> (…).

    Of equal weights the first is taken. 1 where a head looks at nothing so much as at the previous token, say
    (offset −1; Clark et al. 2019, arXiv 1906.04341, name heads after it).
    """
    rows = np.arange(p.shape[-1])
    return _over_rows((p.argmax(-1) == rows + offset).astype(np.float32))


def summary(p: FloatArray, special: Sequence[bool] | NDArray[np.bool_]) -> dict[str, FloatArray]:
    """Every statistic of this section by its name: maps (…, N, N), N ≥ 1 -> arrays of shape (…)."""
    return {
        "entropy": entropy(p),
        "confidence": confidence(p),
        "mean_distance": mean_distance(p),
        "self": self_mass(p),
        "previous": previous_mass(p),
        "next": next_mass(p),
        "special": special_mass(p, special),
        "argmax_self": argmax_share(p, 0),
        "argmax_previous": argmax_share(p, -1),
        "argmax_next": argmax_share(p, 1),
    }


def _over_rows(rows: FloatArray) -> FloatArray:
    """The mean of one number a row, (…, N) -> (…), added up in float64."""
    return np.asarray(rows.mean(-1, dtype=np.float64), dtype=np.float32)


def _on_diagonal(p: FloatArray, offset: int) -> FloatArray:
    on = np.diagonal(p, offset, axis1=-2, axis2=-1)
    return np.asarray(on.sum(-1, dtype=np.float64) / p.shape[-2], dtype=np.float32)


# ----------------------------------------------------------------------------- changing rows and keys


def merge_pieces(p: FloatArray, *, rows: Starts | None = None, columns: Starts | None = None) -> FloatArray:
    """Word level: sum over a key word's pieces, mean over a query word's (Clark et al. 2019, 1906.04341).

    `p` (…, rows, columns) of pieces -> (…, query words, key words); None leaves an axis as it is.
    """
    if columns is not None:
        p = np.add.reduceat(p, np.asarray(columns, dtype=np.intp), axis=-1)
    if rows is not None:
        starts = np.asarray(rows, dtype=np.intp)
        pieces = np.diff(starts, append=p.shape[-2]).astype(np.float32)
        merged: FloatArray = np.add.reduceat(p, starts, axis=-2)
        p = merged / pieces[:, None]
    return p


def renormalize(p: FloatArray, counts: NDArray[np.integer] | None = None) -> FloatArray:
    """Divide each row by its sum: (…, N, M) of numbers ≥ 0 -> (…, N, M). A row of zeros stays one.

    `counts` (M,) says how often each column counts in the sum; once by default.
    """
    counted = p if counts is None else p * counts.astype(np.float32)
    sums = counted.sum(-1, keepdims=True)
    return np.divide(p, sums, out=np.zeros_like(p), where=sums > 0)


def top_k(
    p: FloatArray,
    k: int,
    positions: Sequence[int] | NDArray[np.integer],
    counts: NDArray[np.integer] | None = None,
) -> tuple[NDArray[np.int32], FloatArray, FloatArray]:
    """Find the k ≥ 1 largest values of each row, and what they leave out.

    `p` (…, M) of any finite numbers, `positions` (M,) what each column is called, `counts` (M,) how often it
    stands in the row, at least once; once by default. k is clipped to the columns, each as often as it stands
    there. Returns the positions of the largest (…, k) int32, largest first, ties by lower position and then
    by lower column; their values (…, k); and the sum of the other values of the row (…), 0 where there are
    none. A column that is repeated is ranked once, and costs no more than that.
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
            taken = np.clip(k - before, 0, often[first])  # (rows, distinct): as often as there is room
            found[part] = np.repeat(first, taken.ravel()).reshape(-1, k)
            others = flat[part] * often.astype(np.float32)
            left = np.take_along_axis(flat[part], first, -1) * (often[first] - taken).astype(np.float32)
        np.put_along_axis(others, first, left, axis=-1)
        residual[part] = others.sum(-1)
    weights = np.take_along_axis(flat, found, axis=-1)
    shape = (*leading, k)
    return names[found].reshape(shape), weights.reshape(shape), residual.reshape(leading)


def _largest(values: FloatArray, k: int, order: NDArray[np.intp]) -> NDArray[np.intp]:
    """The columns of the k largest of each row (rows, M), largest first; of equals the first in `order`."""
    rank = np.empty(len(order), dtype=np.uint64)
    rank[order] = np.arange(len(order), dtype=np.uint64)
    keys = (_descending(values) << np.uint64(32)) | rank  # (rows, M), all different within a row
    first = np.sort(np.partition(keys, k - 1, axis=-1)[:, :k], axis=-1)  # (rows, k)
    return order[(first & np.uint64(0xFFFFFFFF)).astype(np.intp)]


def _descending(values: FloatArray) -> NDArray[np.uint64]:
    """Whole numbers below 2³² that are the smaller, the larger the float32; equal for −0.0 and 0.0.

    Read as whole numbers, the bits of floats ≥ 0 grow with them, and those of negative ones against them.
    """
    bits = (values + np.float32(0)).view(np.uint32)
    sign, rest = np.uint32(1 << 31), np.uint32((1 << 31) - 1)
    return np.where(bits < sign, rest - bits, bits).astype(np.uint64)
