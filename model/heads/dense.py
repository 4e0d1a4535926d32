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


def _elu(x: FloatArray) -> FloatArray:
    return np.asarray(np.where(x > 0, x, np.expm1(np.minimum(x, 0))), np.float32)


def _softplus(x: FloatArray) -> FloatArray:
    return np.asarray(np.logaddexp(x, np.float32(0)), np.float32)


_SELU = (1.0507009873554805, 1.6732632423543772)
"""Scale and alpha of SELU (Klambauer et al. 2017)."""

ACTIVATIONS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "Tanh": np.tanh,
    "Identity": lambda x: x,
    "ReLU": lambda x: np.maximum(x, 0),
    "ReLU6": lambda x: np.clip(x, 0, 6),
    "LeakyReLU": lambda x: np.where(x > 0, x, x * np.float32(0.01)),
    "ELU": _elu,
    "SELU": lambda x: np.float32(_SELU[0]) * np.where(x > 0, x, np.float32(_SELU[1]) * _elu(x)),
    "GELU": _gelu,
    "SiLU": lambda x: x * _sigmoid(x),
    "Mish": lambda x: x * np.tanh(_softplus(x)),
    "Sigmoid": _sigmoid,
    "Hardtanh": lambda x: np.clip(x, -1, 1),
    "Softplus": _softplus,
    "Softsign": lambda x: x / (1 + np.abs(x)),
}
"""Keyed by the names of PyTorch's classes, with the arguments that these have by default."""


@dataclass(frozen=True)
class Dense:
    """activation(x Wᵀ + b), plus a residual: `weight` (out, in), `bias` (out,), both float32.

    `activation` is a key of ACTIVATIONS. The residual is x Rᵀ with a matrix `residual` (out, in); it is x
    itself with `adds_input`, for which both sizes must be equal.
    """

    weight: FloatArray
    bias: FloatArray
    activation: str
    adds_input: bool = False
    residual: FloatArray | None = None

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Map vectors (B, in) to (B, out), in float32."""
        mapped = ACTIVATIONS[self.activation](vectors @ self.weight.T + self.bias)
        if self.residual is not None:
            return mapped + vectors @ self.residual.T
        return mapped + vectors if self.adds_input else mapped
