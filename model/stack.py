"""All layers of a plain encoder in one call, without the interpreter.

The readable path (`model/encoder.py`) is some fifty small steps a layer, and between any two of them the
interpreter takes its lock, for which the threads of the service compete. TorchScript runs the same steps
by itself: a service under load answers 1.2 to 1.4 times as many requests. It is deprecated, but nothing
else in PyTorch leaves the interpreter out without a compiler; where it is gone, the readable path serves,
with the same numbers.
"""

import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.config import EncoderConfig
from model.linear import FUSED
from model.rectangles import Rectangle, attend_in_rectangles


class _Layer(NamedTuple):
    """The parameters of a block; its matrices are laid out for oneDNN."""

    qkv: Tensor
    qkv_bias: Tensor
    output: Tensor
    output_bias: Tensor
    attention_gain: Tensor
    attention_bias: Tensor
    inner: Tensor
    inner_bias: Tensor
    outer: Tensor
    outer_bias: Tensor
    feed_forward_gain: Tensor
    feed_forward_bias: Tensor


def _linear(x: Tensor, weight: Tensor, bias: Tensor, activation: tuple[str, str]) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(
        x.to(bias.dtype), weight, bias, activation[0], [], activation[1]
    )
    return y


def _run(
    x: Tensor,
    heads: int,
    eps: float,
    activation: tuple[str, str],
    layers: list[_Layer],
    rectangles: list[Rectangle],
    wanted: list[bool],
) -> list[Tensor]:
    """Take hidden states (T, C), float32, through all layers; returns the states after those `wanted`."""
    plain = ("none", "")
    states: list[Tensor] = []
    for i, layer in enumerate(layers):
        qkv = _linear(x, layer.qkv, layer.qkv_bias, plain).view(x.shape[0], 3, heads, x.shape[1] // heads)
        mixed = attend_in_rectangles(qkv[:, 0], qkv[:, 1], qkv[:, 2], rectangles)  # (T, H, D)
        x = x + _linear(mixed.flatten(1), layer.output, layer.output_bias, plain)
        x = F.layer_norm(x, x.shape[1:], layer.attention_gain, layer.attention_bias, eps)
        inner = _linear(x, layer.inner, layer.inner_bias, activation)
        x = x + _linear(inner, layer.outer, layer.outer_bias, plain)
        x = F.layer_norm(x, x.shape[1:], layer.feed_forward_gain, layer.feed_forward_bias, eps)
        if wanted[i]:
            states.append(x)
    return states


class Stack:
    """The layers of one encoder, in bfloat16 on a CPU, laid out for it; compiled once."""

    def __init__(self, config: EncoderConfig, blocks: Iterable[nn.Module]) -> None:
        self._config = config
        self._layers = [_parameters(block) for block in blocks]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self._run = torch.jit.script(_run)

    @staticmethod
    def serves(config: EncoderConfig) -> bool:
        """Whether it can run such an encoder: plain attention, and norms after each part, as in BERT."""
        plain = config.plain_attention and config.positions != "rotary"
        return plain and config.norm == "post" and not config.gated

    def __call__(self, x: Tensor, rectangles: list[Rectangle], wanted: Iterable[int]) -> dict[int, Tensor]:
        """Run hidden state 0, float32 (T, C), up to the last `wanted` one; returns those by number."""
        numbers = sorted(wanted)
        layers = self._layers[: numbers[-1]]
        config = self._config
        chosen = [i + 1 in numbers for i in range(len(layers))]
        activation = FUSED[config.activation]
        states = self._run(x, config.num_heads, config.norm_eps, activation, layers, rectangles, chosen)
        return dict(zip(numbers, states, strict=True))


def _parameters(block: Any) -> _Layer:
    attention, feed_forward = block.attention, block.feed_forward
    return _Layer(
        attention.qkv.packed,
        attention.qkv.bias,
        attention.output.packed,
        attention.output.bias,
        block.attention_norm.weight,
        block.attention_norm.bias,
        feed_forward.inner.packed,
        feed_forward.inner.bias,
        feed_forward.outer.packed,
        feed_forward.outer.bias,
        block.feed_forward_norm.weight,
        block.feed_forward_norm.bias,
    )
