"""What interventions change in the compiled attention, with every set of instructions."""

from ctypes import c_void_p
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.contract import STATISTICS
from model.encoder.attending.edits import Edits
from model.encoder.interventions import BlockedEdges, HeadScale, Interventions
from model.encoder.packing import Packing
from model.pytorch.kernels.observations import Observations, Slots
from model.pytorch.kernels.passes import Changes
from tests.model.test_native import DTYPES, LENGTHS, Packed, all_kernels
from tests.model.test_native_blocks import masked, rounding
from tests.references import measures
from tests.references.comparing import distance, near_ties
from tests.support.interventions import interventions_of, random_changes
from tests.support.kernel import attend, kernels_of, needs_kernels

HEADS = 3


def address_of(changed: Changes) -> int:
    """Where the table of the first layer is."""
    return c_void_p.from_address(changed.address).value or 0


def expected(packed: Packed, index: int, one: Interventions, hide: tuple[int, bool]) -> tuple[Tensor, Tensor]:
    """The weights (H, N, N) and outputs (N, H, D) of a sequence in float64, edge by edge."""
    scores = masked(packed.scores(index), *hide)
    for edges in one.edges:
        for head in edges.heads:
            for query in edges.queries:
                scores[head, query, list(edges.keys)] = -torch.inf
    weights = torch.softmax(scores, -1).nan_to_num(nan=0)
    mixed = (weights @ packed.sequence(index)[2]).transpose(0, 1).clone()
    averaged = {head for change in one.heads if change.mean for head in change.heads}
    for head in averaged:
        mixed[:, head] = mixed[:, head].mean(0)
    for change in one.heads:
        if not change.mean:
            mixed[:, list(change.heads)] *= change.scale
    return weights, mixed


@needs_kernels
@all_kernels
@settings(max_examples=15)
@given(lengths=LENGTHS, window=st.sampled_from([0, 0, 2, 20]), causal=st.booleans(), seed=st.integers(0, 999))
def test_changed_sequences_are_those_of_the_formula_and_the_others_as_before(
    name: str, lengths: list[int], window: int, causal: bool, seed: int
) -> None:
    """Outputs, maps and statistics; every second sequence has nothing changed, and the same bits."""
    check(name, lengths, window, causal=causal, seed=seed)


@pytest.mark.thorough
@needs_kernels
@all_kernels
@pytest.mark.parametrize(("window", "causal"), [(0, False), (0, True), (40, False), (600, False)])
def test_long_sequences_are_changed_alike(name: str, window: int, causal: bool) -> None:
    """However attention goes through their keys, observed and not, alone and beside others."""
    check(name, [1300], window, causal=causal, seed=1)
    check(name, [700, 20, 1100], window, causal=causal, seed=2)


def check(name: str, lengths: list[int], window: int, *, causal: bool, seed: int) -> None:
    """Compare a batch with the formula."""
    kernels, dtype, random = kernels_of(name), DTYPES[name], np.random.default_rng(seed)
    size = kernels.head_step * 2
    packed = Packed.random(lengths, HEADS, size, dtype, seed)
    changes = [
        interventions_of(random_changes(random, 1, HEADS, 1, length)) if length and i % 2 == 0 else None
        for i, length in enumerate(lengths)
    ]
    changed = Changes(Edits(changes, Packing.of(lengths)), range(1), len(lengths), HEADS)
    others: dict[str, Any] = {"window": window, "causal": causal}
    plain, output = (torch.full((sum(lengths), HEADS, size), 7.0, dtype=dtype) for _ in range(2))
    attend(kernels, packed.q, packed.k, packed.v, packed.starts, plain, **others)
    table = address_of(changed)
    every = Slots(list(range(HEADS)), HEADS)
    for observed in (None, "statistics", "all"):
        observations, made = Observations(len(lengths), HEADS), []
        for i, length in enumerate(lengths):
            maps, out = np.full((HEADS, length, length), -1, np.float32), np.zeros((HEADS, 10), np.float32)
            special = np.zeros(length, np.float32)
            special[:1] = 1
            if observed == "all":
                observations.weights(i, maps[None], every, None, np.ones(1, np.bool_))
            observations.statistics(i, out[None], every, special)
            made.append((maps, out, special > 0))
        attend(
            kernels,
            packed.q,
            packed.k,
            packed.v,
            packed.starts,
            output,
            observations if observed else None,
            interventions=table,
            **others,
        )
        for i, one in enumerate(changes):
            rows = slice(*packed.starts[i : i + 2].tolist())
            if one is None:
                assert torch.equal(output[rows], plain[rows])
                continue
            weights, mixed = expected(packed, i, one, (window, causal))
            assert distance(output[rows].float(), mixed) <= 20 * rounding(dtype)
            if observed:
                maps, out, is_special = made[i]
                assert observed != "all" or distance(maps, weights) <= 1e-5
                exact = measures.summary(weights.numpy()[None], is_special)
                for j, statistic in enumerate(STATISTICS):
                    value = exact[statistic][0]
                    open_ = near_ties(weights.numpy()) if statistic.startswith("argmax") else 0
                    bound = open_ + 2e-5 * np.maximum(1, value)
                    assert (np.abs(out[:, j] - value) <= bound).all(), statistic


@needs_kernels
@pytest.mark.parametrize("length", [6, 4])
def test_edges_of_a_sequence_of_another_length_are_refused(length: int) -> None:
    """Nothing is read outside the words, whatever a caller says."""
    (name, dtype), *_ = DTYPES.items()
    kernels = kernels_of(name)
    packed = Packed.random([5, 9], HEADS, kernels.head_step, dtype, 0)
    wrong = Interventions(edges=(BlockedEdges((0,), (0,), (0,), (0,)),))
    changed = Changes(Edits([wrong, None], Packing.of([length, 9])), range(1), 2, HEADS)
    table = address_of(changed)
    output = torch.empty(packed.q.shape, dtype=dtype)
    with pytest.raises(ValueError, match="shapes do not match"):
        attend(kernels, packed.q, packed.k, packed.v, packed.starts, output, interventions=table)


@needs_kernels
@pytest.mark.parametrize("count", [31, 32, 33, 64, 70])
def test_any_number_of_edges_is_blocked(count: int) -> None:
    """They are bits of words of 32: those of the last word count like those of the first."""
    (name, dtype), *_ = DTYPES.items()
    kernels, random = kernels_of(name), np.random.default_rng(count)
    packed = Packed.random([90], HEADS, kernels.head_step, dtype, 0)
    every = [
        BlockedEdges((int(random.integers(2)),), (i % HEADS,), tuple(range(i, 90, 2)), (89 - i,))
        for i in range(count)
    ]
    one = Interventions(edges=(*every[:-1], BlockedEdges((0,), (1,), (3,), (0, 7))))
    changed = Changes(Edits([one], Packing.of([90])), range(1), 1, HEADS)
    output = torch.empty(packed.q.shape, dtype=dtype)
    table = address_of(changed)
    attend(kernels, packed.q, packed.k, packed.v, packed.starts, output, interventions=table)
    here = Interventions(edges=tuple(edges for edges in one.edges if 0 in edges.layers))
    _, mixed = expected(packed, 0, here, (0, False))
    assert distance(output.float(), mixed) <= 20 * rounding(dtype)


@needs_kernels
def test_scales_multiply_after_the_mean() -> None:
    """A head named twice: the mean, times both scales."""
    (name, dtype), *_ = DTYPES.items()
    kernels = kernels_of(name)
    packed = Packed.random([70], HEADS, kernels.head_step, dtype, 0)
    one = Interventions((HeadScale(0, (1,), 3.0), HeadScale(0, (1, 2), mean=True), HeadScale(0, (1,), 0.5)))
    changed = Changes(Edits([one], Packing.of([70])), range(1), 1, HEADS)
    plain, output = (torch.empty(packed.q.shape, dtype=dtype) for _ in range(2))
    attend(kernels, packed.q, packed.k, packed.v, packed.starts, plain)
    table = address_of(changed)
    attend(kernels, packed.q, packed.k, packed.v, packed.starts, output, interventions=table)
    means = plain.double().mean(0)
    assert torch.equal(output[:, 0], plain[:, 0])
    for head, scale in ((1, 1.5), (2, 1.0)):
        assert distance(output[:, head].double(), (means[head] * scale).expand(70, -1)) <= 4 * rounding(dtype)
