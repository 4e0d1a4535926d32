"""What a model predicts from its last hidden state: linear layers and norms, with any array library."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

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
class RmsNorm:
    """Root mean square normalisation (Zhang & Sennrich 2019): `weight` (C,)."""

    weight: Array
    epsilon: float


Norm = LayerNorm | RmsNorm


@dataclass(frozen=True, slots=True)
class Predictor:
    """Layers from hidden states to logits, float32.

    `pooling` says which vector of a sequence the layers are applied to; None: every token's. "last" skips
    tokens whose id is `padding`, even those of the text itself, as transformers does. `final_norm` is what
    the encoder applies after its last block; the hidden states before that lack it.
    """

    info: HeadInfo
    pooling: HeadPooling | None
    layers: tuple[Linear | LayerNorm, ...]
    padding: int = -1
    final_norm: Norm | None = None

    def last(self, token_ids: NDArray[np.int64]) -> int:
        """Return the row of the last token of a sequence; the first one if all are padding."""
        rows = np.flatnonzero(token_ids != self.padding)
        return int(rows[-1]) if len(rows) else 0

    def on(self, ops: Operations) -> "Predictor":
        """Convert the weights, which are numpy arrays, for another array library."""

        def converted(layer: Linear | Norm) -> dict[str, Any]:
            arrays = ((name, getattr(layer, name, None)) for name in ("weight", "bias"))
            return {name: ops.array(array) for name, array in arrays if array is not None}

        norm = self.final_norm and replace(self.final_norm, **converted(self.final_norm))
        layers = tuple(replace(layer, **converted(layer)) for layer in self.layers)
        return replace(self, layers=layers, final_norm=norm)

    def __call__(self, x: Array, ops: Operations) -> Array:
        """Compute the logits of vectors (rows, C): (rows, labels)."""
        for layer in self.layers:
            x = apply(layer, x, ops)
        return x

    def by_words(self, x: Array, ops: Operations, step: int) -> Iterator[tuple[slice, Array]]:
        """Yield logits of vectors (rows, C), `step` words at a time: which words, and (rows, words).

        The logits of all words of a vocabulary need never be in memory together.
        """
        for layer in self.layers[:-1]:
            x = apply(layer, x, ops)
        last = self.layers[-1]
        if not isinstance(last, Linear):
            raise TypeError("words are predicted by a linear layer")
        for first in range(0, len(last.weight), step):
            words = slice(first, first + step)
            bias = None if last.bias is None else last.bias[words]
            yield words, apply(replace(last, weight=last.weight[words], bias=bias), x, ops)


def apply(layer: Linear | Norm, x: Array, ops: Operations) -> Array:
    """Apply one layer to vectors (rows, in): (rows, out)."""
    if isinstance(layer, RmsNorm):
        return ops.rms_norm(x, layer.weight, layer.epsilon)
    if isinstance(layer, LayerNorm):
        return ops.layer_norm(x, layer.weight, layer.bias, layer.epsilon)
    return ops.activate(ops.linear(x, layer.weight, layer.bias), layer.activation)
