"""From hidden states to one vector, and what the vector's cosine means."""

from collections.abc import Callable
from itertools import accumulate

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from model.arrays import NUMPY, Operations
from model.contract import PoolingMode, SentenceWant
from model.encoder.attention import similarity_scores
from model.heads.pooling import Bags
from model.heads.vectors import finish
from model.pytorch.tensor_operations import TensorOperations
from tests.references.comparing import distance
from tests.support.product import Array

TENSORS = TensorOperations(torch.device("cpu"))
MODES: tuple[PoolingMode, ...] = ("cls", "max", "mean", "mean_sqrt_len", "weighted_mean", "last")


def states(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def pool_rectangle(
    shape: torch.Size, rows: Tensor | Array, modes: tuple[PoolingMode, ...], skip: int, ops: Operations
) -> Tensor:
    count, length = shape[:2]
    bags = Bags([i * length for i in range(count)], [length] * count, skip, ops)
    pooled = bags.pool(lambda _: rows, SentenceWant(modes))
    assert pooled.dtype == np.float32
    return torch.from_numpy(pooled)


def pool(hidden: Tensor, modes: tuple[PoolingMode, ...], skip: int = 0) -> Tensor:
    """Pool a (B, N, C) rectangle, laid out as a packed batch."""
    return pool_rectangle(hidden.shape, hidden.flatten(0, 1), modes, skip, TENSORS)


def pool_arrays(hidden: Tensor, modes: tuple[PoolingMode, ...], skip: int = 0) -> Tensor:
    """The same in numpy, which has no bfloat16."""
    return pool_rectangle(hidden.shape, hidden.flatten(0, 1).float().numpy(), modes, skip, NUMPY)


both = pytest.mark.parametrize("pool", [pool, pool_arrays], ids=["tensors", "arrays"])
Pool = Callable[..., Tensor]


def by_mask(hidden: Array, mode: PoolingMode, skip: int) -> Array:
    """sentence-transformers' definition: a mask over (N, C) from which the prompt is taken out."""
    mask = np.array([0.0 if i < skip else 1.0 for i in range(len(hidden))])[:, None]
    position = np.arange(1, len(hidden) + 1)[:, None]
    first = int(mask.argmax())
    results = {
        "cls": hidden[first],
        "max": np.where(mask == 1, hidden, -np.inf).max(0),
        "mean": (hidden * mask).sum(0) / mask.sum(),
        "mean_sqrt_len": (hidden * mask).sum(0) / np.sqrt(mask.sum()),
        "weighted_mean": (hidden * mask * position).sum(0) / (mask * position).sum(),
        "last": hidden[-1],
    }
    return np.asarray(results[mode])


@both
@pytest.mark.parametrize("skip", [0, 3])
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_follows_the_definition_over_a_mask(pool: Pool, mode: PoolingMode, skip: int) -> None:
    """Each mode is what sentence-transformers computes, a prompt left out but still counted."""
    hidden = states(4, 7, 5)
    expected = [by_mask(sequence.double().numpy(), mode, skip) for sequence in hidden]
    pooled = pool(hidden, (mode,), skip)
    assert pooled.shape == (4, 5)
    assert distance(pooled, expected) < 1e-6


@both
def test_several_modes_are_concatenated_in_their_order(pool: Pool) -> None:
    """Mean and max of C components are one vector of 2·C, in the order given."""
    hidden = states(2, 3, 4)
    expected = torch.cat((hidden.amax(1), hidden.mean(1)), dim=1)
    assert distance(pool(hidden, ("max", "mean")), expected) < 1e-6


@pytest.mark.parametrize("ops", [TENSORS, NUMPY], ids=["tensors", "arrays"])
def test_layers_are_concatenated_in_their_order(ops: Operations) -> None:
    """Each layer is read once, as often as it is listed, with all its modes side by side."""
    layers = {number: states(4, 2) + number for number in (3, 5)}
    read = []

    def give(layer: int) -> Tensor | Array:
        read.append(layer)
        return layers[layer] if ops is TENSORS else layers[layer].numpy()

    want = SentenceWant(("last", "max"), layers=(5, 3, 5))
    pooled = Bags([0], [4], 0, ops).pool(give, want)
    expected = [x for layer in (5, 3, 5) for x in (layers[layer][-1], layers[layer].amax(0))]
    assert distance(pooled, torch.cat(expected)[None]) == 0
    assert sorted(read) == [3, 5]


@given(lengths=st.lists(st.integers(3, 20), min_size=1, max_size=8), data=st.data())
def test_sequences_of_any_length_and_place_are_pooled_apart(lengths: list[int], data: st.DataObject) -> None:
    """Some sequences of a packed batch, in any order, are pooled as if each were alone."""
    hidden = states(sum(lengths), 4)
    starts = [0, *accumulate(lengths)]
    chosen = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, unique=True))
    skip = data.draw(st.integers(0, 2))
    counts = [lengths[i] for i in chosen]
    for mode in MODES:
        alone = [hidden[starts[i] : starts[i] + lengths[i]].double().numpy() for i in chosen]
        expected = [by_mask(x, mode, skip) for x in alone]
        for ops, rows in ((TENSORS, hidden), (NUMPY, hidden.numpy())):
            bags = Bags([starts[i] for i in chosen], counts, skip, ops)
            pooled = bags.pool({0: rows}.__getitem__, SentenceWant((mode,), layers=(0,)))
            assert distance(pooled, expected) < 1e-6


def test_a_sequence_of_which_nothing_is_left_cannot_be_pooled() -> None:
    """Leaving out as many tokens as there are is a fault of the caller, said so by both."""
    hidden = states(1, 3, 2)
    for one in (pool, pool_arrays):
        with pytest.raises(ValueError, match="no tokens to pool"):
            one(hidden, ("mean",), 3)


@both
def test_pooling_is_in_float32(pool: Pool) -> None:
    """A long mean of bfloat16 states does not lose its digits."""
    hidden = torch.full((1, 5000, 2), 1.0, dtype=torch.bfloat16)
    pooled = pool(hidden, ("mean", "mean_sqrt_len"))
    assert pooled.dtype == torch.float32
    assert distance(pooled, [[1, 1, 5000**0.5, 5000**0.5]]) < 1e-3


def test_a_vector_is_cut_first_and_normalised_then() -> None:
    """Matryoshka: the first k components are given unit length, not cut out of a unit vector."""
    some = np.array([[3.0, 4.0, 12.0], [0.0, 0.0, 0.0]], np.float32)
    assert distance(finish(some, 2, normalize=True), [[0.6, 0.8], [0.0, 0.0]]) < 1e-6
    assert finish(some, 2, normalize=False).tolist() == [[3.0, 4.0], [0.0, 0.0]]
    assert np.array_equal(finish(some, None, normalize=False), some)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_cosine_similarity_does_not_depend_on_scale(left: float, right: float) -> None:
    """a·b / (‖a‖‖b‖): the product of normalised vectors, unchanged when either is stretched."""
    a, b = states(2, 1, 6)
    x, y = a.double().numpy()[0], b.double().numpy()[0]
    expected = x @ y / (np.linalg.norm(x) * np.linalg.norm(y))
    assert abs(expected) > 0.05
    unit = (
        finish((a * left).numpy(), None, normalize=True) @ finish((b * right).numpy(), None, normalize=True).T
    )
    assert distance(unit, [[expected]]) < 1e-6
    assert distance(similarity_scores(a * left, b * right, "cosine"), [[expected]]) < 1e-6


def test_cosine_similarity_is_one_for_the_same_direction() -> None:
    """Same direction 1, opposite −1, right angle 0."""
    a = torch.tensor([[2.0, 0.0], [-5.0, 0.0], [0.0, 0.1]])
    assert distance(similarity_scores(a[:1], a, "cosine"), [[1.0, -1.0, 0.0]]) < 1e-6
