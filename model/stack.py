"""All layers of a plain encoder in one call, without the interpreter.

The readable path (`model/encoder.py`) is some fifty small steps a layer, and between any two of them the
interpreter takes its lock, for which the threads of the service compete. TorchScript runs the same steps
by itself: a service under load answers 1.2 to 1.4 times as many requests. It is deprecated, but nothing
else in PyTorch leaves the interpreter out without a compiler; where it is gone, the readable path serves,
with the same numbers.
"""

import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.config import EncoderConfig
from model.linear import FUSED
from model.rectangles import Rectangle, attend_in_rectangles

Probe = Callable[[int, Any, Tensor, Tensor, Tensor, Tensor | None], None]
"""Called in a layer with its number, its attention, queries, keys and values (T, H, D), and position bias."""


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
    qkv: Tensor | None,
    heads: int,
    eps: float,
    activation: tuple[str, str],
    layers: list[_Layer],
    rectangles: list[Rectangle],
    wanted: list[bool],
) -> list[Tensor]:
    """Take hidden states (T, C), float32, through some layers; returns the states after those `wanted`.

    `qkv` (T, 3·C) are the queries, keys and values of the first of them, where they are there already.
    """
    plain = ("none", "")
    states: list[Tensor] = []
    for i, layer in enumerate(layers):
        if qkv is None:
            qkv = _linear(x, layer.qkv, layer.qkv_bias, plain)
        q, k, v = qkv.view(x.shape[0], 3, heads, x.shape[1] // heads).unbind(1)
        mixed = attend_in_rectangles(q, k, v, rectangles)  # (T, H, D)
        qkv = None
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
        self._blocks = [cast(Any, block) for block in blocks]
        self._layers = [_parameters(block) for block in self._blocks]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self._compiled = torch.jit.script(_run)

    @staticmethod
    def serves(config: EncoderConfig) -> bool:
        """Whether it can run such an encoder: plain attention, and norms after each part, as in BERT."""
        plain = config.plain_attention and config.positions != "rotary"
        return plain and config.norm == "post" and not config.gated

    def __call__(
        self,
        x: Tensor,
        rectangles: list[Rectangle],
        wanted: Collection[int],
        probe: Probe | None = None,
        probed: Collection[int] = (),
    ) -> dict[int, Tensor]:
        """Run hidden state 0, float32 (T, C), as far as anybody asks; returns the `wanted` ones by number.

        Between two layers that are `probed` (by their number, from 0) all steps are one call.
        """
        states: dict[int, Tensor] = {}
        qkv: Tensor | None = None
        done, deepest = 0, max(wanted, default=0)
        for stop in sorted({*probed, deepest}):
            if stop > done:
                numbers = [n for n in range(done + 1, stop + 1) if n in wanted or n == stop]
                reached = self._advance(x, qkv, rectangles, done, stop, numbers)
                states.update((n, reached[n]) for n in numbers if n in wanted)
                x, qkv, done = reached[stop], None, stop
            if probe is not None and stop in probed:
                attention = self._blocks[stop].attention
                qkv = attention.qkv(x)  # and the next steps need not compute it again
                q, k, v = attention.split(qkv)
                probe(stop, attention, q, k, v, None)
        return states

    def _advance(
        self,
        x: Tensor,
        qkv: Tensor | None,
        rectangles: list[Rectangle],
        start: int,
        stop: int,
        numbers: Sequence[int],
    ) -> dict[int, Tensor]:
        """Take state `start` to state `stop`; returns the states of those numbers."""
        config = self._config
        states = self._compiled(
            x,
            qkv,
            config.num_heads,
            config.norm_eps,
            FUSED[config.activation],
            self._layers[start:stop],
            rectangles,
            [number in numbers for number in range(start + 1, stop + 1)],
        )
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
