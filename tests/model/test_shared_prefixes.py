"""Causal sequences that begin with the same tokens run these once, and get the same bits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.checkpoints.checkpoint import load_checkpoint
from model.contract import (
    AttentionWant,
    Batch,
    Encoding,
    HeadInfo,
    LogitsWant,
    Output,
    SentenceWant,
    SummaryWant,
    Want,
)
from model.encoder.interventions import HeadScale, Interventions
from model.encoder.sharing import Prefix, share_prefixes
from model.heads.predictor import Predictor
from model.progress import Progress
from model.pytorch import backend as backend_module
from model.pytorch.backend import TorchBackend
from model.pytorch.kernels.passes import Passes
from model.pytorch.shared_layers import find_prefixes
from tests.references.comparing import relative_distance
from tests.references.families import Written
from tests.support.families import EXACT, encoding_of, every_family, sample, write_small
from tests.support.kernel import held_to_widening, needs_int8, needs_kernels
from tests.support.product import run, want_all

CAUSAL = ["qwen3", "qwen2", "gemma3_text", "gemma", "llama", "mistral"]
WINDOWED = {"sliding_window": 64}
CHANGES = {"gemma3_text": {**WINDOWED, "use_bidirectional_attention": False}, "mistral": WINDOWED}
"""What makes those causal that are not by their config, with windows as long as the longest text."""
LAST = SentenceWant(("last",), layers=(3,))
TEMPLATE = list(range(10, 31))


def write_causal(folder: Path, family: str) -> Written:
    return write_small(folder, family, "Model", **CHANGES.get(family, {}))


def texts() -> list[Encoding]:
    """Seven that begin with 21 tokens, three of them with 30, one that is nothing else; and four others."""
    longer = [*TEMPLATE, *range(40, 49)]
    beginnings = [TEMPLATE, TEMPLATE, longer, longer, longer, TEMPLATE, TEMPLATE]
    ends = sample([7, 20, 1, 19, 34, 3])
    alike = [encoding_of([*first, *end.token_ids]) for first, end in zip(beginnings, ends, strict=False)]
    return [*alike, encoding_of(TEMPLATE), *sample([1, 18, 33, 40])]


def apart(backend: TorchBackend, inputs: Sequence[Encoding], wants: Sequence[Want]) -> list[Output]:
    return [run(backend, [one], [want])[0] for one, want in zip(inputs, wants, strict=True)]


def last_token(backend: TorchBackend, **options: Any) -> Want:
    return Want(SentenceWant(("last",), layers=(1, backend.info.layers), **options))


def count_rows(patch: pytest.MonkeyPatch) -> list[int]:
    """Note the tokens that go through the layers of each pass."""
    ran: list[int] = []
    describe = Passes.describe

    def count(*args: Any, **options: Any) -> Any:
        described = describe(*args, **options)
        ran.append(described.layers.tokens)
        return described

    patch.setattr(Passes, "describe", count)
    return ran


def test_a_text_begins_with_all_that_it_has_in_common_with_the_carrier() -> None:
    """The carrier is one that has to run whole, or else the longest; a text keeps what is read of it."""
    beginnings = range(30), [*range(20), 7, 8], range(30), range(16), [*range(15), 99, 3]
    ids = [np.array(one) for one in beginnings]
    assert share_prefixes(ids, [29, 21, 0, 15, 16]) == [Prefix(2, 29), Prefix(2, 20), None, None, None]
    assert share_prefixes(ids[:2], [29, 19]) == [None, Prefix(0, 19)]
    assert share_prefixes([], []) == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "widened", pytest.param("int8", marks=needs_int8)])
@needs_kernels
@every_family("family", CAUSAL)
def test_what_shares_a_prefix_has_the_bits_of_what_does_not(
    family: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside others, and of the last token in two layers."""
    write_causal(tmp_path, family)
    if dtype == "widened":
        with held_to_widening():
            backend = TorchBackend(load_checkpoint(tmp_path), device="cpu", dtype="bfloat16")
    else:
        backend = TorchBackend(load_checkpoint(tmp_path), device="cpu", dtype=dtype)
    if backend.info.kernels is None:
        pytest.skip(f"no kernels run it here in this precision: {backend.info.no_kernels}")
    inputs = texts()
    wants = [last_token(backend, skip=5 if i % 2 and len(one) > 5 else 0) for i, one in enumerate(inputs)]
    theirs = apart(backend, inputs, wants)
    ran, progress = count_rows(monkeypatch), Progress()
    ours = backend.run(Batch.pack(inputs, wants), progress=progress)
    shared = [21, 21, 30, 30, 21, 20]  # all but that of one text with thirty tokens, which is the carrier
    assert sum(ran) == sum(map(len, inputs)) - sum(shared)
    assert progress.shared_tokens == sum(shared)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one.sentence, other.sentence)


@needs_kernels
@every_family("family", CAUSAL)
def test_shared_prefixes_give_the_states_of_transformers(family: str, tmp_path: Path) -> None:
    """The last token's hidden states, beside a text that is observed whole."""
    written = write_causal(tmp_path, family)
    backend = TorchBackend(load_checkpoint(tmp_path), device="cpu", dtype="float32")
    inputs = texts()
    wants = [last_token(backend) for _ in inputs]
    wants[3] = want_all(backend)
    for place, (one, output) in enumerate(zip(inputs, run(backend, inputs, wants), strict=True)):
        hidden, attention = written.run(one.token_ids, one.segment_ids)
        if place == 3:
            assert relative_distance(output.tokens, hidden) <= EXACT
            assert relative_distance(output.attention, attention) <= EXACT
        else:
            assert output.sentence is not None
            found = np.split(output.sentence, 2)
            assert relative_distance(found[0], hidden[1][-1]) <= EXACT
            assert relative_distance(found[1], hidden[-1][-1]) <= EXACT


@needs_kernels
def test_a_text_longer_than_a_window_shares_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tokens attend to keys that begin elsewhere in a longer text, and are rounded otherwise."""
    write_small(tmp_path, "mistral", "Model", sliding_window=30)
    backend = TorchBackend(load_checkpoint(tmp_path), device="cpu", dtype="float32")
    assert backend.encoder.config.shared_length == 30
    inputs = texts()
    ran = count_rows(monkeypatch)
    run(backend, inputs, [last_token(backend)] * len(inputs))
    assert sum(ran) == sum(map(len, inputs)) - 21 - 20  # of those with 24 and 21 tokens, beside one with 28


@needs_kernels
@pytest.mark.parametrize(
    "other",
    [
        Want(SentenceWant(("mean", "last"), layers=(3,))),
        Want(LAST, token_layers=(2,)),
        Want(LAST, attention=AttentionWant((0,), (0, 1, 2))),
        Want(LAST, summary=SummaryWant((1,), (0, 1, 2), ())),
    ],
)
def test_what_more_is_read_of_runs_whole(other: Want, tmp_path: Path) -> None:
    """It carries others, also shorter ones; all have the results that they have alone."""
    write_causal(tmp_path, "qwen3")
    backend = TorchBackend(load_checkpoint(tmp_path), device="cpu", dtype="float32")
    text = encoding_of([*TEMPLATE, 5, 6])
    assert find_prefixes(Batch.pack([text] * 2, [other] * 2), [0, 1], None, None) == {}
    batch = Batch.pack([text] * 3, [last_token(backend), other, last_token(backend)])
    assert find_prefixes(batch, [0, 1, 2], None, None) == {0: Prefix(1, 22), 2: Prefix(1, 22)}
    assert_as_alone(backend, batch, [text] * 3)


@needs_kernels
def test_beside_interventions_nothing_is_shared(tmp_path: Path) -> None:
    """A changed sequence may begin with the states of one that is not, which is there whole."""
    write_causal(tmp_path, "qwen3")
    backend = TorchBackend(load_checkpoint(tmp_path), device="cpu", dtype="float32")
    text = encoding_of([*TEMPLATE, 5, 6])
    changed = Want(LAST, interventions=Interventions((HeadScale(layer=1, heads=(1,)),)))
    batch = Batch.pack([text] * 4, [last_token(backend), last_token(backend), changed, Want(LAST)])
    assert_as_alone(backend, batch, [text] * 4)


def assert_as_alone(backend: TorchBackend, batch: Batch, inputs: Sequence[Encoding]) -> None:
    theirs = apart(backend, inputs, batch.wants)
    for ours, alone in zip(backend.run(batch), theirs, strict=True):
        for name in ("sentence", "tokens", "attention"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(alone, name))
        for name, values in (alone.summary or {}).items():
            assert ours.summary is not None
            np.testing.assert_array_equal(ours.summary[name], values)


@needs_kernels
@pytest.mark.parametrize("family", ["bert", "bidirectional_pplx_qwen3", "modernbert"])
def test_models_that_see_what_comes_after_share_nothing(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small(tmp_path, family, "Model")
    backend = TorchBackend(load_checkpoint(tmp_path), device="cpu", dtype="float32")
    monkeypatch.setattr(backend_module, "find_prefixes", lambda *_: pytest.fail("a prefix was looked for"))
    run(backend, texts(), [last_token(backend) for _ in texts()])


def test_the_token_that_classes_are_read_of_is_never_shared() -> None:
    """A predictor passes over padding: of a text that ends with it, an earlier token is read."""
    info = HeadInfo("classification")
    text = encoding_of([*TEMPLATE, 5, 0, 0, 0])
    batch = Batch.pack([text] * 2, [Want(heads=(LogitsWant(),))] * 2)
    assert find_prefixes(batch, [0, 1], Predictor(info, "last", (), padding=0), None) == {1: Prefix(0, 21)}
    assert find_prefixes(batch, [0, 1], Predictor(info, "last", ()), None) == {1: Prefix(0, 24)}
    assert find_prefixes(batch, [0, 1], Predictor(info, "cls", ()), None) == {}
