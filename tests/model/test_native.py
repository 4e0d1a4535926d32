"""The compiled kernels against float64, in every precision and with every set of instructions."""

from collections.abc import Callable, Sequence
from ctypes import CDLL, byref
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from model.contract import STATISTICS
from model.encoder.config import Activation
from model.encoder.linear import activate
from model.pytorch.kernels.build import build
from model.pytorch.kernels.library import Kernels, NoKernels, Products, check, find_kernels
from model.pytorch.kernels.observations import Observations, Slots
from model.pytorch.kernels.stack import lay_out
from model.pytorch.kernels.structures import Product
from tests.references import measures
from tests.references.comparing import near_ties
from tests.support.kernel import attend, multiply, needs_kernels

DTYPES = {
    "avx2": torch.float32,
    "avx512": torch.float32,
    "bfloat16": torch.bfloat16,
    "amx": torch.bfloat16,
}
all_kernels = pytest.mark.parametrize("name", list(DTYPES))
EDGES = [0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 257]
LENGTHS = st.lists(st.sampled_from(EDGES) | st.integers(0, 80), min_size=1, max_size=6)


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    """The kernels for AMX, their tiles emulated, which any processor with AVX512-BF16 runs."""
    target = tmp_path_factory.mktemp("kernels") / "emulated.so"
    build(target, ["-DHEADLIGHT_EMULATE_TILES", "-Werror"])
    opened = CDLL(str(target))
    return Kernels.of(opened, "amx", "attend_bfloat16_amx", "add_norm_bfloat16")


def some_kernels(name: str, request: pytest.FixtureRequest) -> Kernels:
    """The kernels that a test is run with: `bfloat16` are the best that this processor has."""
    masked = {"avx512_f": False} if name == "avx2" else {}
    try:
        kernels = find_kernels(DTYPES[name], {**torch.cpu.get_capabilities(), **masked})
    except NoKernels as error:
        pytest.skip(str(error))
    if name == "avx512" and kernels.instructions != name:
        pytest.skip("the processor has no AVX-512")
    if name == "amx":
        kernels = request.getfixturevalue("emulated")
    return kernels


@dataclass(frozen=True)
class Packed:
    """Packed queries, keys and values, (T, H, D) each, as a layer projects them."""

    q: Tensor
    k: Tensor
    v: Tensor
    starts: Any

    @classmethod
    def random(cls, lengths: Sequence[int], heads: int, size: int, dtype: torch.dtype, seed: int) -> "Packed":
        generator = torch.Generator().manual_seed(seed)
        tokens = sum(lengths)
        wide = torch.randn(tokens, 3 * heads * size + 32, generator=generator).to(dtype)
        q, k, v = wide[:, 32:].view(tokens, 3, heads, size).unbind(1)  # off every boundary
        return cls(q, k, v, np.array([0, *np.cumsum(lengths)], np.int64))

    def sequence(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        """One sequence's, each (H, N, D), float64."""
        rows = slice(*self.starts[index : index + 2].tolist())
        q, k, v = (x[rows].transpose(0, 1).double() for x in (self.q, self.k, self.v))
        return q, k, v

    def weights(self, index: int) -> Tensor:
        """Softmax weights (H, N, N) in float64."""
        return torch.softmax(self.scores(index), -1)

    def scores(self, index: int) -> Tensor:
        """Scaled products of queries and keys (H, N, N) in float64."""
        q, k, _ = self.sequence(index)
        return q @ k.transpose(1, 2) * q.shape[-1] ** -0.5


def root_mean_square(x: Tensor) -> float:
    return float(x.square().mean().sqrt())


def errors(kernels: Kernels, packed: Packed) -> list[tuple[float, float, float]]:
    """Of each sequence: root mean squares of our error, that of PyTorch's fused kernel, and the outputs."""
    tokens, heads, size = packed.q.shape
    dtype = packed.q.dtype
    output = torch.full((tokens + 3, heads, size), 7.0, dtype=dtype)
    attend(kernels, packed.q, packed.k, packed.v, packed.starts, output)
    assert (output[tokens:] == 7).all(), "rows of nobody are left alone"
    found = []
    for i in range(len(packed.starts) - 1):
        q, k, v = packed.sequence(i)
        if q.shape[1]:
            exact = packed.weights(i) @ v
            ours = output[packed.starts[i] : packed.starts[i + 1]].transpose(0, 1)
            rounded = [x.to(dtype)[None] for x in (q, k, v)]
            theirs = F.scaled_dot_product_attention(rounded[0], rounded[1], rounded[2])[0]
            squares = (root_mean_square(x.double()) for x in (ours - exact, theirs - exact, exact))
            found.append((next(squares), next(squares), next(squares)))
    return found


@needs_kernels
@all_kernels
@settings(max_examples=40)
@given(lengths=LENGTHS, heads=st.integers(1, 5), steps=st.sampled_from([1, 2, 3, 8]), seed=st.integers(0, 99))
def test_outputs_are_those_of_the_formula(
    name: str, request: pytest.FixtureRequest, lengths: list[int], heads: int, steps: int, seed: int
) -> None:
    """As close to float64 as PyTorch's fused kernel or as four roundings, whatever lengths and head sizes."""
    kernels = some_kernels(name, request)
    size = steps * kernels.head_step(DTYPES[name])
    packed = Packed.random(lengths, heads, size, DTYPES[name], seed)
    for ours, theirs, exact in errors(kernels, packed):
        assert ours <= max(1.02 * theirs, 2 * torch.finfo(packed.q.dtype).eps * exact)


@needs_kernels
@all_kernels
@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize("length", [2, 3, 7, 16, 33, 64, 128, 257, 512])
def test_the_error_is_no_larger_than_that_of_pytorch(
    name: str, request: pytest.FixtureRequest, length: int, size: int
) -> None:
    """Over many draws, since of few numbers either may be the closer one by chance."""
    kernels = some_kernels(name, request)
    packed = Packed.random([length] * max(4, 600 // length), 4, size, DTYPES[name], 5)
    squares = np.square(errors(kernels, packed)).mean(0)
    assert np.sqrt(squares[0]) <= 1.01 * np.sqrt(squares[1])


@needs_kernels
@all_kernels
@pytest.mark.parametrize("with_output", [True, False])
@settings(max_examples=15)
@given(lengths=LENGTHS, size=st.sampled_from([32, 64]), data=st.data())
def test_weights_are_those_of_the_formula(
    name: str,
    with_output: bool,
    request: pytest.FixtureRequest,
    lengths: list[int],
    size: int,
    data: st.DataObject,
) -> None:
    """Chosen heads and rows within 1e-5 of float64 (and of float16's own rounding), others untouched."""
    kernels = some_kernels(name, request)
    packed = Packed.random(lengths, 4, size, DTYPES[name], seed=len(lengths))
    observations, made = Observations(len(lengths), 4), []
    for i, length in enumerate(lengths):
        heads = sorted(data.draw(st.sets(st.integers(0, 3), min_size=1)))
        rows = None
        if length and data.draw(st.booleans()):
            rows = np.array(sorted(data.draw(st.sets(st.integers(0, length - 1), min_size=1))), np.int64)
        dtype = data.draw(st.sampled_from([np.float32, np.float16]))
        out = np.full((len(heads), length if rows is None else len(rows), length), -1, dtype)
        finite = np.ones(1, np.bool_)
        observations.weights(
            i, out[None], Slots(heads, 4), None if rows is None else Slots(rows, length), finite
        )
        made.append((i, heads, rows, out, finite))
    output = torch.empty((sum(lengths), 4, size), dtype=packed.q.dtype) if with_output else None
    attend(kernels, packed.q, packed.k, packed.v, packed.starts, output, observations)
    for i, heads, rows, out, finite in made:
        expected = packed.weights(i).numpy()[heads]
        expected = expected if rows is None else expected[:, rows]
        bound = 1e-5 if out.dtype == np.float32 else 1e-5 + 2**-11 * expected
        assert (np.abs(out - expected) <= bound).all()
        assert finite[0]


@needs_kernels
@all_kernels
@settings(max_examples=15)
@given(lengths=LENGTHS, size=st.sampled_from([32, 64]), sharp=st.sampled_from([1.0, 8.0]))
def test_statistics_are_those_of_their_definitions(
    name: str, request: pytest.FixtureRequest, lengths: list[int], size: int, sharp: float
) -> None:
    """Within 2e-5 of `tests.references.measures` over float64 maps, also where attention is sharp."""
    kernels = some_kernels(name, request)
    packed = Packed.random(lengths, 3, size, DTYPES[name], seed=7)
    packed.q.mul_(sharp)
    observations, made = Observations(len(lengths), 3), []
    for i, length in enumerate(lengths):
        special = np.zeros(length, np.float32)
        special[:1] = special[-1:] = 1
        out = np.zeros((2, len(STATISTICS)), np.float32)
        observations.statistics(i, out[None], Slots([0, 2], 3), special)
        made.append((out, special))
    output = torch.empty(packed.q.shape, dtype=packed.q.dtype)
    attend(kernels, packed.q, packed.k, packed.v, packed.starts, output, observations)
    for i, (out, special) in enumerate(made):
        if lengths[i]:
            whole = packed.weights(i).numpy()[None, [0, 2]]
            expected = measures.summary(whole, (special > 0).tolist())
            for j, statistic in enumerate(STATISTICS):
                value = expected[statistic][0]
                open_ = near_ties(whole)[0] if statistic.startswith("argmax") else 0
                assert (np.abs(out[:, j] - value) <= open_ + 2e-5 * np.maximum(1, value)).all(), statistic


@needs_kernels
@all_kernels
@pytest.mark.parametrize("far", [1e1, 1e4, 1e8, 1e12, 1e18])
def test_scores_that_lie_far_apart_are_still_numbers(
    name: str, far: float, request: pytest.FixtureRequest
) -> None:
    """However far below the largest: the softmax is 0 there, and 1 where it is."""
    kernels = some_kernels(name, request)
    dtype = DTYPES[name]
    packed = Packed.random([4], 1, 32, dtype, seed=1)
    q, k = torch.zeros_like(packed.q), torch.zeros_like(packed.k)
    q[..., 0], k[:, 0, 0] = far, -far * torch.tensor([0, 1, 0.7, 0.31]).to(dtype)
    packed = Packed(q, k, torch.empty_like(q).copy_(packed.v), packed.starts)
    observations, out = Observations(1, 1), np.zeros((1, 1, len(STATISTICS)), np.float32)
    observations.statistics(0, out, Slots([0], 1), np.zeros(4, np.float32))
    output = torch.empty(4, 1, 32, dtype=dtype)
    attend(kernels, packed.q, packed.k, packed.v, packed.starts, output, observations)
    exact = packed.weights(0) @ packed.sequence(0)[2]
    assert torch.allclose(output.transpose(0, 1).double(), exact, rtol=2e-2, atol=1e-2)
    assert np.isfinite(out).all()


@needs_kernels
@all_kernels
@pytest.mark.parametrize("where", ["q", "k"])
def test_what_is_not_finite_stays_where_it_is(name: str, where: str, request: pytest.FixtureRequest) -> None:
    """A query that is no number spoils its row, a key every row of its head; others are as ever."""
    kernels = some_kernels(name, request)
    packed = Packed.random([20, 20], 2, 32, DTYPES[name], seed=1)
    getattr(packed, where)[5, 1, 3] = torch.nan
    observations, finite = Observations(2, 2), np.ones(2, np.bool_)
    observations.weights(0, np.zeros((2, 2, 20, 20), np.float16), Slots([0, 1], 2), None, finite)
    output = torch.empty((40, 2, 32), dtype=packed.q.dtype)
    attend(kernels, packed.q, packed.k, packed.v, packed.starts, output, observations)
    spoiled = ~output.isfinite().all(-1)
    assert spoiled.nonzero().tolist() == [[row, 1] for row in ([5] if where == "q" else range(20))]
    assert finite.tolist() == [False, True]


# ------------------------------------------------------------------------------------------- products


@pytest.fixture
def products(request: pytest.FixtureRequest) -> Products:
    """The kernels' own products."""
    found = some_kernels("avx2", request).products
    assert found is not None
    return found


def product(products: Products, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute x Wᵀ + b; numbers behind the result are left as they are."""
    room = torch.full((len(x) * len(weight) + 9,), 7.0)
    output = room[:-9].view(len(x), len(weight))
    multiply(products, x, weight, bias, output)
    assert (room[-9:] == 7).all()
    return output


def operands(rows: int, inputs: int, outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random x (rows, inputs), W (outputs, inputs) and b (outputs,)."""
    generator = torch.Generator().manual_seed(rows * inputs + outputs)
    x, weight = (torch.randn(n, inputs, generator=generator) for n in (rows, outputs))
    return x, weight, torch.randn(outputs, generator=generator)


@needs_kernels
@given(rows=st.integers(0, 40), inputs=st.integers(1, 300), outputs=st.integers(1, 70))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_product_of_any_shape_is_exact(products: Products, rows: int, inputs: int, outputs: int) -> None:
    """Within few roundings of the sum of its terms' sizes."""
    x, weight, bias = operands(rows, inputs, outputs)
    exact = x.double() @ weight.double().T + bias
    sizes = x.double().abs() @ weight.double().abs().T + bias.abs()
    assert ((product(products, x, weight, bias) - exact).abs() <= 1e-6 * sizes).all()


@needs_kernels
@pytest.mark.parametrize(("inputs", "outputs"), [(384, 1152), (1536, 384), (3072, 768)])
def test_long_sums_are_as_exact_as_those_of_pytorch(products: Products, inputs: int, outputs: int) -> None:
    """Partial sums keep the rounding error from growing."""
    x, weight, bias = operands(200, inputs, outputs)
    exact = x.double() @ weight.double().T + bias
    theirs = torch.nn.functional.linear(x, weight, bias) - exact
    assert root_mean_square(product(products, x, weight, bias) - exact) <= root_mean_square(theirs)


@needs_kernels
def test_a_row_has_the_same_bits_in_every_batch(products: Products) -> None:
    """However many rows there are, and on however many threads."""
    x, weight, bias = operands(300, 400, 100)
    whole = product(products, x, weight, bias)
    for start, stop in [(0, 1), (5, 8), (17, 29), (100, 300)]:
        assert torch.equal(product(products, x[start:stop], weight, bias), whole[start:stop])
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(product(products, x, weight, bias), whole)
    finally:
        torch.set_num_threads(threads)


@needs_kernels
@pytest.mark.parametrize(
    "wrong",
    [
        *({name: None} for name in ("x", "panels", "bias", "output")),
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
    panels, output = lay_out(weight, products.columns), torch.zeros(2, 16)
    good = Product(x.data_ptr(), panels.data_ptr(), bias.data_ptr(), output.data_ptr(), 2, 8, 16, 0)
    assert products.multiply(byref(good)) == 0
    for name, value in wrong.items():
        setattr(good, name, value)
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


def activated(activation: Activation, x: Tensor, request: pytest.FixtureRequest) -> Tensor:
    """What the kernels make of x (N,), float32, the bias of a product that is 0."""
    products = some_kernels("avx2", request).products
    assert products is not None
    room = torch.full((len(x) + 9,), 7.0)
    if len(x):
        multiply(
            products, torch.zeros(1, 1), torch.zeros(len(x), 1), x, room[: len(x)].view(1, -1), activation
        )
    assert (room[len(x) :] == 7).all()
    return room[: len(x)]


@needs_kernels
@all_activations
@pytest.mark.parametrize("spread", [0, 1, 4])
def test_an_activation_is_as_exact_as_that_of_pytorch(
    activation: Activation, spread: float, request: pytest.FixtureRequest
) -> None:
    """On a dense grid, and on random numbers: neither the largest error nor the mean one is larger."""
    drawn = torch.randn(500_003, generator=torch.Generator().manual_seed(2)) * spread
    x = drawn if spread else torch.linspace(-16, 16, 500_003)
    exact = EXACT[activation](x.double())
    ours = activated(activation, x, request).double() - exact
    theirs = activate(x, activation).double() - exact
    assert ours.abs().max() <= theirs.abs().max()
    assert root_mean_square(ours) <= root_mean_square(theirs)


@needs_kernels
@all_activations
def test_the_tail_of_an_activation_keeps_its_digits(
    activation: Activation, request: pytest.FixtureRequest
) -> None:
    """Where it nears 0 too: PyTorch's GELU is 0 below -5.5."""
    x = torch.linspace(-9, -1e-6, 10_007)
    exact = EXACT[activation](x.double())
    ours = activated(activation, x, request).double()
    assert ((ours - exact).abs() <= 2e-5 * exact.abs()).all()


@needs_kernels
@all_activations
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1003])
def test_an_activation_takes_any_size_and_any_number(
    activation: Activation, size: int, request: pytest.FixtureRequest
) -> None:
    """What is not finite becomes what PyTorch makes of it, in whole vectors and beside them."""
    strange = [np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-40, -1e-40, 0.0, -0.0, 1.0, -100.0]
    x = torch.tensor([strange[i % len(strange)] for i in range(size)])
    ours = activated(activation, x, request)
    assert torch.allclose(ours, activate(x, activation), rtol=1e-6, atol=1e-37, equal_nan=True)
