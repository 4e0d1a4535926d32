"""The compiled kernels against float64, in every precision and with every set of instructions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from model.contract import STATISTICS
from model.pytorch.kernels.library import Kernels
from model.pytorch.kernels.observations import Observations, Slots
from tests.references import measures
from tests.references.comparing import near_ties
from tests.support.emulated_tiles import EMULATED
from tests.support.kernel import STEPS, attend, kernels_of, needs_kernels

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name.split("_")[0]) for name in (*STEPS, EMULATED)}
all_kernels = pytest.mark.parametrize("name", list(DTYPES))
EDGES = [0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 257]
LENGTHS = st.lists(st.sampled_from(EDGES) | st.integers(0, 80), min_size=1, max_size=6)


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
    name: str, lengths: list[int], heads: int, steps: int, seed: int
) -> None:
    """As close to float64 as PyTorch's fused kernel or as four roundings, whatever lengths and head sizes."""
    kernels = kernels_of(name)
    size = steps * kernels.head_step
    packed = Packed.random(lengths, heads, size, DTYPES[name], seed)
    for ours, theirs, exact in errors(kernels, packed):
        assert ours <= max(1.02 * theirs, 2 * torch.finfo(packed.q.dtype).eps * exact)


@pytest.mark.in_turns
@needs_kernels
@all_kernels
@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize("length", [2, 3, 7, 16, 33, 64, 128, 257, 512])
def test_the_error_is_no_larger_than_that_of_pytorch(name: str, length: int, size: int) -> None:
    """Over many draws, since of few numbers either may be the closer one by chance.

    An error like that of rounding the result once is no error: it depends on the order of three sums.
    """
    kernels = kernels_of(name)
    packed = Packed.random([length] * max(4, 600 // length), 4, size, DTYPES[name], 5)
    squares = np.square(errors(kernels, packed)).mean(0)
    ours, theirs, exact = np.sqrt(squares)
    assert ours <= max(1.01 * theirs, torch.finfo(packed.q.dtype).eps * exact)


@needs_kernels
@all_kernels
@pytest.mark.parametrize("with_output", [True, False])
@settings(max_examples=15)
@given(lengths=LENGTHS, size=st.sampled_from([32, 64]), data=st.data())
def test_weights_are_those_of_the_formula(
    name: str,
    with_output: bool,
    lengths: list[int],
    size: int,
    data: st.DataObject,
) -> None:
    """Chosen heads and rows within 1e-5 of float64 (and of float16's own rounding), others untouched."""
    kernels = kernels_of(name)
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
    name: str, lengths: list[int], size: int, sharp: float
) -> None:
    """Within 2e-5 of `tests.references.measures` over float64 maps, also where attention is sharp."""
    kernels = kernels_of(name)
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
@settings(max_examples=15)
@given(lengths=LENGTHS, share=st.floats(0, 1), window=st.sampled_from([0, 300]))
def test_hidden_tokens_see_the_others_and_are_seen_by_none(
    name: str, lengths: list[int], share: float, window: int
) -> None:
    """The last keys of each sequence weigh 0, in outputs, maps and statistics, for every query."""
    kernels = kernels_of(name)
    packed = Packed.random(lengths, 2, 32, DTYPES[name], seed=3)
    hidden = np.array([int(share * max(0, length - 1)) for length in lengths], np.int64)
    observations, made = Observations(len(lengths), 2), []
    for i, length in enumerate(lengths):
        maps, out = np.full((2, length, length), -1, np.float32), np.zeros((2, len(STATISTICS)), np.float32)
        observations.weights(i, maps[None], Slots([0, 1], 2), None)
        observations.statistics(i, out[None], Slots([0, 1], 2), np.zeros(length, np.float32))
        made.append((maps, out))
    output = torch.empty(packed.q.shape, dtype=packed.q.dtype)
    others = {"unattended": hidden.ctypes.data, "window": window}
    attend(kernels, packed.q, packed.k, packed.v, packed.starts, output, observations, **others)
    for i, (maps, out) in enumerate(made):
        scores = packed.scores(i)
        scores[:, :, lengths[i] - hidden[i] :] = -torch.inf
        exact = torch.softmax(scores, -1)
        assert np.abs(maps - exact.numpy()).max(initial=0) <= 1e-5
        mixed = output[packed.starts[i] : packed.starts[i + 1]].transpose(0, 1).double()
        assert torch.allclose(mixed, exact @ packed.sequence(i)[2], rtol=2e-2, atol=2e-2)
        if lengths[i]:
            expected = measures.summary(exact.numpy()[None], [False] * lengths[i])
            for statistic in STATISTICS[:6]:
                found = out[:, STATISTICS.index(statistic)]
                assert np.abs(found - expected[statistic][0]).max() <= 2e-5 * max(1, lengths[i]), statistic


@needs_kernels
@all_kernels
@pytest.mark.parametrize("far", [1e1, 1e4, 1e8, 1e12, 1e18])
def test_scores_that_lie_far_apart_are_still_numbers(name: str, far: float) -> None:
    """However far below the largest: the softmax is 0 there, and 1 where it is."""
    kernels = kernels_of(name)
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
def test_what_is_not_finite_stays_where_it_is(name: str, where: str) -> None:
    """A query that is no number spoils its row, a key every row of its head; others are as ever."""
    kernels = kernels_of(name)
    packed = Packed.random([20, 20], 2, 32, DTYPES[name], seed=1)
    getattr(packed, where)[5, 1, 3] = torch.nan
    observations, finite = Observations(2, 2), np.ones(2, np.bool_)
    observations.weights(0, np.zeros((2, 2, 20, 20), np.float16), Slots([0, 1], 2), None, finite)
    output = torch.empty((40, 2, 32), dtype=packed.q.dtype)
    attend(kernels, packed.q, packed.k, packed.v, packed.starts, output, observations)
    spoiled = ~output.isfinite().all(-1)
    assert spoiled.nonzero().tolist() == [[row, 1] for row in ([5] if where == "q" else range(20))]
    assert finite.tolist() == [False, True]
