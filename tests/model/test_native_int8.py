"""Products of eight-bit integers: their kernel, and the rounding of weights."""

from collections.abc import Callable
from ctypes import byref
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.source import resolve
from model.encoder.config import EncoderConfig
from model.encoder.linear import activate
from model.encoder.parts import Activation, Disentangled
from model.pytorch.kernels.eight_bits import Inputs, observe_inputs, round_weights
from model.pytorch.kernels.library import ACTIVATIONS, NoKernels, Products, check, find_int8_kernels
from model.pytorch.kernels.panels import lay_out
from model.pytorch.kernels.structures import Linear, Product
from tests.references.checkpoints import MINILM
from tests.support.product import random_encoder


@dataclass(frozen=True)
class Rounding:
    """The products of eight bits between numbers of one precision, whose last digit is `step` of them."""

    products: Products
    dtype: torch.dtype

    @property
    def step(self) -> float:
        return 2e-6 if self.dtype == torch.float32 else 2**-8


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def products(request: pytest.FixtureRequest) -> Rounding:
    """Those of this processor, in each precision that it may choose; skips where it has none."""
    precise = request.param == torch.float32
    can = {**torch.cpu.get_capabilities(), "slow_avx512_bf16": precise, "amx_tile": False}
    try:
        kernels, dtype = find_int8_kernels(can)
    except NoKernels as error:
        pytest.skip(str(error))
    if dtype != request.param:
        pytest.skip(f"the processor has no instructions for {request.param}")
    return Rounding(kernels.products, dtype)


@dataclass(frozen=True)
class Operands:
    """Of a product: x (T, in), weights of eight bits and what they leave over (out, in), and the rest."""

    x: Tensor
    high: Tensor
    low: Tensor
    bias: Tensor
    scales: Tensor
    smoothing: Tensor


def multiply(
    rounding: Rounding,
    of: Operands,
    activation: Activation | None = None,
    *,
    precise: bool = False,
    gated: bool = False,
) -> Tensor:
    """Run the kernel; numbers behind the result are left as they are."""
    outputs, inputs = of.high.shape
    products, x = rounding.products, of.x.to(rounding.dtype)
    panels, low = (lay_out(weight, products.columns, gated=gated) for weight in (of.high, of.low))
    width = outputs // 2 if gated else outputs
    room = torch.full((len(x) * width + 9,), 7.0, dtype=rounding.dtype)
    linear = Linear(
        panels=panels.data_ptr(),
        bias=of.bias.data_ptr(),
        inputs=inputs,
        outputs=outputs,
        activation=ACTIVATIONS.index(activation),
        scales=of.scales.data_ptr(),
        smoothing=of.smoothing.data_ptr(),
        low_panels=low.data_ptr(),
        precise=precise,
        gated=gated,
    )
    product = Product(linear=linear, x=x.data_ptr(), output=room.data_ptr(), tokens=len(x))
    check(products.multiply(byref(product)))
    assert (room[-9:] == 7).all()
    return room[:-9].view(len(x), width).float()


def operands(rows: int, words: int, outputs: int) -> Operands:
    """Random ones, whose rows are of very different sizes; x is the same in bfloat16."""
    generator = torch.Generator().manual_seed(rows * words + outputs)
    x = torch.randn(rows, 4 * words, generator=generator) * 10 ** torch.randn(rows, 1, generator=generator)
    high, low = (
        torch.randint(1, 256, (outputs, 4 * words), generator=generator).to(torch.uint8) for _ in range(2)
    )
    bias, scales = (torch.randn(outputs, generator=generator) for _ in range(2))
    x = x.bfloat16().float()
    return Operands(x, high, low, bias, scales / 100, torch.rand(4 * words, generator=generator) + 0.1)


def in_steps(of: Operands) -> tuple[Tensor, Tensor]:
    """Return x (T, in) in 127ths of each row's largest number, and that number (T, 1), in float64."""
    smooth = (of.x * of.smoothing).double()
    largest = smooth.abs().amax(1, keepdim=True)
    return smooth * torch.where(largest > 0, 127 / largest, 0.0), largest


def naive(of: Operands, *, precise: bool = False) -> Tensor:
    """The definition, in float64: x is rounded to whole steps unless it is precise."""
    steps, largest = in_steps(of)
    weight = of.high.double() - 128
    if precise:
        weight += (of.low.double() - 128) / 254
    sums = (steps if precise else steps.round()) @ weight.T
    return sums * of.scales.double() * largest / 127 + of.bias


@given(rows=st.integers(0, 40), words=st.integers(1, 100), outputs=st.integers(1, 120))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_product_of_any_shape_is_exact_after_rounding(
    products: Rounding, rows: int, words: int, outputs: int
) -> None:
    """Sums of integers lose nothing: only what scales them back rounds, and x in the middle of two steps."""
    of = operands(rows, words, outputs)
    found, expected = multiply(products, of).double(), naive(of)
    steps, _ = in_steps(of)
    decided = ((steps - steps.floor() - 0.5).abs() > 1e-4).all(1)
    assert torch.allclose(found[decided], expected[decided], rtol=products.step, atol=2e-6)


@given(rows=st.integers(0, 40), words=st.integers(1, 100), outputs=st.integers(1, 120))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_precise_product_of_any_shape_is_near_the_exact_one(
    products: Rounding, rows: int, words: int, outputs: int
) -> None:
    """By 2⁻¹⁵ of the sizes of its terms, half a step of what is left over."""
    of = operands(rows, words, outputs)
    exact = naive(of, precise=True)
    found = multiply(products, of, precise=True).double()
    largest = (of.x * of.smoothing).abs().amax(1, keepdim=True).double()
    terms = (of.high.double() - 128).abs().sum(1) + 254
    bound = products.step * exact.abs() + largest / 127 / 254 * 0.6 * terms * of.scales.abs() + 1e-6
    assert ((found - exact).abs() <= bound).all()


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_follows_the_scaled_sum(
    products: Rounding, activation: Activation | None, precise: bool
) -> None:
    """Of the sums with their bias."""
    of = operands(20, 30, 50)
    found = multiply(products, of, activation, precise=precise)
    plain = multiply(products, of, precise=precise)
    assert torch.allclose(found, activate(plain, activation), rtol=6 * products.step, atol=6 * products.step)


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("size", [5, 48, 100])
def test_a_gate_is_activated_and_multiplies_its_value(
    products: Rounding, size: int, activation: Activation | None, precise: bool
) -> None:
    """Of the sums with their bias, before they are rounded."""
    of = operands(20, 30, 2 * size)
    found = multiply(products, of, activation, precise=precise, gated=True)
    gate, value = multiply(products, of, precise=precise).chunk(2, dim=1)
    error = (found - activate(gate, activation) * value).abs()
    assert (error <= 6 * products.step * (gate.abs() + 1) * (value.abs() + 1)).all()


@pytest.mark.parametrize("precise", [False, True])
def test_extreme_rows_stay_themselves(products: Rounding, precise: bool) -> None:
    """Zeros give the bias, tiny and huge numbers their own scale, and what is not finite stays so."""
    of = operands(6, 24, 40)
    of.x[:] = torch.randn(6, 96, generator=torch.Generator().manual_seed(0)).bfloat16()
    of.x[0], of.x[1], of.x[2] = 0, (of.x[1] * 1e-30).bfloat16(), (of.x[2] * 1e30).bfloat16()
    of.x[3, 5], of.x[4, 7] = float("nan"), float("inf")
    found = multiply(products, of, precise=precise)
    assert torch.equal(found[0], of.bias.to(products.dtype).float())
    expected = naive(of, precise=precise)
    for row in (1, 2, 5):
        size = expected[row].abs().max()
        assert torch.allclose(
            found[row].double(), expected[row], rtol=5 * products.step, atol=float(size) * 1e-4
        )
    assert not found[3].isfinite().any()
    assert not found[4].isfinite().any()


@pytest.mark.parametrize("precise", [False, True])
def test_a_row_has_the_same_bits_in_every_batch(products: Rounding, precise: bool) -> None:
    """However many rows there are, and on however many threads."""
    of = operands(700, 96, 200)
    whole = multiply(products, of, precise=precise)
    for start, stop in [(0, 1), (5, 8), (17, 29), (100, 700)]:
        some = replace(of, x=of.x[start:stop].contiguous())
        assert torch.equal(multiply(products, some, precise=precise), whole[start:stop])
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(multiply(products, of, precise=precise), whole)
    finally:
        torch.set_num_threads(threads)


def test_arguments_that_do_not_fit_are_refused(products: Rounding) -> None:
    """Inputs that fill no words, and a precise product without what is left over."""
    of = operands(3, 8, 10)
    panels = lay_out(of.high, products.products.columns)
    output = torch.empty(30)
    for inputs, precise in ((31, False), (32, True), (2**15 + 4, False)):
        linear = Linear(
            panels=panels.data_ptr(),
            bias=of.bias.data_ptr(),
            inputs=inputs,
            outputs=10,
            scales=of.scales.data_ptr(),
            smoothing=of.smoothing.data_ptr(),
            precise=precise,
        )
        wrong = Product(linear=linear, x=of.x.data_ptr(), output=output.data_ptr(), tokens=3)
        assert products.products.multiply(byref(wrong)) == -2


def test_rounded_weights_are_near_the_exact_ones_where_inputs_have_outliers() -> None:
    """One column of x is a hundred times the others: smoothing keeps the others' digits."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 48, generator=generator)
    x[:, 7] *= 100
    weight = torch.randn(80, 48, generator=generator)
    weight[:, 7] /= 100
    rounded = round_weights(weight, Inputs(x.abs().amax(0), x))
    assert rounded is not None
    assert rounded.low is not None
    assert not rounded.precise
    step = rounded.scales[:, None] * rounded.smoothing
    high, low = rounded.high.double() - 128, (rounded.low.double() - 128) / 254
    assert ((high * step - weight).abs() <= 0.501 * step).all()
    assert (((high + low) * step - weight).abs() <= 0.003 * step).all()
    of = Operands(x, rounded.high, rounded.low, torch.zeros(80), rounded.scales, rounded.smoothing)
    expected = x.double() @ weight.double().T
    assert (naive(of) - expected).norm() <= 0.03 * expected.norm()


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
    spoil: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
) -> None:
    """By more than 4 % of its results."""
    generator = torch.Generator().manual_seed(0)
    x, weight = spoil(*(torch.randn(64, 48, generator=generator) for _ in range(2)))
    rounded = round_weights(weight, Inputs(torch.ones(48), x, observed=False))
    assert rounded is not None
    assert rounded.precise
    assert rounded.low is not None


def test_only_precise_products_keep_what_rounding_left_over() -> None:
    """What no pass that observes attention runs has no low part, unless it is precise by itself."""
    weight, x = (torch.randn(rows, 48, generator=torch.Generator().manual_seed(0)) for rows in (80, 64))
    rounded = round_weights(weight, Inputs(x.abs().amax(0), x, observed=False))
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
    assert round_weights(torch.ones(8, 47), Inputs(torch.ones(47), torch.ones(64, 47))) is None


def test_the_ranges_of_inputs_are_the_same_each_time() -> None:
    """A model must not differ from start to start, or between processes."""
    seen = [observe_inputs(load_checkpoint(resolve(MINILM)).encoder) for _ in range(2)]
    for first, second in zip(*(found.values() for found in seen), strict=True):
        assert torch.equal(first.largest, second.largest)
    assert len(seen[0]) == 6 * 4
