"""One block of an encoder, Vaswani et al. 2017 §3.1: the one place that defines the order of its steps."""

from collections.abc import Callable

from torch import Tensor, nn

from model.encoder.attention import SelfAttention
from model.encoder.config import EncoderConfig
from model.encoder.feed_forward import FeedForward
from model.encoder.norms import layer_norm

Attend = Callable[[Tensor], Tensor]
"""Computes the attention output (…, C) from `Block.attention_input`."""


def _select_all(x: Tensor) -> Tensor:
    return x


class Block(nn.Module):
    """Attention and feed-forward, each with a residual around it and a layer norm before or after."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.attention = SelfAttention(config)
        self.attention_norm = layer_norm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = layer_norm(config)

    def attention_input(self, x: Tensor) -> Tensor:
        """Return the input of attention for hidden states x (…, C): (…, C), normalised with pre-norm."""
        return self.attention_norm(x) if self.pre_norm else x

    def forward(self, x: Tensor, attend: Attend, select: Callable[[Tensor], Tensor] = _select_all) -> Tensor:
        """Compute the next hidden states from x (…, C): (…, C), in x's dtype.

        Packed sequences and exported graphs both run these steps, each with its own `attend`. `select` may
        drop tokens of (…, C) before the feed-forward network.
        """
        x = x + attend(self.attention_input(x))
        if self.pre_norm:
            x = select(x)
            return x + self.feed_forward(self.feed_forward_norm(x))
        x = select(self.attention_norm(x))
        return self.feed_forward_norm(x + self.feed_forward(x))
