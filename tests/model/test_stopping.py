"""A pass in PyTorch counts the layers that it has finished, and ends between two once it is told to stop."""

from collections.abc import Callable
from ctypes import CFUNCTYPE, c_int, c_void_p, cast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.checkpoints.checkpoint import load_checkpoint
from model.contract import AttentionWant, Batch, Output, SentenceWant, SummaryWant, Want
from model.errors import Stopped
from model.inspection.selection import ROOM
from model.progress import Progress
from model.pytorch.backend import TorchBackend
from model.pytorch.kernels.stack import NativeStack
from tests.references.checkpoints import write_bert
from tests.support.backends import instructions
from tests.support.kernel import runs_int8, thread_number

LAYERS, SIZE = 4, 128
LENGTHS = [64] * 24
LONG = 4096
VECTOR = Want(SentenceWant(("mean",), (LAYERS,)))
MAPS = Want(VECTOR.sentence, attention=AttentionWant(tuple(range(LAYERS)), (0, 1), weights="score"))
"""Scores: observers in Python compute them."""
STATISTICS = Want(VECTOR.sentence, summary=SummaryWant(tuple(range(LAYERS)), (0, 1), (0,)))
"""Statistics, which native kernels record."""


@dataclass(frozen=True)
class Way:
    """A way to run the model, and in how many parts it runs texts of `LENGTHS`."""

    dtype: str
    want: Want = VECTOR
    native: bool = True
    parts: int = 2
    """Kernels with products of their own run about a thousand tokens at a time."""


WAYS = {
    "float32": Way("float32"),
    "bfloat16": Way("bfloat16", parts=2),
    "int8": Way("int8"),
    "recorded": Way("float32", STATISTICS),
    "observed": Way("float32", MAPS, parts=1),
    "int8 recorded": Way("int8", STATISTICS, parts=2 + 2),
    "plain": Way("float32", native=False, parts=1),
    "plain observed": Way("float32", MAPS, native=False, parts=1),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT of random weights that reads long texts."""
    place = tmp_path_factory.mktemp("model") / "source"
    write_bert(
        place, hidden_size=SIZE, num_hidden_layers=LAYERS, max_position_embeddings=LONG, vocab_size=100
    )
    return place


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    """Each way to run the model that this processor has."""
    chosen = WAYS[request.param]
    if chosen.native and instructions(torch.float32 if chosen.dtype == "float32" else torch.bfloat16) is None:
        pytest.skip(f"there are no native kernels for {chosen.dtype} here")
    if chosen.dtype == "int8" and not runs_int8():
        pytest.skip("the processor has no products of eight bits")
    return chosen


def some(*names: str) -> Any:
    """Run a test with some ways only."""
    return pytest.mark.parametrize("way", names, indirect=True)


@dataclass
class Hooked:
    """A backend that calls something before each layer attends."""

    backend: TorchBackend
    before_attention: list[Callable[[], None]] = field(default_factory=list)
    _kept: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        executor = self.backend.encoder.executor
        if isinstance(executor, NativeStack):
            for kernels in filter(None, (executor._unobserved, executor._observing)):
                kernels.constants.attend = self._hook(kernels.constants.attend)
            return
        for block in self.backend.encoder.blocks:
            attention: Any = block.attention
            attention.register_forward_pre_hook(lambda *_: self._call())

    def _hook(self, address: int) -> int | None:
        attend = CFUNCTYPE(c_int, c_void_p)(address)

        def hook(arguments: int) -> int:
            if thread_number() == 0:
                self._call()
            return int(attend(arguments))

        hooked = CFUNCTYPE(c_int, c_void_p)(hook)
        self._kept.append(hooked)
        return cast(hooked, c_void_p).value

    def _call(self) -> None:
        for call in self.before_attention:
            call()


@pytest.fixture(scope="module")
def hooked(folder: Path, way: Way) -> Hooked:
    """The model, run in a way."""
    return Hooked(TorchBackend(load_checkpoint(folder), device="cpu", dtype=way.dtype, native=way.native))


@pytest.fixture(scope="module")
def expected(way: Way, hooked: Hooked) -> list[Output]:
    """The outputs of a pass without a progress to watch."""
    return hooked.backend.run(batch(way.want, LENGTHS))


def batch(want: Want, lengths: list[int]) -> Batch:
    """Texts of some lengths in tokens."""
    ids = np.random.default_rng(0).integers(5, 90, sum(lengths))
    return Batch(ids, np.zeros_like(ids), np.cumsum([0, *lengths]), (want,) * len(lengths))


def same(outputs: list[Output], others: list[Output]) -> bool:
    """Whether outputs have the same bits."""
    return all(
        np.array_equal(one.sentence, other.sentence)  # type: ignore[arg-type]
        and (one.attention is None or np.array_equal(one.attention, other.attention))  # type: ignore[arg-type]
        and (one.summary or {}).keys() == (other.summary or {}).keys()
        and all(np.array_equal(x, (other.summary or {})[name]) for name, x in (one.summary or {}).items())
        for one, other in zip(outputs, others, strict=True)
    )


class StopsAt(Progress):
    """Is stopped at a number of steps among those that are counted in Python."""

    __slots__ = ("at", "taken")

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at
        self.taken = 0

    def step(self, layers: int = 0) -> None:
        self.taken += 1
        if self.taken == self.at:
            self.stop()
        super().step(layers)


def test_layers_are_counted_one_by_one(way: Way, hooked: Hooked) -> None:
    """Before each layer those before it have been counted; in the end all of each part of the batch."""
    progress, seen = Progress(), list[int]()
    hooked.before_attention = [lambda: seen.append(progress.layers)]
    hooked.backend.run(batch(way.want, LENGTHS), progress=progress)
    assert progress.layers == LAYERS * way.parts
    assert seen == [*range(progress.layers)]
    assert progress.steps >= progress.layers
    assert not progress.stopping


@pytest.mark.in_turns
@pytest.mark.parametrize("last", [0, 2, -1])
def test_a_stopped_pass_ends_within_a_layer_and_leaves_the_backend_as_it_was(
    way: Way, hooked: Hooked, expected: list[Output], last: int
) -> None:
    """No layer after the one that it is at begins, and the next pass has the same numbers as ever."""
    texts, progress, begun = batch(way.want, LENGTHS), Progress(), list[int]()
    last %= LAYERS * way.parts

    def stop() -> None:
        begun.append(progress.layers)
        if len(begun) > last:
            progress.stop()

    hooked.before_attention = [stop]
    with pytest.raises(Stopped):
        hooked.backend.run(texts, progress=progress)
    assert begun == [*range(last + 1)]
    assert last <= progress.layers <= last + 1
    hooked.before_attention = []
    assert same(hooked.backend.run(texts, progress=Progress()), expected)


@pytest.mark.parametrize("lengths", [LENGTHS, [10]], ids=["batch", "short text"])
def test_a_pass_that_was_stopped_before_runs_nothing(way: Way, hooked: Hooked, lengths: list[int]) -> None:
    """A short text neither, of which the pass is prepared."""
    progress, begun = Progress(), list[int]()
    progress.stop()
    hooked.before_attention = [lambda: begun.append(1)]
    with pytest.raises(Stopped):
        hooked.backend.run(batch(way.want, lengths), progress=progress)
    assert (begun, progress.steps, progress.layers) == ([], 0, 0)


@some("float32", "bfloat16", "int8", "plain")
def test_each_text_counts_for_those_who_watch_it_only(way: Way, hooked: Hooked) -> None:
    """The counts of the short text before it, of the same length, stay as they were."""
    hooked.before_attention = []
    first, second = Progress(), Progress()
    for progress in (first, second):
        hooked.backend.run(batch(VECTOR, [10]), progress=progress)
        assert (first.layers, progress.layers) == (LAYERS, LAYERS)
    if hooked.backend.short_passes is not None:
        second.stop()
        ids = np.arange(5, 15)
        with pytest.raises(Stopped):
            hooked.backend.short_passes.run(ids, np.zeros_like(ids), second)


@some("float32", "bfloat16", "int8", "recorded", "int8 recorded")
def test_a_long_text_counts_while_it_attends(way: Way, hooked: Hooked) -> None:
    """A layer of thousands of tokens may take seconds: every 64 million multiplications count."""
    hooked.before_attention = []
    progress = Progress()
    hooked.backend.run(batch(way.want, [LONG]), progress=progress)
    passes = 2 if way.dtype == "int8" and way.want is not VECTOR else 1
    assert progress.layers == LAYERS * passes
    assert progress.steps / progress.layers >= 0.9 * 2 * LONG**2 * SIZE / 2**26


@some("observed", "plain observed")
def test_observers_in_python_count_each_block_and_end_after_one(way: Way, hooked: Hooked) -> None:
    """With long texts they take longer than the layer that they observe."""
    hooked.before_attention = []
    texts = batch(Want(attention=AttentionWant((1,), (0, 1), weights="score", thumbnail=2)), [LONG // 2])
    whole = StopsAt(0)
    hooked.backend.run(texts, progress=whole)
    assert whole.taken >= 2 * (LONG // 2) ** 2 / ROOM
    stopped = StopsAt(whole.taken // 2)
    with pytest.raises(Stopped):
        hooked.backend.run(texts, progress=stopped)
    assert stopped.taken == whole.taken // 2
