"""A short text whose pass is prepared has the same hidden states, to the last bit, as in any batch."""

import os
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from model.arrays import IntArray
from model.contract import AttentionWant, Batch, FloatArray, Output, PoolingMode, SentenceWant, Want
from model.encoder.encoder import Encoder
from model.encoder.packing import Packing
from model.encoder.plan import Plan
from model.progress import Progress
from model.pytorch.kernels.library import Kernels
from model.pytorch.kernels.short_passes import MOST_TOKENS, ShortPasses
from model.pytorch.kernels.stack import run_on_kernels
from tests.model.test_kernel_steps import BASE, EMBEDDED, RUN, every
from tests.references.comparing import distance
from tests.support.backends import ROOT
from tests.support.doubles import tokenizer
from tests.support.kernel import FLOAT32, STEPS, WIDENED, kernels_of, needs_kernels
from tests.support.product import minilm, random_encoder

LENGTHS = (5, 1, 64, 5, 17, 64)
LONG = replace(BASE, max_positions=70)


def texts(encoder: Encoder) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Token and segment ids of texts, none of which is padding."""
    generator = torch.Generator().manual_seed(5)
    config = encoder.config
    return [
        (
            torch.randint(2, config.vocab_size, (length,), generator=generator),
            torch.randint(max(1, config.segments), (length,), generator=generator),
        )
        for length in LENGTHS
    ]


def vector_of(output: Output) -> FloatArray:
    assert output.sentence is not None
    return output.sentence


def whole(encoder: Encoder, ids: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
    """The last hidden state, as a batch is run."""
    last = encoder.config.num_layers
    return encoder(ids, segments, Packing.of([len(ids)]), Plan({last}))[last]


def on_kernels(encoder: Encoder, kernels: Kernels, steps: str) -> ShortPasses | None:
    """Have native kernels run an encoder."""
    dtype = getattr(torch, steps.partition("_")[0])
    encoder.reduce_precision(dtype)
    run_on_kernels(encoder, kernels, dtype)
    return ShortPasses.of(encoder)


@pytest.mark.in_turns
@every(RUN)
@torch.inference_mode()
def test_prepared_passes_compute_what_the_modules_do(choice: dict[str, Any]) -> None:
    """Every kind of layer, one length after another, and lengths that come again."""
    config = replace(LONG, **choice)
    encoder, modules = random_encoder(config), random_encoder(config)
    short = on_kernels(encoder, kernels_of(FLOAT32), FLOAT32)
    biased = config.biased or config.disentangled is not None  # left to others
    assert (short is None) == (biased or encoder.embedder is None)
    if short is None:
        return
    for ids, segments in texts(encoder):
        state = short.run(ids.numpy(), segments.numpy(), Progress())
        assert distance(state, whole(modules, ids, segments)) < 2e-5
        assert (state == whole(encoder, ids, segments)).all()


@every(EMBEDDED)
@torch.inference_mode()
def test_embeddings_of_every_kind_are_prepared_or_left_to_others(choice: dict[str, Any]) -> None:
    """Padding among the tokens moves the positions of others, which a prepared pass does not know."""
    config = replace(LONG, **{"max_positions": 70, **choice})
    encoder = random_encoder(config)
    short = on_kernels(encoder, kernels_of(FLOAT32), FLOAT32)
    assert (short is None) == (encoder.embedder is None)
    if short is None:
        return
    room = config.position_limit or MOST_TOKENS
    for ids, segments in texts(encoder):
        if len(ids) <= room:
            assert short.takes(ids.numpy())
            state = short.run(ids.numpy(), segments.numpy(), Progress())
            assert (state == whole(encoder, ids, segments)).all()
    if config.padding_id is not None:
        assert not short.takes(np.array([3, config.padding_id, 4]))
    assert not short.takes(np.zeros(0, np.int64))
    assert not short.takes(np.full(MOST_TOKENS + 1, 2))


@needs_kernels
@pytest.mark.parametrize("steps", [*STEPS, WIDENED])
@torch.inference_mode()
def test_every_precision_is_prepared(steps: str) -> None:
    """The rounded hidden state 0 belongs to the text that is run, not to the one before."""
    encoder = random_encoder(LONG)
    short = on_kernels(encoder, kernels_of(steps), steps)
    assert short is not None
    for ids, segments in texts(encoder):
        assert (short.run(ids.numpy(), segments.numpy(), Progress()) == whole(encoder, ids, segments)).all()


@needs_kernels
@torch.inference_mode()
def test_an_id_without_an_embedding_is_refused_and_the_next_text_runs() -> None:
    """Nothing beyond a table is read."""
    encoder = random_encoder(LONG)
    short = on_kernels(encoder, kernels_of(FLOAT32), FLOAT32)
    assert short is not None
    ids = np.array([2, LONG.vocab_size, 3])
    with pytest.raises(ValueError, match="shapes do not match"):
        short.run(ids, np.zeros(3, np.int64), Progress())
    ids[1] = 4
    state = short.run(ids, np.zeros(3, np.int64), Progress())
    assert (state == whole(encoder, torch.from_numpy(ids), torch.zeros(3, dtype=torch.int64))).all()


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the texts of which prepared passes were run."""
    lengths: list[int] = []
    run = ShortPasses.run

    def noted(self: ShortPasses, ids: IntArray, segments: IntArray, progress: Progress) -> torch.Tensor:
        lengths.append(len(ids))
        return run(self, ids, segments, progress)

    monkeypatch.setattr(ShortPasses, "run", noted)
    return lengths


@needs_kernels
@pytest.mark.parametrize("mode", ["mean", "cls", "last", "max"])
def test_vectors_are_kept_and_threads_keep_apart(mode: PoolingMode, prepared: list[int]) -> None:
    """A vector is not overwritten by the next text of its thread, nor by one of another thread."""
    backend = minilm()
    want = Want(SentenceWant((mode,), (6,)))
    encodings = tokenizer().encode([f"a text about {word}" for word in ("tea", "rain", "chess", "salt")])
    expected = [vector_of(output) for output in backend.run(Batch.pack(encodings, [want] * 4))]
    assert prepared == []
    wrong: list[int] = []

    def run(first: int) -> None:
        kept = []
        for i in range(40):
            which = (first + i) % 4
            (output,) = backend.run(Batch.pack([encodings[which]], [want]), lanes=2)
            kept.append((which, vector_of(output)))
        wrong.extend(which for which, vector in kept if not np.array_equal(vector, expected[which]))

    threads = [threading.Thread(target=run, args=(first,)) for first in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(prepared) == 120


@needs_kernels
@pytest.mark.parametrize(
    ("want", "prepares"),
    [
        (Want(SentenceWant(("cls",), (6,))), True),
        (Want(SentenceWant(("last", "max"), (6,), normalize=True, dimensions=100)), True),
        (Want(SentenceWant(("mean",), (6, 3))), False),
        (Want(SentenceWant(("mean",), (3,))), False),
        (Want(SentenceWant(("mean",), (6,)), token_layers=(6,)), False),
        (Want(SentenceWant(("mean",), (6,)), attention=AttentionWant((0,), (0,))), False),
        (Want(), False),
    ],
    ids=["cls", "last and max", "two layers", "another layer", "tokens too", "maps too", "nothing"],
)
def test_every_want_is_answered_as_in_a_batch(want: Want, prepares: bool, prepared: list[int]) -> None:
    """Whether or not its pass is prepared, which it is for a vector of the last layer alone."""
    backend = minilm()
    encodings = tokenizer().encode(["a short text", "and a somewhat longer one"])
    for i, expected in enumerate(backend.run(Batch.pack(encodings, [want] * 2))):
        prepared.clear()
        output = backend.run(Batch.pack([encodings[i]], [want]))[0]
        assert prepared == ([len(encodings[i])] if prepares else [])
        for one, other in ((output.sentence, expected.sentence), (output.tokens, expected.tokens)):
            assert (one is None) == (other is None)
            assert one is None or other is None or np.array_equal(one, other)


_HELPERS = """
import os
import time
from model.contract import Batch, SentenceWant, Want
from tests.support.doubles import tokenizer
from tests.support.product import minilm

def threads(expected=None):
    until = time.monotonic() + (0.2 if expected is None else 20)  # a thread that ends is there for a moment
    while (found := len(os.listdir("/proc/self/task"))) != expected and time.monotonic() < until:
        time.sleep(0.01)
    return found

backend = minilm()
backend.use_threads(3)
batch = Batch.pack(tokenizer().encode(["a short text"]), [Want(SentenceWant(("mean",), (6,)))])
backend.run(batch)
before = threads()
backend.end_helpers()
print(before - threads(before - 2))
backend.run(batch)
print(before - threads(before))
"""


@pytest.mark.thorough
@needs_kernels
def test_helpers_end_when_they_are_told_to() -> None:
    """Those of the calling thread, which starts them anew."""
    done = subprocess.run(
        [sys.executable, "-c", _HELPERS],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == ["2", "0"]
