"""The steps that may follow the pooling: what sentence-transformers' modules compute, in numpy.

They run on one vector per text, whichever backend ran the encoder. Steps that are linear, except for a scale
computed from the whole vector, also map the parts of a vector.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from model.activations import ACTIVATIONS, CLASSES
from model.arrays import NUMPY
from model.contract import FloatArray
from model.heads.vectors import finish

Parts = NDArray[np.float64]
"""Rows (n + 1, size) that sum to a vector; constants such as biases are added to the last row."""


class Step(Protocol):
    """A step from vectors (B, in) to vectors (B, out), in float32."""

    def size(self, inputs: int) -> int:
        """Return how many components its output has if its input has `inputs`."""
        ...

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Map vectors."""
        ...

    @property
    def nonlinear(self) -> str | None:
        """What keeps it from mapping parts of a vector, None if nothing does."""
        ...

    def map_parts(self, parts: Parts) -> Parts:
        """Map the parts of a vector, in float64, to the parts of its output."""
        ...


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

    @property
    def has_residual(self) -> bool:
        """Whether its input, or a linear map of it, is added."""
        return self.adds_input or self.residual is not None

    def size(self, _: int) -> int:
        """Return how many components its output has."""
        return len(self.bias)

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Map vectors (B, in) to (B, out), in float32."""
        mapped = ACTIVATIONS[self.activation](vectors @ self.weight.T + self.bias)
        if self.residual is not None:
            return mapped + vectors @ self.residual.T
        return mapped + vectors if self.adds_input else mapped

    @property
    def nonlinear(self) -> str | None:
        """The activation, unless it is the identity."""
        return None if ACTIVATIONS[self.activation] is CLASSES["Identity"] else self.activation

    def map_parts(self, parts: Parts) -> Parts:
        """Map parts; raises ValueError for an activation that is not linear."""
        if self.nonlinear is not None:
            raise ValueError(f"{self.activation} is not linear")
        mapped: Parts = parts @ self.weight.T.astype(np.float64)
        mapped[-1] += self.bias
        if self.residual is not None:
            return mapped + parts @ self.residual.T.astype(np.float64)
        return mapped + parts if self.adds_input else mapped


@dataclass(frozen=True)
class LayerNorm:
    """Layer normalisation (Ba et al. 2016) of each vector: `weight` and `bias` (in,), both float32."""

    weight: FloatArray
    bias: FloatArray
    epsilon: float = 1e-5

    def size(self, inputs: int) -> int:
        """Return how many components its output has: as many as its input."""
        return inputs

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Map vectors (B, in) to (B, in), in float32."""
        return NUMPY.layer_norm(vectors, self.weight, self.bias, self.epsilon)

    nonlinear = None

    def map_parts(self, parts: Parts) -> Parts:
        """Map parts, all scaled by the deviation of the whole vector."""
        deviation = np.sqrt(parts.sum(0).var() + self.epsilon)
        mapped = (parts - parts.mean(1, keepdims=True)) / deviation * self.weight
        mapped[-1] += self.bias
        return mapped


@dataclass(frozen=True)
class UnitLength:
    """Scales each vector to unit L2 norm; zero vectors stay zero."""

    def size(self, inputs: int) -> int:
        """Return how many components its output has: as many as its input."""
        return inputs

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Map vectors (B, in) to (B, in), in float32."""
        return finish(vectors, None, normalize=True)

    nonlinear = None

    def map_parts(self, parts: Parts) -> Parts:
        """Map parts, all divided by the norm of the whole vector."""
        return parts / max(float(np.linalg.norm(parts.sum(0))), 1e-12)


@dataclass(frozen=True)
class WholeNumbers:
    """Squashes and rounds each component to a whole number from −127 to 127, as perplexity's models do."""

    def size(self, inputs: int) -> int:
        """Return how many components its output has: as many as its input."""
        return inputs

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Map vectors (B, in) to (B, in), in float32."""
        return np.round(np.tanh(vectors) * np.float32(127))

    nonlinear = "round(127·tanh)"

    def map_parts(self, _: Parts) -> Parts:
        """Raise ValueError: a rounded vector is not the sum of rounded parts."""
        raise ValueError(f"{self.nonlinear} is not linear")


@dataclass(frozen=True)
class First:
    """Keeps the first `count` components (Kusupati et al. 2022)."""

    count: int

    def size(self, inputs: int) -> int:
        """Return how many components it keeps."""
        return min(inputs, self.count)

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Map vectors (B, in) to (B, count), in float32."""
        return vectors[:, : self.count]

    nonlinear = None

    def map_parts(self, parts: Parts) -> Parts:
        """Keep the first components of each part."""
        return parts[:, : self.count]
