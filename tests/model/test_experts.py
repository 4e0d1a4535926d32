"""A mixture of experts."""

import pytest
import torch

from model.encoder.config import EncoderConfig
from model.encoder.encoder import Encoder
from model.encoder.feed_forward import Experts
from model.encoder.parts import LayerConfig, Mixture
from tests.references.comparing import distance
from tests.references.encoder import activation, softmax


def mixture_of(experts: int, chosen: int) -> Experts:
    config = EncoderConfig(vocab_size=1, hidden_size=12, num_layers=1, num_heads=1, intermediate_size=20)
    module, generator = Experts(config, Mixture(experts, chosen)), torch.Generator().manual_seed(3)
    for parameter in module.parameters():
        parameter.data.normal_(0.0, 0.5, generator=generator)
    return module


@pytest.mark.parametrize(("experts", "chosen"), [(1, 1), (2, 1), (8, 2), (3, 3)])
def test_the_likeliest_experts_are_added_by_their_shares_of_all(experts: int, chosen: int) -> None:
    """The shares of the chosen ones are not normalised again, and the bias is added once."""
    module = mixture_of(experts, chosen)
    w = {name: value.double().numpy() for name, value in module.named_parameters()}
    tokens = torch.randn(7, 12, generator=torch.Generator().manual_seed(4))
    for token, output in zip(tokens.double().numpy(), module(tokens), strict=True):
        shares = softmax(w["router.weight"] @ token)
        expected = w["bias"].copy()
        for expert in sorted(range(experts), key=lambda one: -shares[one])[:chosen]:
            rows = slice(20 * expert, 20 * expert + 20)
            expected += shares[expert] * activation(w["first"][rows] @ token, "gelu") @ w["second"][rows]
        assert distance(output, expected) < 2e-5


def test_every_token_has_experts_of_its_own() -> None:
    """A token's result does not depend on its neighbours, and different tokens choose differently."""
    module = mixture_of(8, 2)
    x = torch.randn(9, 12, generator=torch.Generator().manual_seed(5))
    alone = torch.cat([module(token[None]) for token in x])
    assert distance(module(x), alone) < 1e-5
    shares = module.shares(x)
    assert (shares > 0).sum(-1).tolist() == [2] * 9
    assert (shares > 0).sum(0).count_nonzero() > 2


def test_experts_run_in_the_precision_of_the_encoder() -> None:
    """Like feed-forward networks, they are reduced and the residual stream is not."""
    config = EncoderConfig(
        vocab_size=9,
        hidden_size=12,
        num_layers=1,
        num_heads=1,
        intermediate_size=20,
        layers=(LayerConfig(mixture=Mixture(4, 2)),),
    )
    encoder = Encoder.from_seed(config, seed=0)
    encoder.reduce_precision(torch.bfloat16)
    experts = next(module for module in encoder.modules() if isinstance(module, Experts))
    assert {parameter.dtype for parameter in experts.parameters()} == {torch.bfloat16}
    assert experts(torch.ones(3, 12)).dtype == torch.bfloat16
