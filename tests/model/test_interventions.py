"""Interventions equal hooks on `transformers`, for every family, and touch no sequence but their own."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel

from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.source import resolve
from model.contract import AttentionWant, Backend, Encoding, SentenceWant, SummaryWant, Want
from model.pytorch.backend import TorchBackend
from model.pytorch.kernels import stack
from tests.model.test_int8_backend import TEXTS
from tests.references import measures
from tests.references.checkpoints import MINILM
from tests.references.comparing import distance, relative_distance
from tests.references.encoder import softmax
from tests.references.families import Written
from tests.references.interventions import Change, ChangedJina, Reference, Remembered, run_changed
from tests.references.jina import write_jina
from tests.support.families import ENCODERS, EXACT, SMALL, cosine, every_family, sample, write_small
from tests.support.interventions import in_layers, random_changes, with_changes
from tests.support.kernel import held_to_widening, runs_int8
from tests.support.product import run, want_all

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = (1, 2, 7, 20, 40)
COUNT = 50


FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    **{family: (family, {}) for family in SMALL},
    "windows": ("modernbert", {"local_attention": 8, "global_attn_every_n_layers": 2}),
    "alone in a head": ("bert", {"hidden_size": 30, "num_attention_heads": 1}),
    "shared keys": ("eurobert", {"num_attention_heads": 6, "head_dim": 16, "num_key_value_heads": 2}),
}


def load(folder: Path, *, native: bool) -> TorchBackend:
    """A checkpoint in float32, on the kernels or without."""
    return TorchBackend(load_checkpoint(folder), device="cpu", dtype="float32", native=native)


def check(backend: Backend, reference: Reference, bound: float = EXACT) -> None:
    """Hidden states and maps of 50 sequences with other interventions, in one batch and alone.

    Five of the batch have none, and on the native kernels the same bits as in a batch without any. PyTorch
    and graphs round with the batch.
    """
    info, random = backend.info, np.random.default_rng(1)
    texts = sample([LENGTHS[number % len(LENGTHS)] for number in range(COUNT + 5)])
    sizes = info.layers, info.heads, info.hidden_size
    changes = [random_changes(random, *sizes, len(one), info.interventions) for one in texts]
    changes = [in_layers(some, info.attention_layers) for some in changes]
    changes[COUNT:] = [[] for _ in changes[COUNT:]]
    want = want_all(backend)
    wants = [with_changes(want, some) if some else want for some in changes]
    together = run(backend, texts, wants)
    plain = run(backend, texts, [want] * len(texts)) if info.kernels else []
    for number, (text, some, output) in enumerate(zip(texts, changes, together, strict=True)):
        if not some and info.kernels:
            np.testing.assert_array_equal(output.tokens, plain[number].tokens)
            np.testing.assert_array_equal(output.attention, plain[number].attention)
        states, maps = reference(text.token_ids, text.segment_ids, some)
        for one in (output, *(run(backend, [text], [wants[number]]) if number % 5 == 0 else ())):
            assert one.finite
            assert distance(one.attention, maps) <= bound, some
            for ours, theirs in zip(one.tokens, states, strict=True):
                assert relative_distance(ours, theirs) <= bound, some


@pytest.fixture(scope="module")
def hooked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Reference]:
    """A folder, and its model in `transformers`, which runs once for all that are compared with it."""
    folder = tmp_path_factory.mktemp("hooked")
    family, options = FAMILIES[request.param]
    written = write_small(folder, family, ENCODERS.get(family, "Model"), **options)
    if family in (
        "mt5",
        "t5",
        "umt5",
    ):  # their scores are not scaled: float32 is a bound's worth from float64
        written.model.double()
    return folder, Remembered(partial(run_changed, written))


@pytest.mark.in_turns
@pytest.mark.parametrize("native", [True, False], ids=["kernels", "plain"])
@every_family("hooked", FAMILIES, indirect=True)
def test_interventions_are_those_of_hooks(hooked: tuple[Path, Reference], native: bool) -> None:
    """In every family, for 50 different ones in one batch, beside sequences without, and alone."""
    folder, reference = hooked
    check(load(folder, native=native), reference)


@pytest.fixture(scope="module")
def biased(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reference]:
    """A folder with ALiBi, and a reference that is written out."""
    folder = tmp_path_factory.mktemp("biased")
    return folder, Remembered(partial(ChangedJina.run_changed, write_jina(folder)))


@pytest.mark.parametrize("native", [True, False], ids=["kernels", "plain"])
def test_interventions_beside_a_bias_by_distance(biased: tuple[Path, Reference], native: bool) -> None:
    """Likewise with ALiBi."""
    folder, reference = biased
    check(load(folder, native=native), reference)


def random_batch(
    backend: TorchBackend, lengths: Sequence[int], *, seed: int = 1
) -> tuple[list[Encoding], list[list[Change]]]:
    """Texts of these lengths, and interventions in every second one."""
    info, random = backend.info, np.random.default_rng(seed)
    return sample(lengths), [
        random_changes(random, info.layers, info.heads, info.hidden_size, length) if number % 2 else []
        for number, length in enumerate(lengths)
    ]


@pytest.mark.parametrize("native", [True, False], ids=["kernels", "plain"])
def test_tokens_that_are_not_attended_to_stay_so(native: bool, tmp_path: Path) -> None:
    """The masks that fill up a query of late interaction, with blocked edges beside them."""
    written = write_small(tmp_path, "bert", "Model")
    backend = load(tmp_path, native=native)
    texts, changes = random_batch(backend, [8, 9, 12, 12, 30, 30])
    texts = [replace(text, unattended=len(text) // 3) for text in texts]
    want = Want(token_layers=tuple(range(backend.info.layers + 1)))
    outputs = run(backend, texts, [with_changes(want, some) for some in changes])
    for text, some, output in zip(texts, changes, outputs, strict=True):
        states, _ = run_changed(written, text.token_ids, text.segment_ids, some, text.unattended)
        assert output.tokens is not None
        for ours, theirs in zip(output.tokens, states, strict=True):
            assert relative_distance(ours, theirs) <= EXACT, some


@pytest.mark.in_turns
@pytest.mark.parametrize("native", [True, False], ids=["kernels", "plain"])
@every_family("family", ["bert", "deberta-v2", "modernbert", "t5", "qwen3", "gemma3_text"])
def test_statistics_are_those_of_the_changed_maps(family: str, native: bool, tmp_path: Path) -> None:
    """Rows without keys count for nothing; computed while attending, and apart beside other maps."""
    written = write_small(tmp_path, family, ENCODERS.get(family, "Model"))
    backend = load(tmp_path, native=native)
    layers, heads = tuple(range(backend.info.layers)), tuple(range(backend.info.heads))
    texts, changes = random_batch(backend, [7, 7, 7, 20, 20, 40, 40], seed=3)
    changes[1] = [{"kind": "edges", "layers": layers, "heads": heads, "queries": range(7), "keys": range(7)}]
    scores, largest = AttentionWant(layers, heads, weights="score"), AttentionWant(layers, heads, top_k=2)
    for others in (None, scores, largest):
        want = Want(summary=SummaryWant(layers, heads, special=(0, 6)), attention=others)
        found: list[Any] = run(backend, texts, [with_changes(want, some) for some in changes])
        for text, some, output in zip(texts, changes, found, strict=True):
            _, maps = run_changed(written, text.token_ids, text.segment_ids, some)
            special = np.isin(np.arange(len(text)), (0, 6))
            for name, expected in measures.summary(maps.astype(np.float32), special).items():
                assert relative_distance(output.summary[name], expected) <= 2e-5, (name, some)
            if others is largest:
                assert distance(output.top.weights, np.sort(maps, -1)[..., ::-1][..., :2]) <= EXACT
            elif others is scores:
                empty = maps.sum(-1) == 0
                assert (np.isneginf(output.attention).all(-1) == empty).all()
                assert distance(softmax(output.attention[~empty]), maps[~empty]) <= EXACT


@pytest.mark.parametrize("native", [True, False], ids=["kernels", "plain"])
def test_a_rollout_and_norms_are_those_of_the_changed_run(native: bool, tmp_path: Path) -> None:
    """Both read attention apart from the run, which must hide the same edges."""
    written = write_small(tmp_path, "bert", "Model")
    backend = load(tmp_path, native=native)
    layers, heads = tuple(range(backend.info.layers)), tuple(range(backend.info.heads))
    texts, changes = random_batch(backend, [7, 7, 7, 20, 20, 40, 40], seed=5)
    plain = [
        Want(attention=AttentionWant(layers, heads, aggregate="rollout")),
        Want(attention=AttentionWant(layers, heads, weights="value_norm")),
    ]
    found: list[list[Any]] = [
        run(backend, texts, [with_changes(want, some) for some in changes]) for want in plain
    ]
    rollouts, norms = found
    for i, (text, some) in enumerate(zip(texts, changes, strict=True)):
        states, maps = run_changed(written, text.token_ids, text.segment_ids, some)
        assert distance(rollouts[i].attention, measures.rollout(list(maps.mean(1)))) <= EXACT
        for layer in layers:
            attention = written.model.encoder.layer[layer].attention
            size = attention.self.attention_head_size
            with torch.inference_mode():
                values = attention.self.value(torch.tensor(states[layer])).view(len(text), -1, size)
            output = attention.output.dense.weight.detach().T.reshape(-1, size, states.shape[-1])
            expected = measures.value_norms(
                maps[layer].astype(np.float32), values.transpose(0, 1).numpy(), output.numpy()
            )
            assert relative_distance(norms[i].attention[layer], expected) <= 2e-5, some


@pytest.fixture(scope="module")
def minilm() -> Reference:
    """The embedded model in `transformers`, which runs once for all precisions."""
    model = AutoModel.from_pretrained(resolve(MINILM), attn_implementation="eager").eval()
    return Remembered(partial(run_changed, Written(resolve(MINILM), model, takes_segments=True)))


def real_texts() -> list[Encoding]:
    """Sentences, one to twelve at a time: so many tokens that the kernels run them in several parts."""
    texts = [
        " ".join((TEXTS * 4)[i : i + count]) for i, count in enumerate([1, 1, 1, 1, 2, 3, 4, 5, 8, 8, 12, 12])
    ]
    encodings = load_checkpoint(resolve(MINILM)).tokenizer.encode([*texts, *texts[::-1], *texts])
    assert sum(map(len, encodings)) > 1.5 * stack._PART
    return encodings


def patched(changes: list[Change], donor: Encoding, reference: Reference) -> list[Change]:
    """Take the states of some tokens from the run of another text: those that models are made for.

    Were all tokens the same, the mean over them would not even out what rounding does to each.
    """
    states, _ = reference(donor.token_ids, donor.segment_ids, [])
    for one in changes:
        if one["kind"] == "states":
            one["vector"], one["tokens"] = states[one["layer"]][len(donor) // 2], one["tokens"][:3]
    return changes


@pytest.mark.parametrize(
    "native", [True, pytest.param(False, marks=pytest.mark.thorough)], ids=["kernels", "plain"]
)
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "bfloat16 widened", "int8"])
def test_every_precision_keeps_its_bound_and_the_bits_of_other_sequences(
    precision: str, native: bool, minilm: Reference
) -> None:
    """Vectors of a real model are as near to float32 as without interventions, observed and not.

    Each text has one: several together leave little of a vector, of which rounding is then a larger part.
    """
    dtype = precision.partition(" ")[0]
    if dtype == "int8" and not (native and runs_int8()):
        pytest.skip("eight bits need the kernels, and their instructions")
    with held_to_widening() if "widened" in precision else nullcontext():
        backend = TorchBackend(load_checkpoint(resolve(MINILM)), device="cpu", dtype=dtype, native=native)
    least = {"float32": 1 - 1e-6, "bfloat16": 0.9999, "int8": 0.997}[dtype]
    texts, random = real_texts(), np.random.default_rng(2)
    changes = [
        patched(random_changes(random, 6, 12, 1, len(text))[:1], texts[(i + 1) % len(texts)], minilm)
        if i % 3
        else []
        for i, text in enumerate(texts)
    ]
    every = (tuple(range(6)), tuple(range(12)))
    plain = Want(SentenceWant(("mean",), (6,), normalize=True), attention=AttentionWant(*every))
    wants = [with_changes(plain, some) if some else plain for some in changes]
    outputs: list[Any] = run(backend, texts, wants)
    before: list[Any] = run(backend, texts, [plain] * len(texts))
    unobserved: list[Any] = run(backend, texts, [replace(want, attention=None) for want in wants])
    for i, (text, some, output) in enumerate(zip(texts, changes, outputs, strict=True)):
        if not some and native:
            np.testing.assert_array_equal(output.sentence, before[i].sentence)
            np.testing.assert_array_equal(unobserved[i].sentence, before[i].sentence)
            np.testing.assert_array_equal(output.attention, before[i].attention)
            continue
        states, maps = minilm(text.token_ids, text.segment_ids, some)
        for one in (output, unobserved[i]):
            assert cosine(one.sentence, states[-1].mean(0)) >= least, some
        bound = EXACT if dtype in ("float32", "int8") else 0.05
        assert distance(output.attention, maps) <= bound, some
