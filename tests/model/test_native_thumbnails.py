"""Thumbnails pooled in the kernels, against maps in float64 that numpy pools cell by cell."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.pytorch.kernels.observations import Observations, Slots
from tests.model.test_native import DTYPES, LENGTHS, Packed, all_kernels
from tests.model.test_native_blocks import masked
from tests.support.kernel import FLOAT32, attend, kernels_of, needs_kernels

Spans = NDArray[np.int32]


class Cells:
    """Random cells of a map of `length` rows and columns, and the room for what a kernel finds in them."""

    def __init__(self, draw: Any, length: int, heads: int) -> None:
        self.heads = sorted(draw(st.sets(st.integers(0, heads - 1), min_size=1)))
        self.rows, columns = (draw(st.integers(1, 5)) for _ in range(2))
        self.of_row = np.array(
            draw(st.lists(st.integers(-1, self.rows - 1), min_size=length, max_size=length))
        )
        edge = st.integers(0, length)
        span = st.tuples(st.integers(0, columns - 1), edge, edge).map(lambda one: (one[0], *sorted(one[1:])))
        self.spans: Spans = np.array(draw(st.lists(span, max_size=6)), np.int32).reshape(-1, 3)
        self.out = np.full((len(self.heads), self.rows, columns), -np.inf, np.float32)

    def record(self, observations: Observations, sequence: int, heads: int) -> None:
        """Have a kernel fill them for a sequence."""
        inside = np.flatnonzero(self.of_row >= 0)
        rows = Slots(inside, len(self.of_row), self.of_row[inside])
        observations.thumbnails(sequence, self.out[None], Slots(self.heads, heads), rows, self.spans)

    def expected(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The largest of the weights (H, N, N) in each cell; −∞ where there is none, 0 where no key is."""
        found = np.full(self.out.shape, -np.inf)
        for row, cell in enumerate(self.of_row):
            for column, start, stop in self.spans.tolist() if cell >= 0 else ():
                largest = weights[self.heads, row, start:stop].max(-1, initial=0)
                found[:, cell, column] = np.maximum(found[:, cell, column], largest)
        return found


@needs_kernels
@all_kernels
@settings(max_examples=25)
@given(
    lengths=LENGTHS,
    window=st.sampled_from([0, 0, 1, 8, 20]),
    causal=st.booleans(),
    with_output=st.booleans(),
    data=st.data(),
)
def test_cells_are_the_largest_weights_of_the_formula(
    name: str, lengths: list[int], window: int, causal: bool, with_output: bool, data: st.DataObject
) -> None:
    """Within 1e-5 of float64 for any heads, rows and keys, also where windows hide most; others stay −∞."""
    kernels = kernels_of(name)
    packed = Packed.random(lengths, 3, 32, DTYPES[name], seed=len(lengths))
    packed.q.mul_(3)
    observations = Observations(len(lengths), 3)
    cells = [Cells(data.draw, length, 3) for length in lengths]
    for i, one in enumerate(cells):
        one.record(observations, i, 3)
    output = torch.empty(packed.q.shape, dtype=packed.q.dtype) if with_output else None
    hiding = {"window": window, "causal": causal}
    attend(kernels, packed.q, packed.k, packed.v, packed.starts, output, observations, **hiding)
    for i, one in enumerate(cells):
        weights = torch.softmax(masked(packed.scores(i), window, causal), -1).numpy()
        expected = one.expected(weights)
        inside = expected > -np.inf
        assert (inside == (one.out > -np.inf)).all()
        assert np.abs(one.out[inside] - expected[inside]).max(initial=0) <= 1e-5


@needs_kernels
@all_kernels
@pytest.mark.parametrize("length", [64, 257, 700])
def test_cells_are_the_largest_numbers_of_the_map_itself(name: str, length: int) -> None:
    """To the last bit, as pooling the map that the same pass writes would find them."""
    kernels = kernels_of(name)
    packed = Packed.random([length], 2, 32, DTYPES[name], seed=2)
    packed.q.mul_(3)
    maps, out = np.empty((2, length, length), np.float32), np.full((2, 16, 16), -np.inf, np.float32)
    bounds = np.arange(17) * length // 16
    spans = np.stack([np.arange(16), bounds[:-1], bounds[1:]], 1).astype(np.int32)
    of_row = np.repeat(np.arange(16), np.diff(bounds))
    observations, every = Observations(1, 2), Slots([0, 1], 2)
    observations.weights(0, maps[None], every, None)
    observations.thumbnails(0, out[None], every, Slots(np.arange(length), length, of_row), spans)
    attend(kernels, packed.q, packed.k, packed.v, packed.starts, None, observations, window=100)
    pooled = np.maximum.reduceat(np.maximum.reduceat(maps, bounds[:-1], 1), bounds[:-1], 2)
    assert (out == pooled).all()


@needs_kernels
@all_kernels
def test_a_row_that_is_no_number_spoils_its_cells(name: str) -> None:
    """All cells of its row of cells, as pooling the map would; and no other."""
    kernels = kernels_of(name)
    packed = Packed.random([20], 2, 32, DTYPES[name], seed=1)
    packed.q[7, 1, 3] = torch.nan
    out = np.full((2, 5, 3), -np.inf, np.float32)
    spans = np.array([[0, 0, 4], [1, 4, 9], [2, 9, 20]], np.int32)
    observations, every = Observations(1, 2), Slots([0, 1], 2)
    observations.thumbnails(0, out[None], every, Slots(np.arange(20), 20, np.arange(20) // 4), spans)
    attend(kernels, packed.q, packed.k, packed.v, packed.starts, None, observations)
    spoiled = np.isnan(out)
    assert spoiled[1, 1].all()
    assert spoiled.sum() == 3


@needs_kernels
def test_cells_outside_of_a_thumbnail_are_refused() -> None:
    """Neither a row's cell, nor a key's, nor a key may lie beyond what there is."""
    kernels = kernels_of(FLOAT32)
    packed = Packed.random([8], 1, 32, torch.float32, seed=1)
    for of_row, span in ((2, (0, 0, 8)), (0, (2, 0, 8)), (0, (0, 0, 9)), (0, (-1, 0, 8)), (0, (0, 5, 4))):
        observations, out = Observations(1, 1), np.zeros((1, 1, 2, 2), np.float32)
        rows = Slots(np.arange(8), 8, np.full(8, of_row))
        observations.thumbnails(0, out, Slots([0], 1), rows, np.array([span], np.int32))
        with pytest.raises(ValueError, match="shapes"):
            attend(kernels, packed.q, packed.k, packed.v, packed.starts, None, observations)
