"""The position-wise feed-forward network: the same two products for every token."""

from collections.abc import Sequence

from torch import Tensor, nn

from model.encoder.adapters import TaskRows
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
        adapters = config.adapters
        self.inner = Linear(config.hidden_size, width, activation, bias=config.inner_bias, adapters=adapters)
        self.outer = Linear(
            config.intermediate_size, config.hidden_size, bias=config.outer_bias, adapters=adapters
        )

    def forward(self, x: Tensor, tasks: Sequence[TaskRows] = ()) -> Tensor:
        """Map (T, C) to (T, C), with the adapters of some rows' tasks."""
        inner = self.inner(x, tasks)  # (T, intermediate) or, gated, (T, 2·intermediate)
        if self.gate_activation is not None:
            gate, value = inner.chunk(2, dim=-1)
            inner = activate(gate, self.gate_activation) * value
        return self.outer(inner, tasks)  # (T, C)
