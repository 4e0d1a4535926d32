"""What a model predicts from its last hidden state: linear layers and norms, with any array library."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from model.arrays import Array, Operations
from model.contract import HeadInfo

HeadPooling = Literal["cls", "mean", "last"]
"""How the hidden states of a sequence become the vector that its classes are predicted from."""


@dataclass(frozen=True, slots=True)
class Linear:
    """activation(x Wᵀ + b): `weight` (out, in), `bias` (out,) or None; `activation` is one of ACTIVATIONS."""

    weight: Array
    bias: Array | None
    activation: str = "Identity"


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """Layer normalisation (Ba et al. 2016): `weight` (C,), `bias` (C,) or None."""

    weight: Array
    bias: Array | None
    epsilon: float


@dataclass(frozen=True, slots=True)
class Predictor:
    """Layers from hidden states to logits, float32.

    `pooling` says which vector of a sequence they are applied to; None: to every token's. That of the last
    token passes over tokens whose id is `padding`, as transformers does, also over those of the text itself.
    """

    info: HeadInfo
    pooling: HeadPooling | None
    layers: tuple[Linear | LayerNorm, ...]
    padding: int = -1

    def last(self, token_ids: NDArray[np.int64]) -> int:
        """Return the row of the last token of a sequence; the first one if all are padding."""
        rows = np.flatnonzero(token_ids != self.padding)
        return int(rows[-1]) if len(rows) else 0

    def on(self, ops: Operations) -> "Predictor":
        """Convert the weights, which are numpy arrays, for another array library."""

        def converted(layer: Linear | LayerNorm) -> Linear | LayerNorm:
            bias = None if layer.bias is None else ops.array(layer.bias)
            return replace(layer, weight=ops.array(layer.weight), bias=bias)

        return replace(self, layers=tuple(map(converted, self.layers)))

    def __call__(self, x: Array, ops: Operations) -> Array:
        """Compute the logits of vectors (rows, C): (rows, labels)."""
        for layer in self.layers:
            x = apply(layer, x, ops)
        return x


def apply(layer: Linear | LayerNorm, x: Array, ops: Operations) -> Array:
    """Apply one layer to vectors (rows, in): (rows, out)."""
    if isinstance(layer, LayerNorm):
        return ops.layer_norm(x, layer.weight, layer.bias, layer.epsilon)
    return ops.activate(ops.linear(x, layer.weight, layer.bias), layer.activation)
