"""Sparse vectors of features that an autoencoder learned, whatever runs the encoder before it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from model.contract import Backend, HeadInfo, SparseWant, Want
from model.errors import CheckpointError
from model.loading import load_model
from model.tokenization.tokenizer import TextTokenizer
from tests.references.autoencoder import FEATURES, KEPT, MODULE, TEXTS, Csr, recorded, write_csr
from tests.references.checkpoints import SUITED, write_bert
from tests.references.comparing import distance
from tests.references.late_interaction import write_json
from tests.support.exporting import export_silently
from tests.support.product import run


def check(csr: Csr, tokenizer: TextTokenizer, backend: Backend, bound: float) -> None:
    """Alone, in a batch with texts that want others or no features, and with more of them than by default."""
    encodings = tokenizer.encode(TEXTS)
    wants = [Want(heads=(SparseWant(),)), Want(token_layers=(1,)), Want(heads=(SparseWant(top_k=40),))]
    outputs = run(backend, [one for one in encodings for _ in wants], wants * len(TEXTS))
    for i, text in enumerate(TEXTS):
        (alone,) = run(backend, encodings[i : i + 1], wants[:1])
        for output, kept in ((alone, KEPT), (outputs[3 * i], KEPT), (outputs[3 * i + 2], 40)):
            ids, weights = output.heads["sparse_ids"], output.heads["sparse_weights"]
            found = np.zeros(FEATURES)
            found[ids] = weights
            assert distance(found, csr.weights(text, kept)) <= bound
            assert len(ids) == kept
            assert (np.diff(weights) <= 0).all()


@pytest.mark.parametrize("normalize", [False, True])
def test_features_are_weighted_as_the_library_does(normalize: bool, tmp_path: Path) -> None:
    """Of the vector by the model's own pooling, which is scaled to mean 0 and deviation 1 or not."""
    csr = write_csr(tmp_path, normalize=normalize, **SUITED)
    check(csr, *load_model(str(tmp_path), device="cpu", dtype="float32", strict=True), 1e-5)


@pytest.mark.parametrize(
    ("name", "options", "unpooled"),
    [
        ("plain", {}, ""),
        ("normalized", {"normalize": True}, ""),
        ("prompted", {"normalize": True, "include_prompt": False}, "the boy "),
    ],
)
def test_the_definition_is_that_of_the_library(
    name: str, options: dict[str, bool], unpooled: str, tmp_path: Path
) -> None:
    """Which is what the tests here compare with."""
    csr = write_csr(tmp_path, **options, **SUITED)
    for text, made in zip(TEXTS, recorded()[name], strict=True):
        expected = np.zeros(FEATURES)
        expected[[int(number) for number in made]] = list(made.values())
        assert distance(csr.weights(text, unpooled=unpooled), expected) <= 2e-6


@pytest.mark.thorough
def test_an_exported_folder_has_the_same_features(tmp_path: Path) -> None:
    """Without PyTorch; the module's files are copied."""
    csr = write_csr(tmp_path / "model", normalize=True, **SUITED)
    export_silently(tmp_path / "model", tmp_path / "graph")
    check(csr, *load_model(str(tmp_path / "graph"), kind="onnx", device="cpu"), 1e-4)


@pytest.mark.parametrize(("general", "kept"), [({}, KEPT), ({"max_active_dims": 3}, 3)])
def test_a_folder_says_how_many_are_kept(general: dict[str, int], kept: int, tmp_path: Path) -> None:
    """max_active_dims, and else k of the module."""
    write_csr(tmp_path)
    write_json(tmp_path / "config_sentence_transformers.json", {"model_type": "SparseEncoder", **general})
    tokenizer, backend = load_model(str(tmp_path), device="cpu", dtype="float32")
    (output,) = run(backend, tokenizer.encode(TEXTS[:1]), [Want(heads=(SparseWant(),))])
    assert len(output.heads["sparse_ids"]) == kept
    assert backend.info.head == HeadInfo("autoencoder", size=FEATURES, kept=kept)


def test_what_is_for_training_may_be_missing(tmp_path: Path) -> None:
    """How long each feature has been 0 is not read."""
    csr = write_csr(tmp_path)
    file = tmp_path / MODULE / "model.safetensors"
    tensors = load_file(file)
    del tensors["stats_last_nonzero"]
    save_file(tensors, file)
    check(csr, *load_model(str(tmp_path), device="cpu", dtype="float32"), 1e-5)


def change(name: str, **changes: Any) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        file = folder / name
        file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | changes), encoding="utf-8")

    return changed


def store(**changes: Any) -> Callable[[Path], None]:
    def stored(folder: Path) -> None:
        file = folder / MODULE / "model.safetensors"
        save_file(load_file(file) | changes, file)

    return stored


def without_pooling(folder: Path) -> None:
    file = folder / "modules.json"
    modules = json.loads(file.read_text("utf-8"))
    write_json(file, [modules[0], modules[3]])


def without_module(folder: Path) -> None:
    file = folder / "modules.json"
    write_json(file, json.loads(file.read_text("utf-8"))[:-1])


CONFIG, GENERAL = f"{MODULE}/config.json", "config_sentence_transformers.json"
DAMAGED: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: (folder / CONFIG).unlink(), f"{MODULE}/config.json"),
    (lambda folder: (folder / MODULE / "model.safetensors").unlink(), "model.safetensors is missing"),
    (change(CONFIG, input_dim=5), "input_dim is 5, hidden_dim 200 and k 17; input_dim must be 32, hid"),
    (
        change(CONFIG, hidden_dim=10**9),
        "hidden_dim 1000000000 and k 17; input_dim must be 32, hidden_dim 1 to",
    ),
    (change(CONFIG, k=201), "k 201; input_dim must be 32, hidden_dim 1 to 131072, and k 1 to hidden_dim"),
    (change(CONFIG, k=True), "hidden_dim 200 and k True; input_dim must"),
    (change(CONFIG, hidden_dim=100), "the weights do not match config.json"),
    (change(CONFIG, normalize="yes"), "normalize is 'yes'"),
    (change(CONFIG, activation="topk"), "activation"),
    (change(GENERAL, max_active_dims=0), "max_active_dims is 0"),
    (store(latent_bias=np.full(FEATURES, np.nan, np.float32)), "has a NaN or an infinity"),
    (store(pre_bias=np.ones(5, np.float32)), "the weights do not match config.json"),
    (store(other=np.ones(5, np.float32)), "the weights do not match config.json"),
    (store(latent_bias=np.ones(FEATURES, np.int64)), "has a tensor of dtype 'I64', which is not one of"),
    (
        lambda folder: write_bert(folder, architecture="BertForMaskedLM"),
        "has a SparseAutoEncoder, but its weights predict masked_words",
    ),
    (without_pooling, "lists Transformer, SparseAutoEncoder: headlight serves"),
    (without_module, "modules.json has neither a SpladePooling nor a SparseAutoEncoder: use files fr"),
    (change(GENERAL, query_prefix="[Q] "), "lists a SparseAutoEncoder, which late-interaction models cannot"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_and_mixed_folders_are_refused_in_a_sentence(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    """Which names the file, its field and what is served."""
    write_csr(tmp_path)
    damage(tmp_path)
    with pytest.raises(CheckpointError, match=message) as refused:
        load_model(str(tmp_path), strict=True)
    assert str(tmp_path) in str(refused.value)
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)
