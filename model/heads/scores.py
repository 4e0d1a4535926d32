"""Turns logits into scores, as their head says."""

import numpy as np
from numpy.typing import NDArray

from model.contract import FloatArray, HeadInfo


def scores(logits: FloatArray, head: HeadInfo, *, raw: bool = False) -> FloatArray:
    """Compute the scores of logits (…, labels), in float32: softmax over the labels, sigmoid, or identity.

    Which one is the head's `activation`; `raw` returns the logits. Exponents are at most 0 and in float64, so
    that no logit overflows and small scores keep their digits.
    """
    if raw or head.activation == "identity":
        return logits
    wide = logits.astype(np.float64)
    return (_softmax(wide) if head.activation == "softmax" else _sigmoid(wide)).astype(np.float32)


def _softmax(x: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(x - x.max(-1, keepdims=True))
    normalized: NDArray[np.float64] = powers / powers.sum(-1, keepdims=True)
    return normalized


def _sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    power = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, power) / (1.0 + power)
