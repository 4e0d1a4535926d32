"""The linear layers that may follow the pooling: sentence-transformers' Dense modules, in numpy.

They run on one vector per text, whichever backend ran the encoder.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from model.contract import FloatArray

_erf = np.vectorize(math.erf, otypes=[np.float32])


def _gelu(x: FloatArray) -> FloatArray:
    """Compute x Φ(x) (Hendrycks & Gimpel 2016)."""
    return np.asarray(x * (1 + _erf(x / math.sqrt(2))) / 2, np.float32)


def _sigmoid(x: FloatArray) -> FloatArray:
    return np.asarray((1 + np.tanh(x / 2)) / 2, np.float32)  # does not overflow


ACTIVATIONS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "torch.nn.modules.activation.Tanh": np.tanh,
    "torch.nn.modules.activation.ReLU": lambda x: np.maximum(x, 0),
    "torch.nn.modules.activation.GELU": _gelu,
    "torch.nn.modules.activation.Sigmoid": _sigmoid,
    "torch.nn.modules.linear.Identity": lambda x: x,
}
"""Keyed by the names in sentence-transformers' configs."""


@dataclass(frozen=True)
class Dense:
    """activation(x Wᵀ + b): `weight` (out, in), `bias` (out,), both float32."""

    weight: FloatArray
    bias: FloatArray
    activation: str

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Map vectors (B, in) to (B, out), in float32."""
        return ACTIVATIONS[self.activation](vectors @ self.weight.T + self.bias)
