"""Measures of whole attention maps by their formulas: what the product's numbers are compared with.

All of them take float32 or float64 and give float32, over any leading axes `…`. A map `p` is (…, N, M): rows
are queries that sum to 1, columns are keys. N tokens, H heads, D head size, C hidden size, M keys.
The weights themselves, softmax(q·kᵀ/√D), are those of Vaswani et al. 2017 (arXiv 1706.03762).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]


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

    Of equal weights the first is taken; a row of zeros has none. 1 where a head looks at nothing so much as
    at the previous token, say (offset −1; Clark et al. 2019, arXiv 1906.04341, name heads after it).
    """
    rows = np.arange(p.shape[-1])
    return _over_rows(((p.argmax(-1) == rows + offset) & (p.max(-1) > 0)).astype(np.float32))


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
