"""Predicts classes, of sequences or of their tokens."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from model.arrays import Operations
from model.contract import FloatArray
from model.heads.predictor import Predictor


def predict(
    predictor: Predictor, states: Sequence[FloatArray], ops: Operations
) -> list[dict[str, FloatArray]]:
    """Compute the logits of sequences with these last hidden states, (N, C) each, at once.

    Each gets `logits` (labels,), or `token_logits` (N, labels) from a predictor without a pooling.
    """
    if predictor.pooling is None:
        rows = predictor(ops.array(np.concatenate(states)), ops)
        ends = list(accumulate(map(len, states)))
        return [{"token_logits": part} for part in np.split(ops.numpy(rows), ends[:-1])]
    pooled = [state[0] if predictor.pooling == "cls" else state.mean(0) for state in states]
    return [{"logits": row} for row in ops.numpy(predictor(ops.array(np.stack(pooled)), ops))]
