"""All layers of a plain encoder in one call, without the interpreter.

The readable path (`encoder.py`) is some fifty small steps a layer, and between any two of them the
interpreter takes its lock, for which the threads of the service compete. TorchScript runs the same steps
by itself: a service under load answers 1.2 to 1.4 times as many requests. It is for processors without
kernels of our own (`model/pytorch/kernels`), which leave the interpreter alone too. It is deprecated, but
nothing else in PyTorch leaves the interpreter out without a compiler; where it is gone, the readable path
serves, with the same numbers.
"""

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.encoder.config import EncoderConfig
from model.encoder.linear import FUSED
from model.encoder.rectangles import Rectangle, attend_in_rectangles

Probe = Callable[[int, Any, Tensor, Tensor, Tensor, Tensor | None], None]
"""Called in a layer with its number, its attention, queries, keys and values (T, H, D), and position bias."""


_ROOM = 2**23
"""Numbers that are kept until they are looked at: 16 MB of bfloat16."""


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
    probed: list[bool],
) -> tuple[list[Tensor], list[Tensor]]:
    """Take hidden states (T, C), float32, through some layers.

    Returns the states after those `wanted`, and the queries, keys and values (T, 3·C) of those `probed`.
    """
    plain = ("none", "")
    states: list[Tensor] = []
    seen: list[Tensor] = []
    for i, layer in enumerate(layers):
        qkv = _linear(x, layer.qkv, layer.qkv_bias, plain)
        q, k, v = qkv.view(x.shape[0], 3, heads, x.shape[1] // heads).unbind(1)
        mixed = attend_in_rectangles(q, k, v, rectangles)  # (T, H, D)
        x = x + _linear(mixed.flatten(1), layer.output, layer.output_bias, plain)
        x = F.layer_norm(x, x.shape[1:], layer.attention_gain, layer.attention_bias, eps)
        inner = _linear(x, layer.inner, layer.inner_bias, activation)
        x = x + _linear(inner, layer.outer, layer.outer_bias, plain)
        x = F.layer_norm(x, x.shape[1:], layer.feed_forward_gain, layer.feed_forward_bias, eps)
        if wanted[i]:
            states.append(x)
        if probed[i]:
            seen.append(qkv)
    return states, seen


def steps(last: int, probed: Collection[int], numbers: int) -> Iterator[range]:
    """Cut the layers below `last` into those that one call takes, so that little is kept of what is probed.

    `numbers` are those of a hidden state.
    """
    most = max(1, _ROOM // max(1, 3 * numbers))
    start, looked = 0, 0
    for layer in range(last):
        looked += layer in probed
        if looked == most or layer + 1 == last:
            yield range(start, layer + 1)
            start, looked = layer + 1, 0


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

        `probe` sees the layers that are `probed` (by their number, from 0) after those steps that one call
        takes: as many as keep little for it.
        """
        states: dict[int, Tensor] = {}
        last = max((*wanted, *probed), default=0)
        for some in steps(last, probed, x.numel()):
            numbers = [n for n in range(some.start + 1, some.stop + 1) if n in wanted or n == some.stop]
            looked = [n for n in some if n in probed]
            reached, seen = self._advance(x, rectangles, some, numbers, looked)
            states.update((n, state) for n, state in zip(numbers, reached, strict=True) if n in wanted)
            x = reached[-1]
            for number, qkv in zip(looked, seen, strict=True):
                self._show(number, qkv, probe)
        if last in probed:  # of that layer, nothing else is needed
            self._show(last, self._blocks[last].attention.qkv(x), probe)
        return states

    def _show(self, number: int, qkv: Tensor, probe: Probe | None) -> None:
        if probe is not None:
            attention = self._blocks[number].attention
            q, k, v = attention.split(qkv)
            probe(number, attention, q, k, v, None)

    def _advance(
        self,
        x: Tensor,
        rectangles: list[Rectangle],
        some: range,
        numbers: Collection[int],
        looked: Collection[int],
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Take a state through some layers; returns the states and what was looked at, by their numbers."""
        config = self._config
        return self._compiled(
            x,
            config.num_heads,
            config.norm_eps,
            FUSED[config.activation],
            self._layers[some.start : some.stop],
            rectangles,
            [number + 1 in numbers for number in some],
            [number in looked for number in some],
        )


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
