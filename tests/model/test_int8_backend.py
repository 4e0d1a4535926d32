"""Models that run in eight bits."""

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
from model.pytorch.kernels.library import NoKernels
from tests.references.checkpoints import MINILM
from tests.support.kernel import needs_int8

TEXTS = [
    "A man is playing a guitar.",
    "Two dogs run through a field of tall grass.",
    "The stock market fell sharply on Monday after the central bank raised interest rates.",
    "I never said that she stole my money, and that is all there is to it.",
]


@pytest.fixture(scope="module")
def models() -> tuple[TorchBackend, TorchBackend]:
    """The embedded model in eight bits and in float32."""
    checkpoint = load_checkpoint(resolve(MINILM))
    rounded = TorchBackend(checkpoint, dtype="int8")
    return rounded, TorchBackend(load_checkpoint(resolve(MINILM)), dtype="float32")


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


def test_what_cannot_run_in_eight_bits_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without native kernels, and on a processor without the instructions."""
    checkpoint = load_checkpoint(resolve(MINILM))
    with pytest.raises(Unsupported, match=r"it needs the native kernels, which are off; choose float32"):
        TorchBackend(checkpoint, dtype="int8", native=False)

    def lacking(**_: int) -> None:
        raise NoKernels("the processor has no AVX512-VNNI")

    monkeypatch.setattr("model.pytorch.precision.find_int8_kernels", lacking)
    with pytest.raises(Unsupported, match=r"cannot run here: the processor has no AVX512-VNNI; choose"):
        TorchBackend(checkpoint, dtype="int8")
