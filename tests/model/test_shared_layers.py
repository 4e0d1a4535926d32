"""Sequences that differ only from some layer on run the layers below it once, and get the same bits."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.source import resolve
from model.contract import AttentionWant, Batch, Encoding, SentenceWant, SummaryWant, Want
from model.encoder.interventions import HeadScale, Interventions
from model.encoder.sharing import Start, Text, share_layers
from model.pytorch import backend as backend_module
from model.pytorch.backend import TorchBackend
from model.pytorch.kernels.passes import Passes
from tests.references.checkpoints import MINILM
from tests.support.families import ATTENDING, ENCODERS, every_family, sample, write_small
from tests.support.interventions import random_changes, with_changes
from tests.support.kernel import needs_int8, needs_kernels
from tests.support.product import run, want_all


def test_the_one_that_is_changed_last_carries_the_others() -> None:
    """Each begins with the state before its first change, unless something below it is needed."""
    texts = [
        Text("a", 2, 6),
        Text("a", None, 0),
        Text("a", 4, 4),
        Text("a", 4, 3),
        Text("a", 0, 6),
        Text("b", 3, 6),
        Text("c", 1, 6),
        Text("c", 5, 6),
        Text("d", None, 6),
        Text("d", None, 6),
    ]
    starts: list[Start | None] = [None] * len(texts)
    starts[0], starts[2], starts[6] = Start(2, 1), Start(4, 1), Start(1, 7)
    assert share_layers(texts) == starts


def apart(backend: TorchBackend, texts: Sequence[Encoding], wants: Sequence[Want]) -> list[Any]:
    """Run each sequence with all of its layers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend_module, "find_starts", lambda *_: {})
        return [run(backend, [text], [want])[0] for text, want in zip(texts, wants, strict=True)]


def assert_same(ours: Any, theirs: Any) -> None:
    for name in ("sentence", "tokens", "attention"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    for name, values in (theirs.summary or {}).items():
        np.testing.assert_array_equal(ours.summary[name], values)


def assert_close(ours: Any, theirs: Any) -> None:
    for name in ("sentence", "tokens", "attention"):
        one, other = getattr(ours, name), getattr(theirs, name)
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.in_turns
@needs_kernels
@every_family("family", ATTENDING)
def test_what_shares_layers_has_the_bits_of_what_does_not(family: str, tmp_path: Path) -> None:
    """Three texts in many variants, some observed in every layer and some in the last one, beside others."""
    write_small(tmp_path, family, ENCODERS.get(family, "Model"))
    backend = TorchBackend(load_checkpoint(tmp_path), device="cpu", dtype="float32")
    info, random = backend.info, np.random.default_rng(3)
    last, heads = info.layers - 1, tuple(range(info.heads))
    late = Want(
        SentenceWant(layers=(info.layers,)),
        token_layers=(info.layers,),
        attention=AttentionWant((last,), heads),
        summary=SummaryWant((last,), heads, ()),
    )
    plain = Want(SentenceWant(layers=(info.layers,)))
    texts, wants = [], []
    for text in (*sample([9, 20, 20]), *sample([9, 5])):
        for number in range(12):
            changes = random_changes(random, info.layers, info.heads, info.hidden_size, len(text))
            texts.append(text)
            wants.append(with_changes((plain, plain, late, want_all(backend))[number % 4], changes))
    texts, wants = [*texts, *sample([7, 30])], [*wants, plain, late]
    # PyTorch projects the embeddings of these, and on some processors rounds with the number of tokens.
    same = assert_close if family in ("albert", "electra", "rembert") else assert_same
    for ours, theirs in zip(run(backend, texts, wants), apart(backend, texts, wants), strict=True):
        same(ours, theirs)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", pytest.param("int8", marks=needs_int8)])
@needs_kernels
def test_a_sweep_over_all_heads_runs_little_more_than_half_of_the_layers(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokens of all layers are counted; the vectors are those of the heads one by one."""
    checkpoint = load_checkpoint(resolve(MINILM))
    backend = TorchBackend(checkpoint, device="cpu", dtype=dtype)
    (text,) = checkpoint.tokenizer.encode(["Two dogs run through a field of tall grass, far from any house."])
    plain = Want(SentenceWant(layers=(6,)))
    sweep = [
        replace(plain, interventions=Interventions((HeadScale(layer, (head,)),)))
        for layer in range(6)
        for head in range(12)
    ]
    texts, wants, ran = [text] * 73, [plain, *sweep], []
    describe = Passes.describe

    def count(*args: Any, **options: Any) -> Any:
        described = describe(*args, **options)
        ran.append(described.layers.count * described.layers.tokens)
        return described

    monkeypatch.setattr(Passes, "describe", count)
    outputs = backend.run(Batch.pack(texts, wants))
    # The text itself in six layers; the heads of layer l in those from l on.
    assert sum(ran) == len(text) * (6 + 12 * sum(6 - layer for layer in range(6)))
    for ours, theirs in zip(outputs, apart(backend, texts, wants), strict=True):
        assert_same(ours, theirs)
