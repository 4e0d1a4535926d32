"""Models that run in eight bits."""

import re
from typing import cast

import numpy as np
import pytest

from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.source import resolve
from model.contract import (
    STATISTICS,
    AttentionWant,
    Batch,
    FloatArray,
    Output,
    SentenceWant,
    SummaryWant,
    Want,
)
from model.errors import Unsupported
from model.pytorch.backend import TorchBackend
from model.pytorch.kernels import library
from model.pytorch.kernels.instructions import EIGHT_BITS, LACKING, LACKING_ON_ARM64
from tests.references.checkpoints import MINILM
from tests.support.kernel import needs_int8, needs_kernels, restrict_to

TEXTS = [
    "A man is playing a guitar.",
    "Two dogs run through a field of tall grass.",
    "The stock market fell sharply on Monday after the central bank raised interest rates.",
    "I never said that she stole my money, and that is all there is to it.",
]


SETS = {one.instructions.name: one.instructions for one in EIGHT_BITS if one.precision == "float32"}


@pytest.fixture(scope="module", params=["all", *SETS])
def models(request: pytest.FixtureRequest) -> tuple[TorchBackend, TorchBackend]:
    """The embedded model in eight bits and in float32: here, and on processors of one set alone."""
    with pytest.MonkeyPatch.context() as patch:
        restrict_to(SETS.get(request.param), patch)
        rounded, exact = (
            TorchBackend(load_checkpoint(resolve(MINILM)), dtype=dtype) for dtype in ("int8", "float32")
        )
    if request.param != "all":
        assert rounded.info.kernels == request.param
    return rounded, exact


def want(*, observed: bool = True) -> Want:
    """A unit sentence vector, and with `observed` every map and statistic."""
    layers, heads = tuple(range(6)), tuple(range(12))
    sentence = SentenceWant(("mean",), (6,), normalize=True)
    if not observed:
        return Want(sentence)
    return Want(sentence, attention=AttentionWant(layers, heads), summary=SummaryWant(layers, heads, (0,)))


def run(model: TorchBackend, *, observed: bool = True) -> list[Output]:
    """Run all texts in one batch."""
    encodings = load_checkpoint(resolve(MINILM)).tokenizer.encode(TEXTS)
    return model.run(Batch.pack(encodings, [want(observed=observed)] * len(TEXTS)))


@needs_int8
def test_vectors_are_near_those_of_float32_maps_and_statistics_the_same(
    models: tuple[TorchBackend, TorchBackend],
) -> None:
    """What is observed comes from a pass in float32; a vector loses some thousandths of its cosine."""
    for rounded, exact in zip(*map(run, models), strict=True):
        assert part(rounded, "sentence") @ part(exact, "sentence") >= 0.997
        assert np.array_equal(part(rounded, "attention"), part(exact, "attention"))
        assert rounded.summary is not None
        assert exact.summary is not None
        for name in STATISTICS:
            assert np.array_equal(rounded.summary[name], exact.summary[name])
    assert models[0].info.dtype == "int8"


@needs_int8
def test_a_text_is_the_same_alone_in_a_batch_and_without_maps(
    models: tuple[TorchBackend, TorchBackend],
) -> None:
    """Bit by bit: who else is in the batch, and what is observed, change nothing."""
    model, _ = models
    together, unobserved = run(model), run(model, observed=False)
    encodings = load_checkpoint(resolve(MINILM)).tokenizer.encode(TEXTS)
    wants = [want(), *(want(observed=False) for _ in TEXTS[1:])]
    first_observed = model.run(Batch.pack(encodings, wants))
    for i, encoding in enumerate(encodings):
        (alone,) = model.run(Batch.pack([encoding], [want()]))
        for one in (alone, unobserved[i], first_observed[i]):
            assert np.array_equal(part(one, "sentence"), part(together[i], "sentence"))
        assert np.array_equal(part(alone, "attention"), part(together[i], "attention"))
    assert np.array_equal(part(first_observed[0], "attention"), part(together[0], "attention"))


def part(output: Output, name: str) -> FloatArray:
    """An array that an output must have."""
    array = getattr(output, name)
    assert array is not None
    return cast(FloatArray, array)


def test_eight_bits_are_refused_without_native_kernels() -> None:
    """In a sentence that says what to choose instead."""
    with pytest.raises(Unsupported, match=r"it needs the native kernels, which are off; choose float32"):
        TorchBackend(load_checkpoint(resolve(MINILM)), dtype="int8", native=False)


@needs_kernels
@pytest.mark.parametrize(
    ("able", "lacking"), [({"avx2": True, "fma3": True}, LACKING), ({"neon": True}, LACKING_ON_ARM64)]
)
def test_eight_bits_are_refused_on_a_processor_that_lacks_instructions(
    able: dict[str, bool], lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Likewise, with what is true of its kind: on ARM64 nobody is told of AVX."""
    monkeypatch.setattr(library, "_capabilities", lambda _: able)
    sentence = f"cannot run here: {lacking}; choose float32"
    with pytest.raises(Unsupported, match=re.escape(sentence)):
        TorchBackend(load_checkpoint(resolve(MINILM)), dtype="int8")
