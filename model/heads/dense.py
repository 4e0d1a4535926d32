"""The steps that may follow the pooling: what sentence-transformers' modules compute, in numpy.

They run on one vector per text, whichever backend ran the encoder.
"""

from dataclasses import dataclass
from typing import Protocol

from model.activations import ACTIVATIONS
from model.arrays import NUMPY
from model.contract import FloatArray
from model.heads.vectors import finish


class Step(Protocol):
    """A step from vectors (B, in) to vectors (B, out), in float32."""

    def size(self, inputs: int) -> int:
        """Return the components that it makes of vectors of `inputs` components."""
        ...

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Map vectors."""
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

    def size(self, _: int) -> int:
        """Return the components of its output."""
        return len(self.bias)

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Map vectors (B, in) to (B, out), in float32."""
        mapped = ACTIVATIONS[self.activation](vectors @ self.weight.T + self.bias)
        if self.residual is not None:
            return mapped + vectors @ self.residual.T
        return mapped + vectors if self.adds_input else mapped


@dataclass(frozen=True)
class LayerNorm:
    """Layer normalisation (Ba et al. 2016) of each vector: `weight` and `bias` (in,), both float32."""

    weight: FloatArray
    bias: FloatArray
    epsilon: float = 1e-5

    def size(self, inputs: int) -> int:
        """Return the components of its input."""
        return inputs

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Map vectors (B, in) to (B, in), in float32."""
        return NUMPY.layer_norm(vectors, self.weight, self.bias, self.epsilon)


@dataclass(frozen=True)
class UnitLength:
    """Scales each vector to unit L2 norm; zero vectors stay zero."""

    def size(self, inputs: int) -> int:
        """Return the components of its input."""
        return inputs

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Map vectors (B, in) to (B, in), in float32."""
        return finish(vectors, None, normalize=True)


@dataclass(frozen=True)
class First:
    """Keeps the first `count` components (Kusupati et al. 2022)."""

    count: int

    def size(self, inputs: int) -> int:
        """Return the components that it keeps."""
        return min(inputs, self.count)

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Map vectors (B, in) to (B, count), in float32."""
        return vectors[:, : self.count]
