"""Predicts classes, of sequences or of their tokens."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from model.arrays import Operations
from model.contract import FloatArray
from model.heads.predictor import Predictor


def predict(
    predictor: Predictor,
    states: Sequence[FloatArray],
    token_ids: Sequence[NDArray[np.int64]],
    ops: Operations,
) -> list[dict[str, FloatArray]]:
    """Compute the logits of sequences with these last hidden states, (N, C) each, and tokens (N,), at once.

    Each gets `logits` (labels,), or `token_logits` (N, labels) from a predictor without a pooling.
    """
    if predictor.pooling is None:
        rows = predictor(ops.array(np.concatenate(states)), ops)
        ends = list(accumulate(map(len, states)))
        return [{"token_logits": part} for part in np.split(ops.numpy(rows), ends[:-1])]
    pooled = [_pooled(predictor, *one) for one in zip(states, token_ids, strict=True)]
    return [{"logits": row} for row in ops.numpy(predictor(ops.array(np.stack(pooled)), ops))]


def _pooled(predictor: Predictor, state: FloatArray, token_ids: NDArray[np.int64]) -> FloatArray:
    if predictor.pooling == "mean":
        return state.mean(0)
    return state[predictor.last(token_ids) if predictor.pooling == "last" else 0]
