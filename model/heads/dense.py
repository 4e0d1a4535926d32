"""The linear layers that may follow the pooling: sentence-transformers' Dense modules, in numpy.

They run on one vector per text, whichever backend ran the encoder.
"""

from dataclasses import dataclass

from model.activations import ACTIVATIONS
from model.contract import FloatArray


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
