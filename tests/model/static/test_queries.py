"""Folders with a table for queries: a damaged or mixed one is refused in a sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from export.errors import ExportError
from model.contract import SparseWant, Want
from model.errors import CheckpointError
from model.loading import load_model
from tests.references.comparing import distance
from tests.references.router import write_router
from tests.support.exporting import export_silently
from tests.support.product import run

QUERY = "query_0_SparseStaticEmbedding"


def test_a_batch_of_both_has_the_vectors_of_each(tmp_path: Path) -> None:
    """Queries are looked up, whatever stands between them, and documents run."""
    written = write_router(tmp_path)
    tokenizer, backend = load_model(str(tmp_path), native=False, dtype="float32")
    texts = ["the man beats the boy", "hello world", "", "the the 🙃"]
    queries, documents = tokenizer.of("query").encode(texts), tokenizer.encode(texts)
    assert [one.truncated for one in tokenizer.of("query").encode(["the " * 100])] == [True]
    looked_up, predicted = Want(heads=(SparseWant(table=True),)), Want(heads=(SparseWant(),))
    encodings = [one for both in zip(queries, documents, strict=True) for one in both]
    outputs = run(backend, encodings, [looked_up, predicted] * len(texts))
    size = len(written.weights)
    for i, text in enumerate(texts):
        for output, expected in zip(
            outputs[2 * i : 2 * i + 2], (written.query(text), written.document(text)), strict=True
        ):
            found = np.zeros(size)
            found[output.heads["sparse_ids"]] = output.heads["sparse_weights"]
            assert distance(found, expected) <= 1e-5
            assert (np.diff(output.heads["sparse_weights"]) <= 0).all()


def change(name: str, **changes: Any) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        file = folder / name
        file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | changes), encoding="utf-8")

    return changed


def weights(**tensors: Any) -> Callable[[Path], None]:
    return lambda folder: save_file(tensors, folder / QUERY / "model.safetensors")


ROUTES, SENTENCE = "router_config.json", "config_sentence_transformers.json"
DAMAGED: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: (folder / ROUTES).unlink(), "router_config.json"),
    (change(ROUTES, structure=[]), "must have the objects types, structure and parameters"),
    (
        change(ROUTES, structure={"query": [QUERY]}),
        "structure routes 'query': SparseStaticEmbedding; headlight serves a Router with query: Sparse",
    ),
    (
        lambda folder: (folder / "modules.json").write_text(
            json.dumps([{"type": "Router", "path": ""}, {"type": "Normalize", "path": "1_Normalize"}])
        ),
        "lists Router, Normalize: headlight serves .*; or a Router",
    ),
    (change(ROUTES, structure={"query": ["../x"], "document": []}), "structure has .*a type in types"),
    (change(ROUTES, types={}), "structure has .*a type in types"),
    (
        change(ROUTES, parameters={"route_mappings": {"('query', 'text')": "query"}}),
        "route_mappings is .*; headlight routes by query and document alone",
    ),
    (change(ROUTES, parameters={"default_route": "image"}), "default_route is 'image'; it must be query or"),
    (change(ROUTES, parameters={"default_route": ["query"]}), r"default_route is \['query'\]; it must be"),
    (change(f"{QUERY}/tokenizer_config.json", split_special_tokens=True), "split_special_tokens"),
    (
        lambda folder: (folder / QUERY / "model.safetensors").unlink(),
        "no model.safetensors with the token weights",
    ),
    (lambda folder: (folder / QUERY / "tokenizer.json").unlink(), "has no tokenizer.json"),
    (
        change(f"{QUERY}/config.json", path="idf.json"),
        "path is 'idf.json', but weights are read only from model",
    ),
    (
        weights(weight=np.ones(5, np.float32)),
        "it must have only weight, with a weight for each of the 92 words",
    ),
    (
        weights(other=np.ones(92, np.float32)),
        "it must have only weight, with a weight for each of the 92 words",
    ),
    (
        weights(weight=np.full(92, -1, np.float32)),
        "weight has the weight -1; every weight must be at least 0",
    ),
    (weights(weight=np.full(92, np.nan, np.float32)), "has a NaN or an infinity"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_and_mixed_folders_are_refused_in_a_sentence(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    """Which names the file, its field and what is served."""
    write_router(tmp_path)
    damage(tmp_path)
    with pytest.raises(CheckpointError, match=message) as refused:
        load_model(str(tmp_path), strict=True)
    assert str(tmp_path) in str(refused.value)
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)


def test_it_is_not_exported(tmp_path: Path) -> None:
    """A graph has no table beside it."""
    write_router(tmp_path / "router")
    with pytest.raises(ExportError, match="has a Router, which runs only with PyTorch"):
        export_silently(tmp_path / "router", tmp_path / "new")
