"""Products of eight-bit integers, on each instruction set."""

from ctypes import byref
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.encoder.linear import activate
from model.encoder.parts import Activation
from model.pytorch.kernels.instructions import EIGHT_BITS, KernelSet
from model.pytorch.kernels.library import (
    ACTIVATIONS,
    NoKernels,
    Products,
    Rounding,
    check,
    find_int8_kernels,
)
from model.pytorch.kernels.panels import lay_out
from model.pytorch.kernels.structures import Linear, Product
from tests.support.emulated_tiles import AMX_INT8, emulated_int8
from tests.support.kernel import capabilities

EIGHT, SEVEN, SIGNED = Rounding(127, 2**15, 128), Rounding(63, 64, 64), Rounding(127, 2**15, 0)
"""With VNNI or AMX, without them, and on ARM64."""


@dataclass(frozen=True)
class Multiplying:
    """The products of eight bits between numbers of one precision, whose last digit is `step` of them."""

    products: Products
    dtype: torch.dtype

    @property
    def step(self) -> float:
        return 2e-6 if self.dtype == torch.float32 else 2**-8

    @property
    def rounding(self) -> Rounding:
        assert self.products.int8 is not None
        return self.products.int8


@pytest.fixture(params=[*EIGHT_BITS, None], ids=[*(one.name for one in EIGHT_BITS), "emulated"])
def products(request: pytest.FixtureRequest) -> Multiplying:
    """Those of each instruction set that the processor has, and those with emulated tiles."""
    one: KernelSet | None = request.param
    return Multiplying(emulated_int8(), torch.bfloat16) if one is None else by_products(one)


def by_products(one: KernelSet) -> Multiplying:
    """Those of one set; skips without its instructions."""
    can = capabilities()
    if lacking := [name for name in one.instructions.capabilities if not can.get(name)]:
        pytest.skip(f"the processor has no {lacking}")
    try:
        kernels, dtype = find_int8_kernels(dict.fromkeys(one.instructions.capabilities, True))
    except NoKernels as error:
        pytest.skip(str(error))
    assert kernels.instructions == one.instructions.name.removesuffix("_bf16")
    wide = "vnni" in one.name or "amx" in one.name
    assert kernels.products.int8 == (SIGNED if "neon" in one.name else EIGHT if wide else SEVEN)
    assert str(dtype) == f"torch.{one.precision}"
    return Multiplying(kernels.products, dtype)


@dataclass(frozen=True)
class Operands:
    """Of a product: x (T, in), whole weights and what they leave over (out, in), and the rest."""

    x: Tensor
    high: Tensor
    low: Tensor
    bias: Tensor
    scales: Tensor
    """(groups, out)"""
    smoothing: Tensor
    rounding: Rounding


def multiply(
    by: Multiplying,
    of: Operands,
    activation: Activation | None = None,
    *,
    precise: bool = False,
    gated: bool = False,
) -> Tensor:
    """Run the kernel; numbers behind the result are left as they are."""
    outputs, inputs = of.high.shape
    products, x = by.products, of.x.to(by.dtype)
    panels, low = (
        lay_out(stored(weight, of.rounding), products.columns, gated=gated, word=products.word)
        for weight in (of.high, of.low)
    )
    width = outputs // 2 if gated else outputs
    room = torch.full((len(x) * width + 9,), 7.0, dtype=by.dtype)
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


def operands(by: Multiplying, rows: int, words: int, outputs: int) -> Operands:
    """Random ones, whose rows are of very different sizes; x is the same in bfloat16."""
    generator = torch.Generator().manual_seed(rows * words + outputs)
    x = torch.randn(rows, 4 * words, generator=generator) * 10 ** torch.randn(rows, 1, generator=generator)
    steps, group, _ = by.rounding
    high, low = (
        torch.randint(-steps, steps + 1, (outputs, 4 * words), generator=generator) for _ in range(2)
    )
    scales = torch.randn(-(-4 * words // group), outputs, generator=generator) / 100
    bias, smoothing = (
        torch.randn(outputs, generator=generator),
        torch.rand(4 * words, generator=generator) + 0.1,
    )
    return Operands(x.bfloat16().float(), high, low, bias, scales, smoothing, by.rounding)


def stored(whole: Tensor, rounding: Rounding) -> Tensor:
    """Whole numbers as the kernels want them."""
    return (whole + rounding.added).to(torch.uint8 if rounding.added else torch.int8)


def groups(of: Operands) -> list[slice]:
    """The inputs of each group."""
    group = of.rounding.group
    return [slice(start, start + group) for start in range(0, of.x.shape[1], group)]


def in_steps(x: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return x (T, in) in parts of each row's largest number, and that number (T, 1), in float64."""
    largest = x.abs().amax(1, keepdim=True).double()
    return x.double() * torch.where(largest > 0, steps / largest, 0.0), largest


def naive(of: Operands, *, precise: bool = False) -> Tensor:
    """The definition, in float64: x is rounded to whole steps unless it is precise."""
    n, result = of.rounding.steps, of.bias.double()
    weight = of.high.double() + (of.low.double() / (2 * n) if precise else 0)
    for some, scales in zip(groups(of), of.scales.double(), strict=True):
        steps, largest = in_steps((of.x * of.smoothing)[:, some], n)
        sums = (steps if precise else steps.round()) @ weight[:, some].T
        result = result + sums * scales * largest / n
    return result


def rounding_of_groups(of: Operands) -> Tensor:
    """What adding the sums of several groups in float32 may lose (T, out)."""
    return (len(of.scales) - 1) * 2**-23 * (sizes(of) + of.bias.abs())


def sizes(of: Operands) -> Tensor:
    """The most that the terms of the results may add up to, whatever their signs (T, out)."""
    n, total = of.rounding.steps, torch.zeros(1, 1, dtype=torch.float64)
    for some, scales in zip(groups(of), of.scales.double(), strict=True):
        largest = (of.x * of.smoothing)[:, some].abs().amax(1, keepdim=True).double()
        total = total + largest / n * scales.abs() * (of.high[:, some].abs().sum(1) + 2 * n)
    return total


@pytest.mark.parametrize("of", ["processor", "emulated"])
@pytest.mark.parametrize(("precise", "gated"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("rows", "words", "outputs"), [(1, 1, 2), (15, 96, 96), (17, 20, 50), (33, 33, 240), (300, 192, 144)]
)
def test_tiles_give_the_bits_of_vnni(
    of: str, rows: int, words: int, outputs: int, precise: bool, gated: bool
) -> None:
    """Integers are summed without rounding, and their sums are scaled back in the same order."""
    by_name = {one.name: one for one in EIGHT_BITS}
    vnni = by_products(by_name["bfloat16_avx512_vnni_bf16"])
    emulated = of == "emulated"
    tiles = Multiplying(emulated_int8(), torch.bfloat16) if emulated else by_products(by_name[AMX_INT8])
    given_ = operands(vnni, rows, words, outputs)
    found, expected = (multiply(one, given_, precise=precise, gated=gated) for one in (tiles, vnni))
    assert torch.equal(found, expected)


@given(rows=st.integers(0, 40), words=st.integers(1, 100), outputs=st.integers(1, 120))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_product_of_any_shape_is_exact_after_rounding(
    products: Multiplying, rows: int, words: int, outputs: int
) -> None:
    """Sums of integers lose nothing: only what scales them back rounds, and x in the middle of two steps."""
    of = operands(products, rows, words, outputs)
    found, expected = multiply(products, of).double(), naive(of)
    decided = torch.ones(rows, dtype=torch.bool)
    for some in groups(of):
        steps, _ = in_steps((of.x * of.smoothing)[:, some], of.rounding.steps)
        decided &= ((steps - steps.floor() - 0.5).abs() > 1e-4).all(1)
    bound = products.step * expected.abs() + 2e-6 + rounding_of_groups(of)
    assert ((found - expected).abs() <= bound)[decided].all()


@given(rows=st.integers(0, 40), words=st.integers(1, 100), outputs=st.integers(1, 120))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_precise_product_of_any_shape_is_near_the_exact_one(
    products: Multiplying, rows: int, words: int, outputs: int
) -> None:
    """By half a step of what is left over: 2⁻¹⁵ of the sizes of its terms, with seven bits 2⁻¹³."""
    of = operands(products, rows, words, outputs)
    exact = naive(of, precise=True)
    found = multiply(products, of, precise=True).double()
    bound = products.step * exact.abs() + sizes(of) * 0.6 / (2 * of.rounding.steps) + 1e-6
    assert ((found - exact).abs() <= bound + rounding_of_groups(of)).all()


def whole_operands(by: Multiplying, x: Tensor, weight: Tensor) -> Operands:
    """Whole numbers that rounding leaves as they are: each group of x (T, in) has one of the largest size."""
    steps, group, _ = by.rounding
    x[:, ::group] = torch.where(x[:, ::group] < 0, -steps, steps)
    outputs, inputs = weight.shape
    scales = torch.ones(-(-inputs // group), outputs)
    nothing = torch.zeros_like(weight)
    return Operands(x.float(), weight, nothing, torch.zeros(outputs), scales, torch.ones(inputs), by.rounding)


@pytest.mark.parametrize("words", [1, 2, 3, 15, 16, 17, 31, 100, 256])
def test_sums_of_integers_are_exact_at_their_extremes(products: Multiplying, words: int) -> None:
    """Those of NumPy in 64 bits: no sum saturates or overflows, whatever the signs and number of words."""
    n, inputs = products.rounding.steps, 4 * words
    generator = torch.Generator().manual_seed(words)
    signs = torch.tensor([1, -1]).repeat(inputs)[:inputs]
    some = torch.randint(-n, n + 1, (inputs,), generator=generator)
    x = torch.stack([torch.full_like(signs, n), torch.full_like(signs, -n), n * signs, -n * signs, some])
    weight = torch.cat([x, torch.full((1, inputs), -n - 1), (-n - 1) * (signs > 0)[None] + n * (signs < 0)])
    of = whole_operands(products, x, weight)
    expected = of.x.numpy().astype(np.int64) @ weight.numpy().T
    assert np.abs(expected).max() < 2**24
    rounded = torch.from_numpy(expected).to(products.dtype).float()
    for precise in (False, True):
        assert torch.equal(multiply(products, of, precise=precise), rounded)


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_follows_the_scaled_sum(
    products: Multiplying, activation: Activation | None, precise: bool
) -> None:
    """Of the sums with their bias."""
    of = operands(products, 20, 30, 50)
    found = multiply(products, of, activation, precise=precise)
    plain = multiply(products, of, precise=precise)
    assert torch.allclose(found, activate(plain, activation), rtol=6 * products.step, atol=6 * products.step)


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("size", [5, 48, 100])
def test_a_gate_is_activated_and_multiplies_its_value(
    products: Multiplying, size: int, activation: Activation | None, precise: bool
) -> None:
    """Of the sums with their bias, before they are rounded."""
    of = operands(products, 20, 30, 2 * size)
    found = multiply(products, of, activation, precise=precise, gated=True)
    gate, value = multiply(products, of, precise=precise).chunk(2, dim=1)
    error = (found - activate(gate, activation) * value).abs()
    assert (error <= 6 * products.step * (gate.abs() + 1) * (value.abs() + 1)).all()


@pytest.mark.parametrize("precise", [False, True])
def test_extreme_rows_stay_themselves(products: Multiplying, precise: bool) -> None:
    """Zeros give the bias, tiny and huge numbers their own scale, and what is not finite stays so."""
    of = operands(products, 6, 24, 40)
    of.x[:] = torch.randn(6, 96, generator=torch.Generator().manual_seed(0)).bfloat16()
    of.x[0], of.x[1], of.x[2] = 0, (of.x[1] * 1e-30).bfloat16(), (of.x[2] * 1e30).bfloat16()
    of.x[3, 5], of.x[4, 7] = float("nan"), float("inf")
    found = multiply(products, of, precise=precise)
    assert torch.equal(found[0], of.bias.to(products.dtype).float())
    expected = naive(of, precise=precise)
    digits = (
        1e-4 if products.rounding.steps == EIGHT.steps else 4e-4
    )  # steps of what is left over are four times as large
    for row in (1, 2, 5):
        size = expected[row].abs().max()
        assert torch.allclose(
            found[row].double(), expected[row], rtol=5 * products.step, atol=float(size) * digits
        )
    assert not found[3].isfinite().any()
    assert not found[4].isfinite().any()


@pytest.mark.parametrize("precise", [False, True])
def test_a_row_has_the_same_bits_in_every_batch(products: Multiplying, precise: bool) -> None:
    """However many rows there are, and on however many threads."""
    of = operands(products, 700, 96, 200)
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


def test_arguments_that_do_not_fit_are_refused(products: Multiplying) -> None:
    """Inputs that fill no words, and a precise product without what is left over."""
    of = operands(products, 3, 8, 10)
    panels = lay_out(stored(of.high, of.rounding), products.products.columns, word=products.products.word)
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
