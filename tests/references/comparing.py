"""How far numbers are apart."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def distance(a: Any, b: Any) -> float:
    """The largest absolute difference; infinite where the shapes differ or a number is not finite."""
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if left.shape != right.shape or not (np.isfinite(left).all() and np.isfinite(right).all()):
        return math.inf
    return float(np.abs(left - right).max(initial=0.0))


def relative_distance(a: Any, b: Any) -> float:
    """`distance`, in units of max(1, ‖b‖∞): what "within ε·max(1, ‖h‖∞)" compares with ε."""
    return distance(a, b) / max(1.0, float(np.abs(np.asarray(b, dtype=np.float64)).max(initial=0.0)))


def near_ties(p: NDArray[Any], within: float = 1e-5) -> Array:
    """The share of rows whose two largest numbers rounding may exchange: maps (…, N, M) -> (…)."""
    if not p.shape[-2] or p.shape[-1] < 2:
        return np.zeros(p.shape[:-2])
    second, first = np.moveaxis(np.sort(np.asarray(p, np.float64), axis=-1)[..., -2:], -1, 0)
    return np.asarray((first - second < within).mean(-1))
