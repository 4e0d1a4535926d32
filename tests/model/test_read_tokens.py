"""Where few tokens of the last hidden state are read, the last layer computes these alone, to the bit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.checkpoints.checkpoint import load_checkpoint
from model.contract import AttentionWant, Batch, HeadInfo, LogitsWant, Output, SentenceWant, Want
from model.encoder.packing import Packing
from model.heads.predictor import Predictor
from model.heads.running import tokens_read
from model.pytorch.backend import TorchBackend
from model.pytorch.kernels import passes
from tests.support.families import ATTENDING, ENCODERS, every_family, sample, write_small
from tests.support.interventions import random_changes, with_changes
from tests.support.kernel import needs_int8, needs_kernels

LAST = 3
CLS = Predictor(HeadInfo("classification"), "cls", ())
MEAN = Predictor(HeadInfo("classification"), "mean", ())


@pytest.mark.parametrize(
    ("want", "predictor", "read"),
    [
        pytest.param(Want(SentenceWant(("cls",), (LAST,))), None, [0], id="the first token"),
        pytest.param(Want(SentenceWant(("cls",), (LAST,), skip=4)), None, [4], id="the first after a prompt"),
        pytest.param(Want(SentenceWant(("last", "cls"), (LAST,))), None, [0, 9], id="the first and the last"),
        pytest.param(Want(SentenceWant(("cls", "mean"), (LAST,))), None, None, id="a mean as well"),
        pytest.param(Want(SentenceWant(("mean",), (1,))), None, [], id="a mean of a layer below"),
        pytest.param(Want(SentenceWant(("cls",), (LAST,)), (LAST,)), None, None, id="all tokens as well"),
        pytest.param(Want(heads=(LogitsWant(),)), CLS, [0], id="classes of the first token"),
        pytest.param(Want(heads=(LogitsWant(),)), MEAN, None, id="classes of the mean"),
        pytest.param(Want(attention=AttentionWant((2,), (0,))), None, [], id="nothing but attention"),
    ],
)
def test_what_is_wanted_says_what_is_read(
    want: Want, predictor: Predictor | None, read: Sequence[int] | None
) -> None:
    """Of ten tokens."""
    assert tokens_read(want, 10, LAST, predictor) == read


def outputs(backend: TorchBackend, batch: Batch) -> tuple[list[Output], list[Output]]:
    """Run a batch as ever, and with a last layer that computes all rows."""
    real, computed = passes.rows_read, []

    def spy(read: Any, packing: Packing) -> Any:
        computed.append(real(read, packing))
        return computed[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "rows_read", spy)
        ours = backend.run(batch)
        assert any(rows is not None for rows in computed)
        patch.setattr(passes, "rows_read", lambda *_: None)
        return ours, backend.run(batch)


def assert_same(ours: Sequence[Output], theirs: Sequence[Output]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        for name in ("sentence", "tokens", "attention"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert one.heads.keys() == other.heads.keys()
        for name, values in other.heads.items():
            np.testing.assert_array_equal(one.heads[name], values)


def batches(backend: TorchBackend, *, changes: bool) -> list[Batch]:
    """Batches of which few rows are read: of all sequences, beside one that is read whole, with changes."""
    info, random = backend.info, np.random.default_rng(5)
    texts = sample((20, 1, 33, 7, 40, 2))
    last = info.layers
    first = Want(SentenceWant(("cls",), (last,), normalize=True))
    both = Want(SentenceWant(("last", "cls"), (last,)), token_layers=(last - 1,))
    whole = Want(SentenceWant(("mean", "cls"), (last,)), token_layers=(last,))
    seen = Want(first.sentence, attention=AttentionWant((last - 1,), (0,)))
    lists = [[first] * 6, [first, both, seen, first, first, first], [first, first, first, whole, both, first]]
    if changes:
        changed = [
            with_changes(first, random_changes(random, last, info.heads, info.hidden_size, len(text)))
            for text in (*texts[:1] * 5, *texts[4:5] * 5)
        ]
        texts += [*texts[:1] * 5, *texts[4:5] * 5]
        lists = [[*some, *changed] for some in lists[:2]]
    return [Batch.pack(texts[: len(wants)], wants) for wants in lists]


@pytest.mark.in_turns
@needs_kernels
@every_family("family", ATTENDING)
@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        pytest.param("bfloat16", marks=pytest.mark.thorough),
        pytest.param("int8", marks=[needs_int8, pytest.mark.thorough]),
    ],
)
def test_the_bits_are_those_of_a_last_layer_that_computes_all(
    family: str, dtype: Any, tmp_path: Path
) -> None:
    """In every family, alone, in mixed batches, observed and with interventions."""
    write_small(tmp_path, family, ENCODERS.get(family, "Model"))
    backend = TorchBackend(load_checkpoint(tmp_path), device="cpu", dtype=dtype)
    for batch in (*batches(backend, changes=False), *batches(backend, changes=True)):
        assert_same(*outputs(backend, batch))


@needs_kernels
@pytest.mark.parametrize("family", ["bert", "modernbert", "electra"])
def test_so_are_those_of_classifiers(family: str, tmp_path: Path) -> None:
    """Which read the first token."""
    write_small(tmp_path, family, "ForSequenceClassification", num_labels=3)
    backend = TorchBackend(load_checkpoint(tmp_path), device="cpu", dtype="float32")
    texts = sample((20, 33, 7, 40))
    batch = Batch.pack(texts, [Want(heads=(LogitsWant(),))] * len(texts))
    assert_same(*outputs(backend, batch))
