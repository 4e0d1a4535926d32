"""Rounding weights to eight bits, for the inputs that a model makes of random tokens."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.source import resolve
from model.encoder.config import EncoderConfig
from model.encoder.parts import Disentangled
from model.pytorch.kernels.eight_bits import Inputs, observe_inputs, round_weights
from model.pytorch.kernels.library import Rounding
from tests.references.checkpoints import MINILM
from tests.support.product import random_encoder

EIGHT, SEVEN, SIGNED = Rounding(127, 2**15, 128), Rounding(63, 64, 64), Rounding(127, 2**15, 0)
"""With VNNI, without it, and on ARM64."""


@pytest.mark.parametrize("rounding", [EIGHT, SEVEN, SIGNED])
def test_rounded_weights_are_near_the_exact_ones_where_inputs_have_outliers(rounding: Rounding) -> None:
    """One column of x is a hundred times the others: smoothing keeps the others' digits."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 148, generator=generator)
    x[:, 7] *= 100
    weight = torch.randn(80, 148, generator=generator)
    weight[:, 7] /= 100
    rounded = round_weights(weight, Inputs(x.abs().amax(0), x), rounding)
    assert rounded is not None
    assert rounded.low is not None
    assert not rounded.precise
    n, group, added = rounding
    assert rounded.high.dtype == rounded.low.dtype == (torch.uint8 if added else torch.int8)
    scales = rounded.scales.T.repeat_interleave(min(group, 148), 1)[:, :148]
    step = scales * rounded.smoothing
    high, low = (part.double() - added for part in (rounded.high, rounded.low))
    assert max(high.abs().max(), low.abs().max()) <= n
    assert ((high * step - weight).abs() <= 0.501 * step).all()
    assert (((high + low / (2 * n)) * step - weight).abs() <= 0.502 / (2 * n) * step).all()
    parts = torch.split((x * rounded.smoothing).double(), group, 1)
    steps = torch.cat([part.abs().amax(1, keepdim=True).expand_as(part) / n for part in parts], 1)
    given = ((x * rounded.smoothing) / steps).round() * steps
    expected = x.double() @ weight.double().T
    assert (given @ (high * scales).T - expected).norm() <= 0.03 * expected.norm()


@pytest.mark.parametrize("rounding", [EIGHT, SEVEN, SIGNED])
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda x, w: (x * float("nan"), w), id="NaN"),
        # Half of the rows are far larger than the others in columns that do not matter.
        pytest.param(
            lambda x, w: (torch.cat([x[:, :40] / 1e6, x[:, 40:] * 1e6], 1), w * (torch.arange(48) < 40)),
            id="lost",
        ),
    ],
)
def test_a_product_that_would_lose_too_much_is_always_precise(
    spoil: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], rounding: Rounding
) -> None:
    """By more than 4 % of its results."""
    generator = torch.Generator().manual_seed(0)
    x, weight = spoil(*(torch.randn(64, 48, generator=generator) for _ in range(2)))
    rounded = round_weights(weight, Inputs(torch.ones(48), x, observed=False), rounding)
    assert rounded is not None
    assert rounded.precise
    assert rounded.low is not None


def test_only_precise_products_keep_what_rounding_left_over() -> None:
    """What no pass that observes attention runs has no low part, unless it is precise by itself."""
    weight, x = (torch.randn(rows, 48, generator=torch.Generator().manual_seed(0)) for rows in (80, 64))
    rounded = round_weights(weight, Inputs(x.abs().amax(0), x, observed=False), EIGHT)
    assert rounded is not None
    assert rounded.low is None


_SMALL: dict[str, Any] = {"hidden_size": 64, "num_layers": 3, "num_heads": 2, "intermediate_size": 48}


@pytest.mark.parametrize(("shared", "unobserved"), [((0, 1, 2), 3), ((0, 1, 1), 0)])
def test_a_pass_that_observes_ends_with_the_attention_of_the_last_block(
    shared: tuple[int, ...], unobserved: int
) -> None:
    """So the rest of that block is not observed, unless its weights are those of an earlier block, too."""
    distances = Disentangled(9, 4, shared=True)
    config = EncoderConfig(99, positions="none", disentangled=distances, shared=shared, **_SMALL)
    encoder = random_encoder(config)
    last: Any = encoder.blocks[-1]
    rest = [last.attention.output, last.feed_forward.inner, last.feed_forward.outer]
    found = [layer for layer, inputs in observe_inputs(encoder).items() if not inputs.observed]
    assert found == rest[:unobserved]


def test_passes_that_observe_do_not_use_rounded_weights_where_all_are_rounded() -> None:
    """They multiply by those of the file."""
    encoder = random_encoder(EncoderConfig(99, **_SMALL))
    assert not any(inputs.observed for inputs in observe_inputs(encoder).values())


def test_what_fills_no_words_is_left_in_its_precision() -> None:
    """Four numbers are one."""
    assert round_weights(torch.ones(8, 47), Inputs(torch.ones(47), torch.ones(64, 47)), EIGHT) is None


def test_the_ranges_of_inputs_are_the_same_each_time() -> None:
    """A model must not differ from start to start, or between processes."""
    seen = [observe_inputs(load_checkpoint(resolve(MINILM)).encoder) for _ in range(2)]
    for first, second in zip(*(found.values() for found in seen), strict=True):
        assert torch.equal(first.largest, second.largest)
    assert len(seen[0]) == 6 * 4
