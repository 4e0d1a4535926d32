"""Networks that map each token by itself: the feed-forward network, a mixture of several, gates by layer."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from model.encoder.adapters import TaskRows
from model.encoder.config import EncoderConfig
from model.encoder.linear import Linear, activate, widened
from model.encoder.norms import make_norm
from model.encoder.parts import Mixture


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


class Experts(nn.Module):
    """Σ pₑ · activation(x W₁ₑᵀ) W₂ₑ + b over the experts e that the router chooses (Shazeer et al. 2017).

    The probabilities p are the router's softmax over all experts; those of the chosen ones are not
    normalised again. Every expert computes every token, and results of the others are multiplied by 0, so no
    shape depends on the tokens: the module can be traced, and a text alone equals the same text in a batch.
    """

    def __init__(self, config: EncoderConfig, mixture: Mixture) -> None:
        super().__init__()
        self.mixture, self.activation = mixture, config.activation
        rows = mixture.experts * config.intermediate_size
        self.router = Linear(config.hidden_size, mixture.experts, bias=False)
        self.first = nn.Parameter(torch.empty(rows, config.hidden_size), requires_grad=False)
        self.second = nn.Parameter(torch.empty(rows, config.hidden_size), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(config.hidden_size), requires_grad=False)

    def release(self) -> None:
        """Release the matrices: they were laid out elsewhere, for whatever runs the layer now."""
        for name in ("first", "second"):
            setattr(self, name, nn.Parameter(getattr(self, name).new_empty(0), requires_grad=False))

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, C) to (…, C)."""
        x = x.to(self.first.dtype)
        shares = self.shares(x).to(x.dtype)  # (…, E)
        output = self.bias
        networks = zip(*(half.chunk(self.mixture.experts) for half in (self.first, self.second)), strict=True)
        for expert, (first, second) in enumerate(networks):
            inner = activate(x @ first.T, self.activation)  # (…, intermediate)
            output = output + shares[..., expert, None] * (inner @ second)  # (…, C)
        return output

    def shares(self, x: Tensor) -> Tensor:
        """Return the probability of each chosen expert for tokens (…, C), and 0 for the others: (…, E)."""
        probabilities = torch.softmax(widened(self.router(x)), dim=-1)
        highest, chosen = probabilities.topk(self.mixture.chosen, dim=-1)
        return torch.zeros_like(probabilities).scatter(-1, chosen, highest)


class PerLayerInputs(nn.Module):
    """norm(x W / √C): P numbers for each token and layer, from hidden state 0 (Gemma 3n, 2025)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.layers, self.scale = config.num_layers, config.hidden_size**-0.5
        self.projection = Linear(config.hidden_size, self.layers * config.per_layer_size, bias=False)
        self.norm = make_norm(config, config.per_layer_size)

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, C) to (L, …, P)."""
        by_layer = (self.projection(x) * self.scale).unflatten(-1, (self.layers, -1))  # (…, L, P)
        output: Tensor = self.norm(by_layer).movedim(-2, 0)
        return output


class PerLayerGate(nn.Module):
    """(x + norm((activation(x W₁) ⊙ e) W₂)) · s, where e are the layer's numbers from hidden state 0."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.activation = config.activation
        self.inner = Linear(config.hidden_size, config.per_layer_size, bias=False)
        self.outer = Linear(config.per_layer_size, config.hidden_size, bias=False)
        self.norm = make_norm(config)
        self.scale = nn.Parameter(torch.empty(1), requires_grad=False)

    def forward(self, x: Tensor, given: Tensor) -> Tensor:
        """Map (…, C) to the same shape, with `given` (…, P)."""
        gated = activate(self.inner(x), self.activation) * given
        output: Tensor = (x + self.norm(self.outer(gated))) * self.scale
        return output
