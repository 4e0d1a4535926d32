"""Activations by name, in numpy."""

import math
from collections.abc import Callable

import numpy as np

from model.contract import FloatArray

# erf(x) = 1 − (a₁t + … + a₅t⁵)e^(−x²) with t = 1/(1 + px), for x ≥ 0, to 1.5e-7 (Abramowitz & Stegun 1964,
# 7.1.26); a₀ is 0.
_ERF = (0.0, 0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
_ERF_P = 0.3275911


def _erf(x: FloatArray) -> FloatArray:
    size = np.abs(x, dtype=np.float64)
    t = 1 / (1 + _ERF_P * size)
    tail = np.polynomial.polynomial.polyval(t, _ERF) * np.exp(-size * size)
    return np.asarray(np.copysign(1 - tail, x), np.float32)


def _gelu(x: FloatArray) -> FloatArray:
    """Compute x Φ(x) (Hendrycks & Gimpel 2016)."""
    return np.asarray(x * (1 + _erf(x / math.sqrt(2))) / 2, np.float32)


def _gelu_tanh(x: FloatArray) -> FloatArray:
    """Approximate GELU with tanh, as many models were trained with."""
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.asarray(x * (1 + np.tanh(inner)) / 2, np.float32)


def _sigmoid(x: FloatArray) -> FloatArray:
    return np.asarray((1 + np.tanh(x / 2)) / 2, np.float32)  # does not overflow


def _elu(x: FloatArray) -> FloatArray:
    return np.asarray(np.where(x > 0, x, np.expm1(np.minimum(x, 0))), np.float32)


def _softplus(x: FloatArray) -> FloatArray:
    return np.asarray(np.logaddexp(x, np.float32(0)), np.float32)


_SELU = (1.0507009873554805, 1.6732632423543772)
"""Scale and alpha of SELU (Klambauer et al. 2017)."""

CLASSES: dict[str, Callable[[FloatArray], FloatArray]] = {
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
ACTIVATIONS = {**CLASSES, "GELUTanh": _gelu_tanh}
