"""What float32 rounds is no fault of a graph, and anything else is."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.parity import Quantity, Row, compare
from export.rounding import FACTOR, MOST, judge, reorder
from export.texts import TEXTS
from model.checkpoints.checkpoint import load_checkpoint
from model.contract import Batch, FloatArray, Output, Want
from model.progress import Progress
from model.pytorch.backend import TorchBackend
from model.pytorch.precision import EXACT
from tests.export.test_massive_activations import plant_difference, write_planted
from tests.support.families import ENCODERS, sample, write_small
from tests.support.product import run

BOUNDS: dict[Quantity, float] = {"hidden states": 1e-4, "sentence vectors": 1e-4}
WHAT = "texts"


class Disturbed(TorchBackend):
    """A model in float32 whose hidden states and vectors are changed before they are given."""

    def __init__(self, folder: Path, change: Callable[[FloatArray], FloatArray] = lambda x: x) -> None:
        super().__init__(load_checkpoint(folder), device="cpu", dtype="float32", native=False)
        self.change = change

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        return [
            replace(
                output,
                tokens=None if output.tokens is None else self.change(output.tokens),
                sentence=None if output.sentence is None else self.change(output.sentence),
            )
            for output in super().run(batch, lanes=lanes, progress=progress)
        ]


def shifted(by: float, x: FloatArray) -> FloatArray:
    """Add so much of the largest number of each vector."""
    return x + np.float32(by) * np.abs(x).max(axis=-1, keepdims=True)


def broken(x: FloatArray) -> FloatArray:
    return x * np.float32(np.nan)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A T5 of which float32 loses most digits: two programs differ by 0.004 after its last norm."""
    return write_planted(tmp_path_factory.mktemp("planted") / "t5", "t5", plant_difference).folder


def rows_of(folder: Path, written: TorchBackend) -> tuple[list[Row], list[Row]]:
    """Compare with our kernels, and judge what missed its bound."""
    checkpoint = load_checkpoint(folder)
    make = partial(TorchBackend, device="cpu")
    inputs = {WHAT: checkpoint.tokenizer.encode(TEXTS)}
    native = partial(make, checkpoint, dtype="float32")
    rows = compare(native(), written, inputs, {WHAT: BOUNDS})
    exact = make(load_checkpoint(folder), dtype=EXACT)
    plain = partial(Disturbed, folder)
    return rows, judge(
        rows, exact, [lambda: make(load_checkpoint(folder), dtype="float32"), plain], written, inputs
    )


@pytest.mark.thorough
def test_what_float32_rounds_is_accepted(planted: Path) -> None:
    """It misses its bound, and is as near to float64 as PyTorch is."""
    before, after = rows_of(planted, Disturbed(planted))
    assert "hidden states" in [row.what for row in before if not row.ok]  # on some processors vectors too
    assert all(row.ok for row in after)
    (judged,) = (row for row in after if row.rounding is not None and row.what == "hidden states")
    assert judged.rounding is not None
    assert 1e-4 < judged.largest <= FACTOR * judged.rounding
    assert judged.bound == pytest.approx(FACTOR * judged.rounding)
    assert [row for row in after if row.rounding is None] == [row for row in before if row.ok]


@pytest.mark.thorough
@pytest.mark.parametrize("change", [partial(shifted, 0.05), broken], ids=["shifted", "not a number"])
def test_what_is_wrong_is_not(planted: Path, change: Callable[[FloatArray], FloatArray]) -> None:
    """It is further from float64, in vectors too, which float32 gives within their bound."""
    _, after = rows_of(planted, Disturbed(planted, change))
    assert [row.what for row in after if not row.ok] == ["sentence vectors", "hidden states"]
    assert all(row.bound is not None and row.bound <= MOST for row in after if not row.ok)


@pytest.mark.thorough
def test_ways_are_tried_until_nothing_is_missed(planted: Path) -> None:
    """One that rounds less than the graph decides nothing; those after one that suffices are not run."""
    exact = TorchBackend(load_checkpoint(planted), device="cpu", dtype=EXACT)
    inputs = {WHAT: load_checkpoint(planted).tokenizer.encode(TEXTS)}
    rows = compare(exact, Disturbed(planted), inputs, {WHAT: BOUNDS})
    missed = [row.what for row in rows if not row.ok]
    assert "hidden states" in missed
    tried: list[str] = []

    def lucky() -> TorchBackend:
        tried.append("lucky")
        return exact

    def usual() -> TorchBackend:
        tried.append("usual")
        return Disturbed(planted)

    assert [
        row.what for row in judge(rows, exact, [lucky], Disturbed(planted), inputs) if not row.ok
    ] == missed
    tried.clear()
    assert all(row.ok for row in judge(rows, exact, [lucky, usual, usual], Disturbed(planted), inputs))
    assert tried == ["lucky", "usual"]


@pytest.mark.parametrize("family", ["bert", "t5", "eurobert", "nomic_bert"])
def test_sums_in_another_order_are_the_same_sums(family: str, tmp_path: Path) -> None:
    """In float64 nothing changes, also with gates and shared values; in float32 something does."""
    folder = write_small(tmp_path / "model", family, ENCODERS.get(family, "Model")).folder

    def states(dtype: str, order: int | None) -> list[Any]:
        checkpoint = load_checkpoint(folder)
        if order is not None:
            reorder(checkpoint.encoder, order)
        backend = TorchBackend(checkpoint, device="cpu", dtype=dtype, native=False)
        wants = [Want(token_layers=(backend.info.layers,))] * len(sample())
        return [output.tokens for output in run(backend, sample(), wants)]

    for one, other in zip(states(EXACT, None), states(EXACT, 0), strict=True):
        assert np.abs(one - other).max() <= 1e-6
    plain, first, second = (states("float32", order) for order in (None, 0, 1))
    assert not any(np.array_equal(one[-1], other[-1]) for one, other in ((plain, first), (first, second)))
