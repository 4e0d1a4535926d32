"""A pass in ONNX Runtime counts the runs of its graph that it has finished, and ends between two of them."""

from typing import cast

import numpy as np
import pytest

from model.contract import AttentionWant, Batch, SentenceWant, Want
from model.errors import Stopped
from model.onnx.backend import OnnxBackend
from model.progress import Progress
from tests.support.backends import small

LAYERS = 3
GROUPS = [60, 30, 4]
"""Lengths of texts, none of which is run together with another."""
VECTOR = Want(SentenceWant(("mean",), (LAYERS,)))


@pytest.fixture
def backend() -> OnnxBackend:
    """A small BERT of random weights, as a graph."""
    return cast(OnnxBackend, small("onnx").backend)


def batch(lengths: list[int], want: Want = VECTOR) -> Batch:
    """Texts of some lengths in tokens."""
    ids = np.random.default_rng(0).integers(5, 90, sum(lengths))
    return Batch(ids, np.zeros_like(ids), np.cumsum([0, *lengths]), (want,) * len(lengths))


class StopsAt(Progress):
    """Is stopped at one of its steps, and notes the layers at each."""

    __slots__ = ("at", "seen")

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at
        self.seen: list[int] = []

    def step(self, layers: int = 0) -> None:
        self.seen.append(self.layers + layers)
        if len(self.seen) == self.at:
            self.stop()
        super().step(layers)


def test_each_run_of_the_graph_counts_all_its_layers(backend: OnnxBackend) -> None:
    """A batch takes several: the longest texts first, each group of similar length by itself."""
    progress = StopsAt(0)
    backend.run(batch(GROUPS), progress=progress)
    assert progress.seen == [LAYERS, 2 * LAYERS, 3 * LAYERS]
    assert (progress.layers, progress.steps) == (3 * LAYERS, 3)


def test_a_stopped_pass_runs_no_further_group(backend: OnnxBackend) -> None:
    """The backend has the same numbers afterwards."""
    expected = backend.run(batch(GROUPS))
    progress = StopsAt(2)
    with pytest.raises(Stopped):
        backend.run(batch(GROUPS), progress=progress)
    assert progress.seen == [LAYERS, 2 * LAYERS]
    for output, before in zip(backend.run(batch(GROUPS), progress=Progress()), expected, strict=True):
        assert np.array_equal(output.sentence, before.sentence)  # type: ignore[arg-type]


def test_a_pass_that_was_stopped_before_runs_nothing(backend: OnnxBackend) -> None:
    """The graph is not even run until its first operator."""
    progress = Progress()
    progress.stop()
    with pytest.raises(Stopped):
        backend.run(batch(GROUPS), progress=progress)
    assert (progress.layers, progress.steps) == (0, 0)


def test_what_is_observed_of_a_graph_counts_block_by_block(backend: OnnxBackend) -> None:
    """It is computed in numpy after the run, and ends after a block."""
    want = Want(attention=AttentionWant((0, 1), (0, 1), weights="score"))
    whole = StopsAt(0)
    backend.run(batch([60], want), progress=whole)
    assert len(whole.seen) > 2
    stopped = StopsAt(2)
    with pytest.raises(Stopped):
        backend.run(batch([60], want), progress=stopped)
    assert len(stopped.seen) == 2


def test_a_request_that_comes_after_the_run_changes_nothing(backend: OnnxBackend) -> None:
    """Its results are whole, and so are those of the next run."""
    progress = Progress()
    expected = backend.run(batch([20]), progress=progress)
    progress.stop()
    (output,) = backend.run(batch([20]), progress=Progress())
    assert np.array_equal(output.sentence, expected[0].sentence)  # type: ignore[arg-type]
