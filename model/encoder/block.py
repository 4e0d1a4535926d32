"""One block of an encoder, Vaswani et al. 2017 §3.1: the one place that defines the order of its steps."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from torch import Tensor, nn

from model.encoder.adapters import TaskRows
from model.encoder.attention import SelfAttention
from model.encoder.config import EncoderConfig
from model.encoder.convolution import GatedConvolution, TokenConvolution
from model.encoder.feed_forward import Experts, FeedForward, PerLayerGate
from model.encoder.linear import widened
from model.encoder.norms import make_norm

Attend = Callable[[Tensor], Tensor]
"""Computes the output (…, C) of attention, or of what replaces it, from `Block.attention_input`."""

Convolve = Callable[[TokenConvolution, Tensor], Tensor]
"""Runs a convolution over the tokens of each sequence in (…, C)."""


def _select_all(x: Tensor) -> Tensor:
    return x


def _normed(norm: nn.Module, output: Tensor) -> Tensor:
    """Normalise a sub-layer's output, of any dtype, in the norm's float32; without a norm, return it."""
    return output if isinstance(norm, nn.Identity) else norm(widened(output))


class Block(nn.Module):
    """Attention and feed-forward, each with a residual around it and norms as the config says.

    `number` is the layer's number, from 0. A layer with a `short_convolution` has no `attention`.
    """

    def __init__(self, config: EncoderConfig, number: int = 0) -> None:
        super().__init__()
        layer = config.layer(number)
        self.norms_input = config.norm != "post"
        short = layer.short_convolution
        self.attention = None if short else SelfAttention(config.within(layer), layer)
        self.short_convolution = GatedConvolution(config, short) if short else None
        self.attention_norm = make_norm(config) if layer.attention_norm else nn.Identity()
        self.feed_forward = Experts(config, layer.mixture) if layer.mixture else FeedForward(config)
        self.feed_forward_norm = make_norm(config)
        sandwich = config.norm == "sandwich"
        self.double_residual = config.double_residual
        self.attention_output_norm = make_norm(config) if sandwich or self.double_residual else nn.Identity()
        self.feed_forward_output_norm = make_norm(config) if sandwich else nn.Identity()
        convolution = layer.convolution
        self.convolution = TokenConvolution(config, convolution) if convolution else None
        self.convolution_norm = make_norm(config) if convolution else nn.Identity()
        self.per_layer = PerLayerGate(config) if config.per_layer_size else None

    def attention_input(self, x: Tensor) -> Tensor:
        """Return attention's input for hidden states x (…, C), normalised unless norms follow sub-layers."""
        return cast(Tensor, self.attention_norm(x)) if self.norms_input else x

    def forward(
        self,
        x: Tensor,
        attend: Attend,
        convolve: Convolve,
        select: Callable[[Tensor], Tensor] = _select_all,
        tasks: Sequence[TaskRows] = (),
    ) -> Tensor:
        """Compute the next hidden states from x (…, C): (…, C), in x's dtype.

        Packed sequences and exported graphs both run these steps, each with its own `attend` and `convolve`.
        `select` may drop tokens of (…, C) before the feed-forward network. Rows of `tasks` run with their
        adapters.
        """
        output = self._transform(x, attend, select, tasks)
        if self.convolution is None:
            return output
        return cast(Tensor, self.convolution_norm(output + select(convolve(self.convolution, x))))

    def _transform(
        self, x: Tensor, attend: Attend, select: Callable[[Tensor], Tensor], tasks: Sequence[TaskRows]
    ) -> Tensor:
        """Compute attention and feed-forward."""
        feed_forward = partial(self.feed_forward, tasks=tasks) if tasks else self.feed_forward
        attended = attend(self.attention_input(x))
        x = x + _normed(self.attention_output_norm, x + attended if self.double_residual else attended)
        if self.norms_input:
            x = select(x)
            return x + _normed(self.feed_forward_output_norm, feed_forward(self.feed_forward_norm(x)))
        x = select(self.attention_norm(x))
        return cast(Tensor, self.feed_forward_norm(x + feed_forward(x)))
