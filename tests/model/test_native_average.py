"""The mean over heads that kernels add up, against maps in float64; and rollouts, followed backwards too."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.checkpoints.checkpoint import load_checkpoint
from model.choices import Axis
from model.contract import AttentionWant, Batch, Want
from model.pytorch.backend import TorchBackend
from model.pytorch.kernels.observations import Observations, Slots
from tests.model.test_native import DTYPES, LENGTHS, Packed, all_kernels
from tests.model.test_native_blocks import masked
from tests.references.comparing import distance
from tests.references.families import write_model
from tests.support.kernel import FLOAT32, attend, kernels_of, needs_kernels


@needs_kernels
@all_kernels
@settings(max_examples=25)
@given(
    lengths=LENGTHS,
    long=st.sampled_from([0, 300, 700]),
    window=st.sampled_from([0, 0, 1, 8, 20, 400]),
    causal=st.booleans(),
    data=st.data(),
)
def test_the_sum_over_heads_is_that_of_the_formula(
    name: str, lengths: list[int], long: int, window: int, causal: bool, data: st.DataObject
) -> None:
    """Within 1e-5 of float64 for any shares, of chosen rows; sequences without shares are left alone."""
    lengths = [*lengths, long]
    packed = Packed.random(lengths, 3, 32, DTYPES[name], seed=len(lengths))
    packed.q.mul_(3)
    observations, made = Observations(len(lengths), 3), []
    for i, length in enumerate(lengths):
        if not length or (i < len(lengths) - 1 and data.draw(st.booleans())):
            continue
        shares = np.array(
            data.draw(st.lists(st.sampled_from([0, 0.25, 1]), min_size=3, max_size=3)), np.float32
        )
        rows = sorted(data.draw(st.sets(st.integers(0, length - 1), min_size=1)))
        out = np.zeros((len(rows), length), np.float32)
        observations.mean(i, out[None], shares, Slots(rows, length))
        made.append((i, shares, rows, out))
    if not made:
        return
    kernels, hiding = kernels_of(name), {"window": window, "causal": causal}
    attend(kernels, packed.q, packed.k, packed.v, packed.starts, None, observations, **hiding)
    for i, shares, rows, out in made:
        weights = torch.softmax(masked(packed.scores(i), window, causal), -1).numpy()
        assert np.abs(out - np.einsum("h,hij->ij", shares, weights)[rows]).max() <= 1e-5


@needs_kernels
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_sums_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    """To the last bit, though rows are shared out among them."""
    packed = Packed.random([900], 3, 32, torch.float32, seed=1)
    found, before = [], torch.get_num_threads()
    try:
        for number in (1, threads):
            torch.set_num_threads(number)
            observations, out = Observations(1, 3), np.zeros((1, 900, 900), np.float32)
            shares = np.array([0.3, 0.2, 0.5], np.float32)
            observations.mean(0, out, shares, Slots(np.arange(900), 900))
            attend(kernels_of(FLOAT32), packed.q, packed.k, packed.v, packed.starts, None, observations)
            found.append(out)
    finally:
        torch.set_num_threads(before)
    assert (found[0] == found[1]).all()


@needs_kernels
def test_sums_are_refused_beside_outputs() -> None:
    """The kernels would compute them for none of the sequences."""
    packed = Packed.random([8], 1, 32, torch.float32, seed=1)
    observations, out = Observations(1, 1), np.zeros((1, 8, 8), np.float32)
    observations.mean(0, out, np.ones(1, np.float32), Slots(np.arange(8), 8))
    with pytest.raises(ValueError, match="shapes"):
        attend(
            kernels_of(FLOAT32),
            packed.q,
            packed.k,
            packed.v,
            packed.starts,
            torch.empty_like(packed.q),
            observations,
        )


@pytest.fixture(scope="module", params=["Bert", "ModernBert"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that reads long texts; of ModernBERT, two of its four layers have windows."""
    place = tmp_path_factory.mktemp(request.param)
    sizes: dict[str, Any] = {
        "hidden_size": 64,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 1300,
    }
    further: dict[str, Any] = {
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    }
    more = further | {"local_attention": 32} if request.param == "ModernBert" else {}
    write_model(place, request.param, num_hidden_layers=4, **sizes, **more)
    return place


@pytest.mark.in_turns
@pytest.mark.parametrize("native", [pytest.param(True, marks=needs_kernels), False])
@pytest.mark.parametrize(
    "queries", [None, Axis((7,)), Axis((-1 % 1200, 3, 3)), Axis((1, 0), (0, 1, 2, 3), (0, 2))], ids=str
)
@pytest.mark.parametrize("length", [600, pytest.param(1200, marks=pytest.mark.thorough)])
def test_a_rollout_is_the_product_of_the_maps(
    folder: Path, length: int, queries: Axis | None, native: bool
) -> None:
    """Of one row, of words and of all; of texts carried forwards, and of those followed backwards."""
    backend = TorchBackend(load_checkpoint(folder), device="cpu", dtype="float32", native=native)
    if queries is not None and max(queries.tokens or queries.positions) >= length:
        queries = Axis(tuple(i % length for i in queries.positions))
    ids = np.random.default_rng(1).integers(5, 90, 2 * length + 9)
    heads = (1, 0, 1)
    rollout = Want(attention=AttentionWant((3, 1), heads, aggregate="rollout", queries=queries))
    maps = Want(attention=AttentionWant((0, 1, 2, 3), heads))
    starts = np.array([0, 9, 9 + length, 9 + 2 * length])
    ids[9 + length :] = ids[9 : 9 + length]
    batch = Batch(ids, np.zeros_like(ids), starts, (maps, rollout, maps))
    _, found, observed = backend.run(batch)
    assert observed.attention is not None
    expected = np.eye(length)
    for layer in observed.attention.astype(np.float64):
        expected = (layer.mean(0) + np.eye(length)) / 2 @ expected
    if queries is not None and queries.tokens is not None:
        expected = np.stack([expected[2:4].mean(0), expected[:2].mean(0)])
    elif queries is not None:
        expected = expected[list(queries.positions)]
    assert distance(found.attention, expected) <= 1e-6
