"""The position-wise feed-forward network: the same two products for every token."""

from torch import Tensor, nn

from model.encoder.config import EncoderConfig
from model.encoder.linear import Linear, activate


class FeedForward(nn.Module):
    """activation(x W₁ + b₁) W₂ + b₂ (Vaswani et al. 2017, §3.3), or its gated form.

    Gated (Shazeer 2020): the first product is twice as wide; the activation of its first half is multiplied
    by its second half.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.gate_activation = config.activation if config.gated else None
        width = config.intermediate_size * (2 if config.gated else 1)
        activation = None if config.gated else config.activation
        self.inner = Linear(config.hidden_size, width, activation, bias=config.inner_bias)
        self.outer = Linear(config.intermediate_size, config.hidden_size, bias=config.outer_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (T, C) to (T, C)."""
        inner = self.inner(x)  # (T, intermediate) or, gated, (T, 2·intermediate)
        if self.gate_activation is not None:
            gate, value = inner.chunk(2, dim=-1)
            inner = activate(gate, self.gate_activation) * value
        return self.outer(inner)  # (T, C)
