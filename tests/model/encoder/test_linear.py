"""Linear layers, plain and laid out for the processor."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.encoder.linear import Linear, activate, suitable_rows
from model.encoder.parts import Activation
from tests.references.comparing import distance
from tests.references.encoder import activation

ACTIVATIONS: tuple[Activation, ...] = ("relu", "gelu", "gelu_tanh", "silu")


def layer(kind: Activation | None, inputs: int = 24, outputs: int = 40, *, bias: bool = True) -> Linear:
    generator = torch.Generator().manual_seed(0)
    linear = Linear(inputs, outputs, kind, bias=bias)
    linear.weight.data.normal_(generator=generator)
    if linear.bias is not None:
        linear.bias.data.normal_(generator=generator)
    return linear


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activations_follow_their_formulas(kind: Activation) -> None:
    """ReLU, GELU with erf, GELU with tanh and SiLU are what their papers define, number by number."""
    x = torch.linspace(-6, 6, 241, dtype=torch.float64)
    assert distance(activate(x, kind), activation(x.numpy(), kind)) < 1e-12


def test_gelu_is_the_exact_one() -> None:
    """`gelu` is the exact erf form; the tanh form is another activation, up to 5e-4 away."""
    x = torch.linspace(-4, 4, 801)
    apart = distance(activate(x, "gelu"), activation(x.double().numpy(), "gelu_tanh"))
    assert 1e-4 < apart < 1e-3


def test_no_activation_is_the_identity() -> None:
    """Without an activation the product passes unchanged."""
    x = torch.randn(5)
    assert activate(x, None) is x


@pytest.mark.parametrize("rows", [1, 3, 64])
@pytest.mark.parametrize("kind", [None, *ACTIVATIONS])
@pytest.mark.parametrize("bias", [True, False])
def test_the_prepacked_layer_computes_the_same(kind: Activation | None, rows: int, *, bias: bool) -> None:
    """activation(x Wᵀ + b), or without b, before and after the weights are laid out for this CPU."""
    linear = layer(kind, bias=bias)
    assert (linear.bias is not None) is bias
    x = torch.randn(rows, 24, generator=torch.Generator().manual_seed(rows))
    product = x.double().numpy() @ linear.weight.double().numpy().T
    if linear.bias is not None:
        product = product + linear.bias.double().numpy()
    expected = product if kind is None else activation(product, kind)
    assert distance(linear(x), expected) < 2e-5
    linear.prepack()
    assert distance(linear(x), expected) < 2e-5


def test_prepacking_keeps_one_copy_of_the_weights() -> None:
    """The plain matrix is let go, and prepacking twice is prepacking once."""
    linear = layer("gelu")
    linear.prepack()
    packed = linear.packed
    assert packed is not None
    assert linear.weight.numel() == 0
    linear.prepack()
    assert linear.packed is packed


def test_weights_are_not_trained() -> None:
    """The encoder serves: no parameter asks for a gradient."""
    assert not any(parameter.requires_grad for parameter in layer(None).parameters())
    assert np.isfinite(layer(None)(torch.ones(2, 24)).numpy()).all()


@given(tokens=st.integers(0, 100_000))
def test_rows_are_rounded_up_by_little(tokens: int) -> None:
    """By less than a sixteenth, or eight; and what is suitable stays as it is."""
    rows = suitable_rows(tokens)
    assert tokens <= rows < max(tokens * 17 / 16, tokens + 8) or rows == tokens == 0
    assert suitable_rows(rows) == rows


def test_suitable_rows_are_few() -> None:
    """A service that runs batches of every size meets few shapes of products."""
    assert len({suitable_rows(tokens) for tokens in range(1, 2049)}) <= 100
