"""The position-wise feed-forward network."""

import pytest
import torch

from model.encoder.config import EncoderConfig
from model.encoder.feed_forward import FeedForward
from model.encoder.parts import Activation
from tests.model.encoder.test_linear import ACTIVATIONS
from tests.references.comparing import distance
from tests.references.encoder import activation


def network(kind: Activation, *, gated: bool) -> FeedForward:
    config = EncoderConfig(
        vocab_size=1,
        hidden_size=12,
        num_layers=1,
        num_heads=1,
        intermediate_size=20,
        activation=kind,
        gated=gated,
    )
    feed_forward, generator = FeedForward(config), torch.Generator().manual_seed(3)
    for parameter in feed_forward.parameters():
        parameter.data.normal_(0.0, 0.5, generator=generator)
    return feed_forward


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_it_is_two_products_with_an_activation_between(
    kind: Activation, *, gated: bool, packed: bool
) -> None:
    """activation(xW₁ + b₁)W₂ + b₂, or gated (activation(xG + g) ⊙ (xV + v))W₂ + b₂."""
    feed_forward = network(kind, gated=gated)
    w = {name: value.double().numpy() for name, value in feed_forward.named_parameters()}
    x = torch.randn(7, 12, generator=torch.Generator().manual_seed(4))
    inner = x.double().numpy() @ w["inner.weight"].T + w["inner.bias"]
    hidden = activation(inner[:, :20], kind) * inner[:, 20:] if gated else activation(inner, kind)
    expected = hidden @ w["outer.weight"].T + w["outer.bias"]
    if packed:
        feed_forward.inner.prepack()
        feed_forward.outer.prepack()
    assert distance(feed_forward(x), expected) < 2e-5


def test_every_token_is_mapped_alone() -> None:
    """The network is position-wise: a token's result does not depend on its neighbours."""
    feed_forward = network("gelu", gated=False)
    x = torch.randn(9, 12, generator=torch.Generator().manual_seed(5))
    alone = torch.cat([feed_forward(token[None]) for token in x])
    assert distance(feed_forward(x), alone) < 1e-5
