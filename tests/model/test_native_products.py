"""The linear products and activations of the kernels, against float64 and beside PyTorch's."""

from collections.abc import Callable
from ctypes import byref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.encoder.linear import activate
from model.encoder.parts import Activation
from model.pytorch.kernels.library import ACTIVATIONS, Products, check
from model.pytorch.kernels.panels import lay_out
from model.pytorch.kernels.structures import Linear, Product
from tests.references.comparing import relative_distance
from tests.support.emulated_tiles import AMX, EMULATED
from tests.support.kernel import FLOAT32 as EXACT_STEPS
from tests.support.kernel import ROUNDED, STEPS, WIDENED, kernels_of, multiply

# ------------------------------------------------------------------------------------------- products

FLOAT32 = (*(name for name in STEPS if name.startswith("float32")), WIDENED, ROUNDED)
"""Products that read and write float32."""
BFLOAT16 = (*(name for name in STEPS if name.startswith("bfloat16")), AMX, EMULATED)
"""Those that read and write bfloat16."""


def own_products(steps: str) -> Products:
    """Those that `kernels_of` finds."""
    return kernels_of(steps).products


@pytest.fixture(params=FLOAT32)
def products(request: pytest.FixtureRequest) -> Products:
    """The kernels' own products that read and write float32."""
    return own_products(request.param)


@pytest.fixture(params=BFLOAT16)
def products_of_bfloat16(request: pytest.FixtureRequest) -> Products:
    """The kernels' own products in bfloat16."""
    return own_products(request.param)


def as_multiplied(products: Products, weight: Tensor) -> Tensor:
    """Convert a weight to the precision in which products of float32 read it."""
    return weight.bfloat16() if products.widens else weight


def as_read(products: Products, x: Tensor) -> Tensor:
    """Round numbers as products of float32 do that multiply eight bytes of bfloat16 at a time."""
    return x.bfloat16().float() if products.word == 8 else x


def root_mean_square(x: Tensor) -> float:
    """Of all numbers."""
    return float(x.square().mean().sqrt())


def product(products: Products, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute x Wᵀ + b; numbers behind the result are left as they are."""
    room = torch.full((len(x) * len(weight) + 9,), 7.0, dtype=x.dtype)
    output = room[:-9].view(len(x), len(weight))
    multiply(products, x, weight, bias, output)
    assert (room[-9:] == 7).all()
    return output


def operands(rows: int, inputs: int, outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random x (rows, inputs), W (outputs, inputs) and b (outputs,)."""
    generator = torch.Generator().manual_seed(rows * inputs + outputs)
    x, weight = (torch.randn(n, inputs, generator=generator) for n in (rows, outputs))
    return x, weight, torch.randn(outputs, generator=generator)


@given(rows=st.integers(0, 40), inputs=st.integers(1, 300), outputs=st.integers(1, 70))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_product_of_any_shape_is_exact(products: Products, rows: int, inputs: int, outputs: int) -> None:
    """Within few roundings of the sum of its terms' sizes."""
    x, weight, bias = operands(rows, inputs, outputs)
    weight, x = as_multiplied(products, weight), as_read(products, x)
    exact = x.double() @ weight.double().T + bias
    sizes = x.double().abs() @ weight.double().abs().T + bias.abs()
    assert ((product(products, x, weight, bias) - exact).abs() <= 1e-6 * sizes).all()


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@given(rows=st.integers(0, 40), inputs=st.integers(1, 300), outputs=st.integers(1, 40))
@settings(max_examples=30)
def test_widened_weights_give_the_bits_of_float32(
    activation: Activation | None, gated: bool, rows: int, inputs: int, outputs: int
) -> None:
    """Those of a product in float32 with weights that are rounded to bfloat16."""
    widened, exact = own_products(WIDENED), own_products(EXACT_STEPS)
    x, weight, bias = operands(rows, inputs, 2 * outputs)
    weight, width = weight.bfloat16(), outputs if gated else 2 * outputs
    ours, theirs = torch.full((2, rows, width), torch.nan)
    multiply(widened, x, weight, bias, ours, activation, gated=gated)
    multiply(exact, x, weight.float(), bias, theirs, activation, gated=gated)
    assert torch.equal(ours, theirs)


def test_widened_weights_take_any_number() -> None:
    """Of all 65536, numbers and infinities stay what they are, and a NaN a NaN."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int16)
    weight = bits.view(torch.bfloat16)[:, None]  # (65536, 1)
    ours = product(own_products(WIDENED), torch.ones(1, 1), weight, torch.zeros(len(bits)))[0]
    nan = weight[:, 0].isnan()
    assert torch.equal(ours.isnan(), nan)
    assert torch.equal(ours[~nan], weight[~nan, 0].float())


@given(rows=st.integers(0, 40), inputs=st.integers(1, 150), outputs=st.integers(1, 70))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_product_of_bfloat16_is_exact_before_it_is_rounded(
    products_of_bfloat16: Products, rows: int, inputs: int, outputs: int
) -> None:
    """Half a unit in the last of its eight digits, beside the few roundings of the sum."""
    x, weight, bias = operands(rows, 2 * inputs, outputs)
    x, weight = x.bfloat16(), weight.bfloat16()
    exact = x.double() @ weight.double().T + bias
    sizes = x.double().abs() @ weight.double().abs().T + bias.abs()
    error = (product(products_of_bfloat16, x, weight, bias) - exact).abs()
    assert (error <= exact.abs() / 256 + 1e-6 * sizes).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("outputs", [1, 16, 47, 48, 100])
@pytest.mark.parametrize("steps", [*FLOAT32, *BFLOAT16])
def test_a_gate_is_activated_and_multiplies_its_value(
    steps: str, outputs: int, activation: Activation | None
) -> None:
    """In float32, from the sums themselves: also in bfloat16 only the result is rounded."""
    products, rounds = own_products(steps), steps in BFLOAT16
    x, weight, bias = operands(9, 20, 2 * outputs)
    weight = weight.bfloat16() if rounds else as_multiplied(products, weight)
    x = x.bfloat16() if rounds else as_read(products, x)
    room = torch.full((9 * outputs + 9,), 7.0, dtype=x.dtype)
    multiply(products, x, weight, bias, room, activation, gated=True)
    gate, value = (x.double() @ weight.double().T + bias).chunk(2, dim=1)
    wanted = activate(gate, activation) * value
    error = (room[:-9].view(9, outputs) - wanted).abs()
    assert (error <= wanted.abs() / (256 if rounds else 1e5) + 1e-5).all()
    assert (room[-9:] == 7).all()


def test_products_of_bfloat16_take_whole_pairs(products_of_bfloat16: Products) -> None:
    """A word is a pair: an odd number of inputs is refused."""
    zeros = torch.zeros(64)
    address = zeros.data_ptr()
    linear = Linear(panels=address, bias=address, inputs=3, outputs=1)
    wrong = Product(linear=linear, x=address, output=address, tokens=1)
    assert products_of_bfloat16.multiply(byref(wrong)) == -2


def test_what_is_not_finite_stays_so_in_bfloat16(products_of_bfloat16: Products) -> None:
    """A NaN of any bits, infinity, and what rounds to it; ties go to the even neighbour."""
    bits = [0x7F800001, 0x7FFFFFFF, 0x7F800000, 0x7F7FFFFF, 0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF]
    strange = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
    strange = torch.cat([strange, -strange])
    zeros = torch.zeros(len(strange), 2, dtype=torch.bfloat16)
    rounded = product(products_of_bfloat16, zeros[:1], zeros, strange)
    assert torch.equal(rounded.isnan(), strange.isnan()[None])
    assert torch.equal(rounded.nan_to_num(nan=1), strange[None].bfloat16().nan_to_num(nan=1))


@pytest.mark.parametrize(("inputs", "outputs"), [(384, 1152), (1536, 384), (3072, 768)])
def test_long_sums_are_as_exact_as_those_of_pytorch(products: Products, inputs: int, outputs: int) -> None:
    """Partial sums keep the rounding error from growing."""
    x, weight, bias = operands(200, inputs, outputs)
    weight, x = as_multiplied(products, weight), as_read(products, x)
    exact = x.double() @ weight.double().T + bias
    theirs = torch.nn.functional.linear(x, weight.float(), bias) - exact
    assert root_mean_square(product(products, x, weight, bias) - exact) <= root_mean_square(theirs)


@pytest.mark.parametrize("steps", [*FLOAT32, *BFLOAT16])
def test_a_row_has_the_same_bits_in_every_batch(steps: str) -> None:
    """However many rows there are, and on however many threads."""
    products, (x, weight, bias) = own_products(steps), operands(600, 420, 100)
    rounds = steps in BFLOAT16
    weight = weight.bfloat16() if rounds else as_multiplied(products, weight)
    x = x.bfloat16() if rounds else as_read(products, x)
    whole = product(products, x, weight, bias)
    exact = x.double() @ weight.double().T + bias
    assert ((whole - exact).abs() <= (exact.abs() / 256 if whole.dtype == torch.bfloat16 else 0) + 1e-4).all()
    for start, stop in [(0, 1), (5, 8), (17, 29), (17, 34), (40, 73), (100, 400), (43, 600)]:
        assert torch.equal(product(products, x[start:stop], weight, bias), whole[start:stop])
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(product(products, x, weight, bias), whole)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.in_turns
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("inputs", [1026, 2500, 4096])
@pytest.mark.parametrize("steps", [*FLOAT32, *BFLOAT16])
def test_inputs_that_come_in_parts_give_the_bits_of_a_single_row(
    steps: str, inputs: int, gated: bool
) -> None:
    """On any number of threads: each of many rows is as if it were alone."""
    products, (x, weight, bias) = own_products(steps), operands(70, inputs, 200)
    x, weight = (
        (x.bfloat16(), weight.bfloat16()) if steps in BFLOAT16 else (x, as_multiplied(products, weight))
    )
    outputs = len(weight) // (2 if gated else 1)
    alone = torch.empty(len(x), outputs, dtype=x.dtype)
    for row in range(len(x)):
        multiply(products, x[row : row + 1], weight, bias, alone[row : row + 1], gated=gated)
    exact = x.double() @ weight.double().T + bias
    exact = exact[:, :outputs] * exact[:, outputs:] if gated else exact
    assert relative_distance(alone.float(), exact) < (1e-2 if steps in BFLOAT16 else 1e-5)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            output = torch.empty_like(alone)
            multiply(products, x, weight, bias, output, gated=gated)
            assert torch.equal(output, alone)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "wrong",
    [
        *({name: None} for name in ("x", "panels", "bias", "output")),
        {"panels": "beside a cache line"},
        {"tokens": -1},
        {"inputs": 0},
        {"outputs": 0},
        {"activation": 5},
        {"activation": -1},
    ],
    ids=str,
)
def test_a_wrong_product_is_refused(products: Products, wrong: dict[str, Any]) -> None:
    """Before anything is read."""
    x, weight, bias = operands(2, 8, 16)
    weight = as_multiplied(products, weight)
    panels, output = lay_out(weight, products.columns, word=products.word), torch.zeros(2, 16)
    linear = Linear(panels=panels.data_ptr(), bias=bias.data_ptr(), inputs=8, outputs=16)
    good = Product(linear=linear, x=x.data_ptr(), output=output.data_ptr(), tokens=2)
    assert products.multiply(byref(good)) == 0
    for name, value in wrong.items():
        changed = good if hasattr(good, name) else good.linear
        setattr(changed, name, panels.data_ptr() + 4 if value == "beside a cache line" else value)
    with pytest.raises(ValueError, match="shapes do not match"):
        check(products.multiply(byref(good)))


# ---------------------------------------------------------------------------------------- activations

EXACT: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": lambda x: x * torch.erfc(-x * 0.5**0.5) / 2,
    "gelu_tanh": lambda x: x * torch.sigmoid((8 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)),
    "silu": lambda x: x * torch.sigmoid(x),
    "relu": lambda x: x.clamp_min(0),
}
"""Without differences of large numbers, which lose the digits of small results."""
all_activations = pytest.mark.parametrize("activation", list(EXACT))


def activated(
    products: Products, activation: Activation, x: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    """What the kernels make of x (N,), float32, the bias of a product that is 0; the result has the dtype."""
    room = torch.full((len(x) + 9,), 7.0, dtype=dtype)
    zeros = torch.zeros(1 + len(x), 2, dtype=dtype)
    weight = as_multiplied(products, zeros[1:])
    multiply(products, zeros[:1], weight, x, room[: len(x)].view(1, -1), activation)
    assert (room[len(x) :] == 7).all()
    return room[: len(x)]


@all_activations
@pytest.mark.parametrize("spread", [0, 1, 4])
def test_an_activation_is_as_exact_as_that_of_pytorch(
    activation: Activation, spread: float, products: Products
) -> None:
    """On a dense grid, and on random numbers: neither the largest error nor the mean one is larger."""
    drawn = torch.randn(500_003, generator=torch.Generator().manual_seed(2)) * spread
    x = drawn if spread else torch.linspace(-16, 16, 500_003)
    exact = EXACT[activation](x.double())
    ours = activated(products, activation, x).double() - exact
    theirs = activate(x, activation).double() - exact
    assert ours.abs().max() <= theirs.abs().max()
    assert root_mean_square(ours) <= root_mean_square(theirs)


@all_activations
def test_the_tail_of_an_activation_keeps_its_digits(activation: Activation, products: Products) -> None:
    """Where it nears 0 too: PyTorch's GELU is 0 below -5.5."""
    x = torch.linspace(-9, -1e-6, 10_007)
    exact = EXACT[activation](x.double())
    ours = activated(products, activation, x).double()
    assert ((ours - exact).abs() <= 2e-5 * exact.abs()).all()


@all_activations
def test_an_activation_in_bfloat16_is_nearly_exact_before_it_is_rounded(
    activation: Activation, products_of_bfloat16: Products
) -> None:
    """Rounding to eight digits errs by half a unit at most; what is rounded, by a sixteenth of that."""
    x = torch.linspace(-9, 9, 100_003)
    exact = EXACT[activation](x.double())
    ours = activated(products_of_bfloat16, activation, x, torch.bfloat16).double()
    assert ((ours - exact).abs() <= (2**-8 + 2**-12) * exact.abs()).all()


@all_activations
def test_an_activation_in_bfloat16_takes_any_number(
    activation: Activation, products_of_bfloat16: Products
) -> None:
    """What is not finite becomes what PyTorch makes of it; nothing becomes so that was not."""
    x = torch.tensor([np.inf, -np.inf, np.nan, 1e38, -1e38, 1e-40, -1e-40, 0.0, 1.0, -100.0, -13.2, -14.0])
    ours = activated(products_of_bfloat16, activation, x, torch.bfloat16)
    theirs = activate(x.double(), activation).bfloat16()
    assert torch.allclose(ours, theirs, rtol=2**-7, atol=1e-37, equal_nan=True)


@all_activations
@pytest.mark.parametrize("size", [1, 7, 8, 9, 1003])
def test_an_activation_takes_any_size_and_any_number(
    activation: Activation, size: int, products: Products
) -> None:
    """What is not finite becomes what PyTorch makes of it in float64, in whole vectors and beside them.

    In float32 PyTorch's GELU of infinity is NaN on some processors.
    """
    strange = [np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-40, -1e-40, 0.0, -0.0, 1.0, -100.0]
    x = torch.tensor([strange[i % len(strange)] for i in range(size)])
    ours = activated(products, activation, x)
    theirs = activate(x.double(), activation).float()
    assert torch.allclose(ours, theirs, rtol=1e-6, atol=1e-37, equal_nan=True)
