"""What each token adds to a sentence vector: exact, since poolings like the mean are sums over tokens."""

from collections.abc import Sequence

import numpy as np

from model.contract import FloatArray, PoolingMode, SentenceWant
from model.heads.dense import First, Parts, Step, UnitLength
from model.heads.pooling import ADDITIVE, token_weights


def contributions(hidden: FloatArray, want: SentenceWant, dense: Sequence[Step]) -> Parts:
    """Split the sentence vector of the last hidden state (N, C) by tokens: float64 (N + 1, E).

    The rows sum to the vector, up to rounding, as it is computed in float32; the last row is what biases add.
    With `max`, a component belongs to the first token that has its maximum. Raises ValueError for a step that
    is not linear, and for poolings that are not in ADDITIVE.
    """
    rows = hidden[want.skip :].astype(np.float64)
    pooled = np.concatenate([_pooled(rows, mode, want.skip) for mode in want.modes], axis=1)
    parts: Parts = np.zeros((len(hidden) + 1, pooled.shape[1]))
    parts[want.skip : -1] = pooled
    for step in dense:
        parts = step.map_parts(parts)
    if want.dimensions is not None:
        parts = First(want.dimensions).map_parts(parts)
    return UnitLength().map_parts(parts) if want.normalize else parts


def _pooled(rows: Parts, mode: PoolingMode, skip: int) -> Parts:
    """Return the parts of one pooling of rows (n, C), which come after `skip` skipped tokens: (n, C)."""
    if mode not in ADDITIVE:
        raise ValueError(f"the pooling {mode} is of one token")
    weights = token_weights(mode, len(rows), skip)
    if weights is None:
        return np.where(np.arange(len(rows))[:, None] == rows.argmax(0), rows, 0.0)
    return rows * weights[:, None]
