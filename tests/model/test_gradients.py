"""Gradients by embeddings equal those of `transformers` in float64, for every family, pooling and target."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.source import resolve
from model.choices import TokenVectorsWant
from model.contract import Batch, Encoding, LogitsWant, Output, SentenceWant, Want
from model.encoder.interventions import GradientPoint, Side
from model.errors import Stopped
from model.progress import Progress
from model.pytorch import gradients
from model.pytorch.backend import TorchBackend
from tests.model.families.test_predictions import families_with, write
from tests.model.test_interventions import FAMILIES
from tests.references.checkpoints import MINILM
from tests.references.comparing import relative_distance
from tests.references.gradients import Differentiable, Score, Text, compared, max_sim, pooled
from tests.references.interventions import ChangedJina
from tests.references.jina import write_jina
from tests.references.late_interaction import write_pylate
from tests.support.families import ENCODERS, SIZES, encoding_of, every_family, sample, write_small
from tests.support.kernel import needs_int8
from tests.support.product import run

pytestmark = pytest.mark.usefixtures("one_thread")

EXACT = 1e-4
"""Of float32: a gradient has gone through all layers, there and back."""
SHARES = (0.0, 0.3, 1.0)
MASK = 4
POOLINGS = ("mean", "cls", "max", "mean_max", "mean_sqrt_len", "weighted_mean", "last")
FUNCTIONS = ("cosine", "dot", "euclidean", "manhattan")
LENGTHS = (2, 7, 20, 7, 13, 13)


def load(folder: Path, dtype: str = "float32", *, native: bool = True) -> TorchBackend:
    return TorchBackend(load_checkpoint(folder, deferred=True), device="cpu", dtype=dtype, native=native)


def moved(length: int) -> tuple[int, ...]:
    """All but the first and the last token, of long texts."""
    return tuple(range(1, length - 1)) if length > 2 else tuple(range(length))


def text_of(encoding: Encoding, unattended: int = 0) -> Text:
    return Text(encoding.token_ids, encoding.segment_ids, moved(len(encoding)), unattended)


def joined(*encodings: Encoding) -> Encoding:
    ids, segments = ([n for one in encodings for n in getattr(one, f)] for f in ("token_ids", "segment_ids"))
    return Encoding(ids, segments, [], [], [], [], truncated=False, original_length=len(ids))


def point_of(encodings: Sequence[Encoding], share: float, skip: int = 0, **more: Any) -> GradientPoint:
    sides, tokens, before = [], [], 0
    for one in encodings:
        sides.append(Side(len(one), skip))
        tokens += [before + token for token in moved(len(one))]
        before += len(one)
    return GradientPoint(tuple(sides), tokens=tuple(tokens), baseline=MASK, share=share, **more)


Case = tuple[Encoding, Want, list[Text], Score]


def pairs(skip: int = 0) -> list[Case]:
    """Pairs of all lengths, each with a pooling, a function and a point of its own."""
    texts, cases = sample(LENGTHS), []
    for number, pooling in enumerate(POOLINGS):
        function, share = FUNCTIONS[number % len(FUNCTIONS)], SHARES[number % len(SHARES)]
        both = [texts[number % len(texts)], texts[(2 * number + 1) % len(texts)]]
        # Other texts in the place of those that are too short: of equal vectors, a distance has no gradient.
        both = [one if len(one) > skip else texts[2 + side] for side, one in enumerate(both)]

        def score(first: Any, second: Any, pooling: str = pooling, function: str = function) -> Any:
            return compared(function, pooled(first, pooling, skip), pooled(second, pooling, skip))

        modes: Any = ("mean", "max") if pooling == "mean_max" else (pooling,)
        for at in {share, 0.5}:
            point = point_of(both, at, skip, function=function)
            want = Want(SentenceWant(modes, (LAYERS,), skip=skip), gradient=point)
            cases.append((joined(*both), want, list(map(text_of, both)), score))
    return cases


LAYERS = 3


def logits(labels: int, *, by_token: bool) -> list[Case]:
    cases: list[Case] = []
    for number, one in enumerate(sample(LENGTHS)):
        label, token = number % labels, len(one) // 2 if by_token else None

        def score(found: Any, label: int = label, token: int | None = token) -> Any:
            return (found if token is None else found[token])[label]

        for share in (SHARES[number % len(SHARES)], 0.5):
            point = point_of([one], share, label=label, token=token)
            cases.append((one, Want(heads=(LogitsWant(),), gradient=point), [text_of(one)], score))
    return cases


def with_layers(cases: Sequence[Case], layers: int) -> list[Case]:
    """The last hidden state of a model with so many layers."""
    return [
        (
            encoding,
            replace(want, sentence=want.sentence and replace(want.sentence, layers=(layers,))),
            texts,
            score,
        )
        for encoding, want, texts, score in cases
    ]


def check(backend: TorchBackend, reference: Differentiable, cases: Sequence[Case]) -> list[Output]:
    """In one batch beside plain sequences, and each third alone."""
    plain = Want(SentenceWant(("mean",), (backend.info.layers,)))
    beside = sample([5, 9])
    before = run(backend, beside, [plain] * 2)
    encodings, wants = [case[0] for case in cases], [case[1] for case in cases]
    together = run(backend, [*encodings, *beside], [*wants, plain, plain])
    for one, other in zip(together[-2:], before, strict=True):
        assert one.sentence is not None
        assert other.sentence is not None
        np.testing.assert_allclose(one.sentence, other.sentence, rtol=0, atol=1e-6)
    for number, (output, case) in enumerate(zip(together[:-2], cases, strict=True)):
        encoding, want, texts, score = case
        assert want.gradient is not None
        expected, value = reference.point(texts, MASK, want.gradient.share, score)
        for found in (output, *(run(backend, [encoding], [want]) if number % 3 == 0 else ())):
            assert found.heads["gradient"].shape == (len(encoding),)
            assert relative_distance(found.heads["gradient"], expected) <= EXACT, want
            assert abs(float(found.heads["value"][0]) - value) <= EXACT * max(1.0, abs(value))
    return together[:-2]


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "native", [True, pytest.param(False, marks=pytest.mark.thorough)], ids=["kernels", "plain"]
)
@every_family("choice", FAMILIES)
def test_similarities(choice: str, native: bool, tmp_path: Path) -> None:
    """In every family, by every pooling and function, with and without the kernels."""
    family, options = FAMILIES[choice]
    written = write_small(tmp_path, family, ENCODERS.get(family, "Model"), **options)
    backend = load(tmp_path, native=native)
    reference = Differentiable(written.model, takes_segments=written.takes_segments)
    # A pooling and a function are computed after the layers, so one family has all.
    cases = pairs() if choice == "bert" else pairs()[::3]
    check(backend, reference, with_layers(cases, backend.info.layers))


def test_a_prompt_that_is_not_pooled(tmp_path: Path) -> None:
    """Its tokens are skipped by every pooling."""
    written = write_small(tmp_path, "bert", "Model")
    check(load(tmp_path), Differentiable(written.model, takes_segments=True), pairs(skip=3))


@pytest.mark.in_turns
@every_family("name", families_with("classification"))
def test_logits_of_texts(name: str, tmp_path: Path) -> None:
    """Of each label, by whatever the family pools."""
    written = write(tmp_path, name, "SequenceClassification", num_labels=5)
    reference = Differentiable(written.model, takes_segments=written.takes_segments)
    check(load(tmp_path), reference, logits(5, by_token=False))


@pytest.mark.in_turns
@every_family("name", families_with("token_classification"))
def test_logits_of_tokens(name: str, tmp_path: Path) -> None:
    """Of one token, by the embeddings of all."""
    written = write(tmp_path, name, "TokenClassification", num_labels=3)
    reference = Differentiable(written.model, takes_segments=written.takes_segments)
    check(load(tmp_path), reference, logits(3, by_token=True))


@pytest.mark.parametrize("function", ["max_sim", "mean_max_sim"])
def test_max_sim(function: str, tmp_path: Path) -> None:
    """A query is filled up with tokens that nothing attends to, and has its own vectors."""
    written = write_pylate(tmp_path, **SIZES)
    random = np.random.default_rng(0)
    query, document = (encoding_of(random.integers(5, 13, length).tolist()) for length in (12, 20))
    rows = (tuple(range(12)), tuple(range(0, 20, 2)))
    texts = [replace(text_of(query), unattended=5), text_of(document)]

    def score(first: Any, second: Any) -> Any:
        whole = max_sim(first[list(rows[0])], second[list(rows[1])], written.matrix)
        return whole / 12 if function == "mean_max_sim" else whole

    cases = []
    for share in SHARES:
        sides = (Side(12, rows=rows[0], unattended=5), Side(20, rows=rows[1]))
        point = replace(point_of([query, document], share), sides=sides, function=function)
        want = Want(heads=(TokenVectorsWant(()),), gradient=point)
        cases.append((joined(query, document), want, texts, score))
    check(load(tmp_path), Differentiable(written.reference.model, takes_segments=True), cases)


def test_a_bias_by_distance(tmp_path: Path) -> None:
    """With ALiBi, whose reference is written out: what a token adds is the slope on its way alone."""
    reference = write_jina(tmp_path)
    backend = load(tmp_path)
    (first, second) = sample([7, 9])
    last = backend.info.layers
    want = Want(SentenceWant(("mean",), (last,)), gradient=point_of([first, second], 0.4))
    (output,) = run(backend, [joined(first, second)], [want])
    ends = []
    for one in (first, second):
        other = [MASK if place in moved(len(one)) else token for place, token in enumerate(one.token_ids)]
        states = [reference.run(ids, one.segment_ids)[0][0] for ids in (one.token_ids, other)]
        ends.append((states[0], states[0] - states[1]))

    def value(changed: tuple[int, int, float] | None = None) -> float:
        vectors = []
        for side, one in enumerate((first, second)):
            whole, change = ends[side]
            state = whole - 0.6 * change
            if changed is not None and changed[0] == side:
                state[changed[1]] += changed[2] * change[changed[1]]
            edits = [
                {"kind": "states", "layer": 0, "tokens": [token], "vector": row}
                for token, row in enumerate(state)
            ]
            hidden, _ = ChangedJina.run_changed(reference, one.token_ids, one.segment_ids, edits)
            vectors.append(hidden[-1].mean(0))
        u, v = vectors
        return float(u @ v / np.linalg.norm(u) / np.linalg.norm(v))

    slopes = [
        (value((side, token, 1e-4)) - value((side, token, -1e-4))) / 2e-4
        for side, one in enumerate((first, second))
        for token in range(len(one))
    ]
    assert abs(float(output.heads["value"][0]) - value()) <= 1e-5
    assert relative_distance(output.heads["gradient"], np.array(slopes)) <= EXACT


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("int8", marks=needs_int8)])
def test_they_are_those_of_float32_in_every_precision(dtype: str, tmp_path: Path) -> None:
    """The weights of the file are used, not the rounded ones."""
    write_small(tmp_path, "bert", "Model")
    encodings, wants = [case[0] for case in pairs()], [case[1] for case in pairs()]
    exact, found = (run(load(tmp_path, one), encodings, wants) for one in ("float32", dtype))
    for one, other in zip(exact, found, strict=True):
        for name in ("gradient", "value"):
            np.testing.assert_array_equal(one.heads[name], other.heads[name])


def test_what_is_not_kept_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass of many tokens keeps one state of each layer, and has the same numbers."""
    write_small(tmp_path, "modernbert", "Model")
    backend, cases = load(tmp_path), with_layers(pairs(), 3)
    encodings, wants = [case[0] for case in cases], [case[1] for case in cases]
    kept = run(backend, encodings, wants)
    monkeypatch.setattr(gradients, "_KEPT", 0)
    for one, other in zip(kept, run(backend, encodings, wants), strict=True):
        np.testing.assert_array_equal(one.heads["gradient"], other.heads["gradient"])


class Stopping(Progress):
    """Ends the pass after some steps."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._after = after

    def step(self, layers: int = 0) -> None:
        if self.steps == self._after:
            self.stop()
        super().step(layers)


def test_a_pass_ends_between_layers() -> None:
    """On the way there and on the way back, once nobody waits for it."""
    backend = load(resolve(MINILM))
    (text,) = sample([9])
    want = Want(SentenceWant(("mean",), (6,)), gradient=point_of([text, text], 0.5))
    for steps in (0, 3, 9):
        progress = Stopping(steps)
        with pytest.raises(Stopped):
            backend.run(Batch.pack([joined(text, text)], [want]), progress=progress)
        assert progress.steps == steps + 1


def test_paths_that_are_short_have_no_residual() -> None:
    """Integrated over many points, what tokens add is the difference of the two ends (completeness)."""
    backend = load(resolve(MINILM))
    (text,) = sample([9])
    both = joined(text, text)
    want = Want(SentenceWant(("cls",), (6,)), gradient=point_of([text, text], 0.0, function="dot"))
    assert want.gradient is not None
    shares = [0.0, 1.0, *((i + 0.5) / 64 for i in range(64))]
    wants = [replace(want, gradient=replace(want.gradient, share=share)) for share in shares]
    first, last, *points = run(backend, [both] * len(wants), wants)
    added = np.mean([one.heads["gradient"] for one in points], axis=0, dtype=np.float64).sum()
    difference = float(last.heads["value"][0] - first.heads["value"][0])
    assert abs(added - difference) <= 0.01 * abs(difference)
    assert torch.is_grad_enabled()


@pytest.mark.thorough
def test_the_first_pass_imports_nothing() -> None:
    """PyTorch would import SymPy, for seconds on a busy machine, and the pass would count as hung."""
    program = """
import sys
from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.source import resolve
from model.contract import Batch, SentenceWant, Want
from model.encoder.interventions import GradientPoint, Side
from model.pytorch.backend import TorchBackend
checkpoint = load_checkpoint(resolve("all-MiniLM-L6-v2"))
backend = TorchBackend(checkpoint, device="cpu", dtype="float32")
(text,) = checkpoint.tokenizer.encode([("a cat", "a kitten")])
point = GradientPoint((Side(4), Side(len(text) - 4)), tokens=(1, 2), baseline=103, share=0.5)
before = set(sys.modules)
backend.run(Batch.pack([text], [Want(SentenceWant(("mean",), (6,)), gradient=point)]))
print(*sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
