"""The logit lens: which words a model predicts from each hidden state, against `transformers`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model.arrays import NUMPY
from model.checkpoints.checkpoint import load_checkpoint
from model.choices import LensWant
from model.contract import AttentionWant, Backend, HeadInfo, SentenceWant, SparseWant, Want
from model.encoder.interventions import Interventions
from model.errors import Stopped
from model.heads.predictor import LayerNorm, Linear, Predictor, RmsNorm
from model.inspection import lens
from model.inspection.lens import lens_words
from model.progress import Progress
from model.pytorch.backend import TorchBackend
from model.pytorch.tensor_operations import TensorOperations
from tests.references.comparing import distance, relative_distance
from tests.references.families import VOCABULARY, Written
from tests.references.logit_lens import largest_words, lens_logits, softmax
from tests.support.backends import PLAIN, load_checkpoint_as
from tests.support.families import EXACT, sample, write_small
from tests.support.product import run

Array = NDArray[Any]
FAMILIES = ("bert", "modernbert", "eurobert", "roberta", "deberta-v2", "albert", "electra", "rembert")
PRE_NORM = ("modernbert", "eurobert")


def load(written: Written, backend: str) -> Backend:
    """With the native kernels if this processor runs them, without them, or as a graph."""
    if backend == "onnx":
        return load_checkpoint_as(backend, written.folder)[1]
    return TorchBackend(load_checkpoint(written.folder), dtype="float32", native=backend != PLAIN)


def check(arrays: Mapping[str, Array], logits: Array, want: LensWant) -> None:
    """The words of chosen layers and rows are those with the largest of the reference's logits."""
    expected = logits[list(want.layers)][:, list(want.rows)]
    ids, found = arrays["lens_ids"], arrays["lens_logits"]
    assert ids.dtype == np.int32
    assert ids.shape == found.shape == (len(want.layers), len(want.rows), want.top_k)
    scale = np.abs(logits).max()
    # Which words come first may differ where two logits are as close as rounding.
    assert np.abs(np.take_along_axis(expected, ids, -1) - found).max() <= EXACT * scale
    best = np.take_along_axis(expected, largest_words(expected, want.top_k), -1)
    assert np.abs(best - found).max() <= EXACT * scale
    assert all(len({*words}) == want.top_k for words in ids.reshape(-1, want.top_k).tolist())
    shares = np.take_along_axis(softmax(expected), ids, -1)
    assert np.abs(arrays["lens_probabilities"] - shares).max() <= 2 * EXACT * scale
    assert found.dtype == arrays["lens_probabilities"].dtype == np.float32


@pytest.mark.in_turns
@pytest.mark.parametrize("backend", ["torch", PLAIN, pytest.param("onnx", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("family", FAMILIES)
def test_each_layer_predicts_what_the_head_makes_of_its_state(
    family: str, backend: str, tmp_path: Path
) -> None:
    """Every layer and token, alone, and some of them in one batch beside everything else."""
    written = write_small(tmp_path / "model", family, "ForMaskedLM", tie_word_embeddings=True)
    loaded = load(written, backend)
    layers, inputs = loaded.info.layers, sample()
    assert loaded.info.has_lens
    expected = [lens_logits(written, one.token_ids, one.segment_ids) for one in inputs]
    if family in PRE_NORM:
        plain = load_checkpoint(written.folder).predictor
        assert plain is not None
        assert isinstance(plain.final_norm, RmsNorm if family == "eurobert" else LayerNorm)
    wants = [
        Want(lens=LensWant(tuple(range(layers + 1)), tuple(range(len(one))), VOCABULARY)) for one in inputs
    ]
    for encoding, want, logits in zip(inputs, wants, expected, strict=True):
        (alone,) = run(loaded, [encoding], [want])
        assert want.lens is not None
        check(alone.heads, logits, want.lens)
    some = [LensWant((layers, 0, layers, 1), (len(one) - 1, 0, len(one) - 1), 5) for one in inputs]
    others = [
        Want(SentenceWant(layers=(layers,)), (1,)),
        Want(heads=(SparseWant(top_k=3),)),
        Want(attention=AttentionWant((0,), (0,))),
    ]
    mixed = run(
        loaded,
        [one for one in inputs for _ in range(4)],
        [want for lens_want in some for want in (Want(lens=lens_want), *others)],
    )
    for one, logits, beside in zip(some, expected, mixed[::4], strict=True):
        check(beside.heads, logits, one)
        assert set(beside.heads) == {"lens_ids", "lens_logits", "lens_probabilities"}
        assert beside.tokens is None


@pytest.mark.parametrize("backend", ["torch", PLAIN])
def test_all_of_a_sequence_comes_from_one_pass(backend: str, tmp_path: Path) -> None:
    """A lens beside states, a sparse vector and maps is what it is by itself."""
    written = write_small(tmp_path / "model", "modernbert", "ForMaskedLM", tie_word_embeddings=True)
    loaded, encoding = load(written, backend), max(sample(), key=len)
    one = LensWant((1, 3), (0, 2), 4)
    want = Want(token_layers=(1,), heads=(SparseWant(),), attention=AttentionWant((0, 2), (1,)), lens=one)
    (alone,), (together,) = run(loaded, [encoding], [Want(lens=one)]), run(loaded, [encoding], [want])
    assert np.array_equal(alone.heads["lens_ids"], together.heads["lens_ids"])
    assert relative_distance(together.heads["lens_logits"], alone.heads["lens_logits"]) <= 1e-6
    assert {"sparse_ids", "lens_ids"} < set(together.heads)
    assert together.attention is not None


@pytest.mark.parametrize("ops", [NUMPY, TensorOperations(torch.device("cpu"))], ids=["numpy", "torch"])
@pytest.mark.parametrize(("rows", "at_once"), [(512, 2**20), (4, 40), (3, 1)])
def test_words_in_blocks_are_the_words_at_once(
    ops: Any, rows: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever runs together; equal logits are in the order of their ids, also across blocks."""
    rng = np.random.default_rng(0)
    weight = rng.integers(-2, 3, (203, 6)).astype(np.float32)
    bias = rng.integers(-1, 2, 203).astype(np.float32)
    states = rng.integers(-2, 3, (3, 2, 9, 6)).astype(np.float32)
    norm = LayerNorm(np.full(6, 2, np.float32), None, 1e-5)
    predictor = Predictor(HeadInfo("masked_words", size=203), None, (Linear(weight, bias),), final_norm=norm)
    monkeypatch.setattr(lens, "_ROWS", rows)
    monkeypatch.setattr(lens, "_LOGITS_AT_ONCE", at_once)
    wants = {
        0: LensWant((1, 0), (8, 0, 8, 3), 7),
        2: LensWant((1,), tuple(range(9)), 20),
        1: LensWant((0,), (4,), 1),
    }
    found = dict(lens_words(wants, lambda i, n: states[i, n], 1, predictor.on(ops), ops, Progress()))
    for i, want in wants.items():
        x = states[i].astype(np.float64)
        x[0] = 2 * (x[0] - x[0].mean(-1, keepdims=True)) / np.sqrt(x[0].var(-1, keepdims=True) + 1e-5)
        logits = (x @ weight.T + bias)[list(want.layers)][:, list(want.rows)]
        if 0 not in want.layers:  # whole numbers: the last state is not normed, so many logits are equal
            assert np.array_equal(found[i]["lens_ids"], largest_words(logits, want.top_k))
        best = -np.sort(-logits, -1)[..., : want.top_k]
        assert distance(found[i]["lens_logits"], best) <= 1e-4
        shares = np.take_along_axis(softmax(logits), found[i]["lens_ids"].astype(np.int64), -1)
        assert distance(found[i]["lens_probabilities"], shares) <= 1e-5


def test_few_words_are_found_as_few_beside_one_that_wants_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or else a request for one token would multiply the work and the memory of all others in its batch."""
    found, largest = [], lens._largest

    def spy(predictor: Predictor, x: Any, most: int, *others: Any) -> Any:
        found.append((len(x), most))
        return largest(predictor, x, most, *others)

    monkeypatch.setattr(lens, "_largest", spy)
    predictor = Predictor(
        HeadInfo("masked_words", size=99), None, (Linear(np.ones((99, 2), np.float32), None),)
    )
    wants = {0: LensWant((0, 1), (0, 1, 2), 5), 1: LensWant((0,), (0,), 90), 2: LensWant((1,), (2,), 5)}
    states = np.ones((3, 2), np.float32)
    arrays = dict(lens_words(wants, lambda *_: states, 1, predictor, NUMPY, Progress()))
    assert found == [(7, 5), (1, 90)]
    assert [arrays[i]["lens_ids"].shape for i in range(3)] == [(2, 3, 5), (1, 1, 90), (1, 1, 5)]


@pytest.mark.parametrize("ops", [NUMPY, TensorOperations(torch.device("cpu"))], ids=["numpy", "torch"])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_logit_that_is_not_finite_is_not_hidden(ops: Any, wrong: float) -> None:
    """It reaches the check of outputs, in the probabilities if not in the logits."""
    weight = np.zeros((50, 2), np.float32)
    weight[7] = wrong
    predictor = Predictor(HeadInfo("masked_words", size=50), None, (Linear(weight, None),)).on(ops)
    states = np.ones((1, 2), np.float32)
    ((_, found),) = lens_words({0: LensWant((0,), (0,), 3)}, lambda *_: states, 0, predictor, ops, Progress())
    assert not np.isfinite(found["lens_probabilities"]).all()


def test_a_lens_ends_within_a_block_and_counts_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that watch the pass see progress, and can stop it."""
    weight = np.ones((100, 2), np.float32)
    predictor = Predictor(HeadInfo("masked_words", size=100), None, (Linear(weight, None),))
    monkeypatch.setattr(lens, "_LOGITS_AT_ONCE", 10)
    progress, states = Progress(), np.ones((1, 2), np.float32)
    wants = {0: LensWant((0,), (0,), 1)}
    list(lens_words(wants, lambda *_: states, 0, predictor, NUMPY, progress))
    assert progress.steps == 10
    progress.stop()
    with pytest.raises(Stopped):
        list(lens_words(wants, lambda *_: states, 0, predictor, NUMPY, progress))


def test_work_past_the_last_layer_of_a_lens_is_not_done() -> None:
    """And what it costs counts as passes."""
    want = Want(lens=LensWant((0, 2), (0,), 1, passes=3))
    assert want.states(12) == {0, 2}
    assert want.passes == 4
    assert Want(interventions=Interventions()).passes == 1
