"""Folders in the form of bge-m3: three kinds of vectors of one pass, and pickles that stay closed."""

import logging
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.export import Dim

from export.convert import convert
from export.errors import ExportError
from model.checkpoints.checkpoint import load_checkpoint
from model.choices import TokenVectorsWant
from model.contract import Backend, HeadInfo, SentenceWant, SparseWant, Want
from model.errors import CheckpointError
from model.heads.sparse import TokenWeights
from model.loading import load_model
from model.tokenization.tokenizer import TextTokenizer
from tests.references.comparing import distance
from tests.references.hybrid import SIZE, Hybrid, write_hybrid
from tests.references.late_interaction import write_pylate
from tests.support.backends import load
from tests.support.exporting import export_silently
from tests.support.product import run

TEXTS = ["the man beats the boy", "hello, [SEP] world: [CLS] the boy", "a", "", "日 本 は boy", "hello " * 80]
FILES = ("sparse_linear.safetensors", "colbert_linear.safetensors")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Hybrid:
    """A folder whose layers are safetensors."""
    return write_hybrid(tmp_path_factory.mktemp("hybrid") / "m3")


def check(written: Hybrid, tokenizer: TextTokenizer, backend: Backend) -> None:
    """All three of every text in one batch, beside texts of which only one of them is wanted, and alone."""
    info = backend.info
    assert info.head == HeadInfo("hybrid", size=SIZE)
    assert (info.pooling, info.normalize) == (("cls",), True)
    encodings = tokenizer.of("document").encode(TEXTS)
    assert [one.token_ids for one in tokenizer.encode(TEXTS)] == [one.token_ids for one in encodings]
    sentence = SentenceWant(info.pooling, (info.layers,), info.normalize)
    heads = [(SparseWant(), TokenVectorsWant(one.vector_rows)) for one in encodings]
    wants = [Want(sentence, heads=both) for both in heads]
    others = [Want(sentence), Want(heads=heads[1][:1]), Want(heads=heads[2][1:])]
    outputs = run(backend, [*encodings, *encodings[:3]], [*wants, *others])
    for text, encoding, want, output in zip(TEXTS, encodings, wants, outputs, strict=False):
        expected = written.vectors(text)
        assert encoding.token_ids == expected.ids
        assert encoding.vector_rows == tuple(range(1, len(expected.ids)))
        for found in (output, *run(backend, [encoding], [want])):
            assert distance(found.sentence, expected.sentence) <= 1e-5
            assert distance(found.heads["token_vectors"], expected.tokens) <= 1e-5
            words, weights = found.heads["sparse_ids"], found.heads["sparse_weights"]
            assert sorted(words.tolist()) == sorted(expected.sparse)
            assert distance(weights, [expected.sparse[word] for word in words.tolist()]) <= 1e-5
            assert (np.diff(weights) <= 0).all()
    first, second, third = outputs[len(TEXTS) :]
    assert (distance(first.sentence, outputs[0].sentence), first.heads) == (0, {})
    assert list(second.heads) == ["sparse_ids", "sparse_weights"]
    assert list(third.heads) == ["token_vectors"]


def test_vectors_are_those_of_bge_m3(written: Hybrid) -> None:
    """Special tokens, written out or not, and unknown words have no weight; the first has no vector."""
    assert any(written.vectors(text).sparse for text in TEXTS)
    check(written, *load(written.folder, "torch"))


def test_a_folder_without_modules_is_pooled_as_flagembedding_does(tmp_path: Path) -> None:
    """By the first token, at unit length."""
    check(write_hybrid(tmp_path / "m3", modules=False), *load(tmp_path / "m3", "torch"))


@pytest.mark.thorough
def test_an_exported_folder_has_the_same_vectors(written: Hybrid, tmp_path: Path) -> None:
    """Without PyTorch: the layers are copied beside the graph."""
    export_silently(written.folder, tmp_path / "graph")
    check(written, *load_model(str(tmp_path / "graph"), kind="onnx", device="cpu"))


class LastState(torch.nn.Module):
    """What of a model other exporters trace."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> Any:
        return self.model(input_ids=ids, attention_mask=mask).last_hidden_state


@pytest.mark.thorough
def test_a_graph_of_another_exporter_has_the_same_vectors(written: Hybrid, tmp_path: Path) -> None:
    """If it returns hidden states, and the layers are in its folder."""
    shutil.copytree(written.folder, tmp_path / "m3")
    axes = {0: Dim("batch"), 1: Dim("length")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracer's own
        torch.onnx.export(
            LastState(written.reference.model).eval(),
            (torch.full((2, 7), 5), torch.ones(2, 7).long()),
            tmp_path / "m3/model.onnx",
            dynamo=True,
            input_names=["input_ids", "attention_mask"],
            output_names=["last_hidden_state"],
            dynamic_shapes=(axes, axes),
            verbose=False,
        )
    check(written, *load_model(str(tmp_path / "m3"), kind="onnx", device="cpu"))


def test_the_largest_weights_are_kept(written: Hybrid) -> None:
    """Of words, not of tokens: a word that comes twice counts once."""
    tokenizer, backend = load(written.folder, "torch")
    (encoding,) = tokenizer.encode(["the man beats the boy: the boy"])
    all_of_them, two = (run(backend, [encoding], [Want(heads=(SparseWant(k),))])[0] for k in (None, 2))
    assert len(all_of_them.heads["sparse_ids"]) > 2
    for name, array in two.heads.items():
        assert np.array_equal(array, all_of_them.heads[name][:2])


# ------------------------------------------------------------------------------------ pickles


class Touch:
    """Something that a pickle would run: it makes a file."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.place),)


def test_pickles_are_not_opened(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The folder is served for its sentence vectors, with a line about what would serve the others."""
    write_hybrid(tmp_path / "m3", pickled=True)
    trace = tmp_path / "trace"
    torch.save({"weight": Touch(trace)}, tmp_path / "m3/sparse_linear.pt")
    with caplog.at_level(logging.WARNING):
        _, backend = load_model(str(tmp_path / "m3"), device="cpu")
    assert backend.info.head is None
    assert "sparse_linear.pt and colbert_linear.pt are pickles" in caplog.text
    assert f"headlight convert {tmp_path / 'm3'} OUT_DIR" in caplog.text
    with pytest.raises(ExportError, match=r"sparse_linear\.pt is damaged, or contains more than weights"):
        convert(tmp_path / "m3", tmp_path / "new", overwrite=False)
    assert not trace.exists()
    torch.load(tmp_path / "m3/sparse_linear.pt", weights_only=False)
    assert trace.exists()


@pytest.mark.parametrize("weights", ["safetensors", "pickled"])
def test_a_converted_folder_has_all_vectors(weights: str, tmp_path: Path) -> None:
    """Whether the encoder is pickled, too, or only the layers."""
    written = write_hybrid(tmp_path / "m3", pickled=True)
    if weights == "pickled":
        torch.save(load_file(tmp_path / "m3/model.safetensors"), tmp_path / "m3/pytorch_model.bin")
        (tmp_path / "m3/model.safetensors").unlink()
    count = convert(tmp_path / "m3", tmp_path / "new", overwrite=False)
    assert count == 4 + (len(load_file(tmp_path / "new/model.safetensors")) if weights == "pickled" else 0)
    assert not list((tmp_path / "new").glob("*.pt"))
    check(written, *load(tmp_path / "new", "torch"))


@pytest.mark.parametrize("missing", [0, 1])
def test_one_layer_alone_is_refused(missing: int, written: Hybrid, tmp_path: Path) -> None:
    """FlagEmbedding would make both of them anew, at random. So is one pickle, when it is converted."""
    shutil.copytree(written.folder, tmp_path / "m3")
    (tmp_path / "m3" / FILES[missing]).unlink()
    with pytest.raises(CheckpointError) as refused:
        load_checkpoint(tmp_path / "m3")
    assert f"{FILES[missing]} is missing beside {FILES[1 - missing]}: bge-m3 has both" in str(refused.value)
    write_hybrid(tmp_path / "pickled", pickled=True)
    pickle = FILES[missing].replace(".safetensors", ".pt")
    (tmp_path / "pickled" / pickle).unlink()
    with pytest.raises(ExportError, match=f"{pickle} is missing: bge-m3 has two layers"):
        convert(tmp_path / "pickled", tmp_path / "new", overwrite=False)


@pytest.mark.parametrize(
    ("file", "tensors", "told"),
    [
        (0, {"weight": (2, 64), "bias": (2,)}, "it must have weight (1, 64) and bias (1,)"),
        (0, {"weight": (1, 32), "bias": (1,)}, "because the encoder's vectors have 64 components"),
        (0, {"weight": (1, 64)}, "it must have weight (1, 64) and bias (1,)"),
        (1, {"weight": (24, 32), "bias": (24,)}, "it must have weight (E, 64) and bias (E,)"),
        (1, {"weight": (24, 64), "bias": (23,)}, "it must have weight (E, 64) and bias (E,)"),
        (1, {"weight": (24, 64), "bias": ()}, "it must have weight (E, 64) and bias (E,)"),
        (1, {"weight": (0, 64), "bias": (0,)}, "it must have weight (E, 64) and bias (E,)"),
    ],
)
def test_layers_of_other_shapes_are_refused(
    file: int, tensors: dict[str, tuple[int, ...]], told: str, written: Hybrid, tmp_path: Path
) -> None:
    """In one sentence that says which file, what it has and what it must have."""
    shutil.copytree(written.folder, tmp_path / "m3")
    place = tmp_path / "m3" / FILES[file]
    save_file({name: torch.zeros(shape) for name, shape in tensors.items()}, place)
    with pytest.raises(CheckpointError) as refused:
        load_checkpoint(tmp_path / "m3")
    assert str(refused.value).startswith(f"{place} has tensors of the shapes ")
    assert told in str(refused.value)


def test_a_nan_in_a_layer_is_refused(written: Hybrid, tmp_path: Path) -> None:
    """Before any text runs."""
    shutil.copytree(written.folder, tmp_path / "m3")
    place = tmp_path / "m3" / FILES[0]
    save_file({"weight": torch.full((1, 64), torch.nan), "bias": torch.zeros(1)}, place)
    with pytest.raises(CheckpointError, match=r"sparse_linear\.safetensors has a NaN or an infinity"):
        load_checkpoint(tmp_path / "m3")


def test_a_model_of_another_kind_with_these_layers_is_refused(written: Hybrid, tmp_path: Path) -> None:
    """One of late interaction has such vectors of its own, and a classifier is no model of vectors."""
    write_pylate(tmp_path / "late", hidden_size=64)
    for file in FILES:
        shutil.copy(written.folder / file, tmp_path / "late")
    with pytest.raises(CheckpointError, match="but is configured for late interaction, sparse"):
        load_checkpoint(tmp_path / "late")
    write_hybrid(tmp_path / "classifier", modules=False, architecture="XLMRobertaForSequenceClassification")
    with pytest.raises(CheckpointError, match="its weights predict classification"):
        load_checkpoint(tmp_path / "classifier")


@pytest.mark.parametrize("lengths", [(0,), (0, 0), (3, 0, 5, 0)])
def test_texts_without_tokens_have_no_words(lengths: tuple[int, ...]) -> None:
    """Alone and beside others, whose words are the largest weights of their tokens."""
    random = np.random.default_rng(0)
    weight, bias = random.standard_normal(8).astype(np.float32), 0.25
    states = [random.standard_normal((length, 8)).astype(np.float32) for length in lengths]
    ids = [random.integers(0, 4, length) for length in lengths]
    found = [*TokenWeights(weight, bias, frozenset({0}))(states, ids, [None] * len(lengths))]
    for state, words, one in zip(states, ids, found, strict=True):
        exact: dict[int, float] = {}
        for word, hidden in zip(words.tolist(), state.astype(np.float64), strict=True):
            exact[word] = max(exact.get(word, 0.0), float(hidden @ weight + bias))
        exact = {word: size for word, size in exact.items() if size > 0 and word != 0}
        got = dict(zip(one["sparse_ids"].tolist(), one["sparse_weights"].tolist(), strict=True))
        assert got == pytest.approx(exact, abs=1e-6)
