"""Over HTTP, graphs run interventions and explain by heads; those of older releases say what would."""

from collections.abc import Iterator

import numpy as np
import pytest

from export.interventions import write_interventions
from model.checkpoints.checkpoint import load_checkpoint
from model.onnx.file import GRAPH
from tests.references.comparing import distance
from tests.references.families import Written, write_model
from tests.references.interventions import run_changed
from tests.support.backends import export_folder
from tests.support.families import AS_A_GRAPH, SIZES
from tests.support.serving import Json, Service, answered, assert_problem, post, serve

TEXTS = ["the man beats the boy", "hello"]
EDGES = {"kind": "edges", "layers": "all", "heads": [0, 2], "queries": "all", "keys": [0]}
HALF = {"kind": "heads", "layer": 1, "heads": "all", "scale": 0.5}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write_model(tmp_path_factory.mktemp("models") / "encoder", "Bert", **SIZES)


@pytest.fixture(scope="module")
def served(encoder: Written, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A graph of this release, and one as earlier ones wrote it."""
    place = tmp_path_factory.mktemp("graphs")
    graph, older = place / "graph", place / "older"
    for folder in (graph, older):
        export_folder(encoder.folder, folder)
    write_interventions(graph / GRAPH, load_checkpoint(encoder.folder).encoder.config)
    with serve(model=f"{graph},{older}", backend="onnx", threads=1) as started:
        yield started


def test_maps_and_vectors_are_those_of_hooks(served: Service, encoder: Written) -> None:
    """Also beside a request without."""
    body = {"inputs": TEXTS, "model": "graph", "interventions": [EDGES, HALF]}
    usual = answered(post(served, {"inputs": TEXTS, "model": "graph"}, "/attention"))
    found = answered(post(served, body, "/attention"))
    for item, before in zip(found["data"], usual["data"], strict=True):
        length = len(item["token_ids"])
        some: list[Json] = [
            {**EDGES, "layers": range(3), "queries": range(length)},
            {**HALF, "heads": range(3)},
        ]
        _, maps = run_changed(encoder, item["token_ids"], [0] * length, some)
        assert distance(item["attention"], maps) <= AS_A_GRAPH
        _, maps = run_changed(encoder, item["token_ids"], [0] * length, [])
        assert distance(before["attention"], maps) <= AS_A_GRAPH


def test_an_explanation_by_heads_is_a_sweep_of_hooks(served: Service, encoder: Written) -> None:
    """Every head of both texts, each run from the embeddings on."""
    body = {"inputs": [TEXTS], "model": "graph", "method": "heads"}
    (item,) = answered(post(served, body, "/explain"))["data"]
    columns = list(zip(item["token_ids"], item["segment_ids"], strict=True))
    sides = [[token for token, segment in columns if segment == side] for side in (0, 1)]

    def cosine(changes: list[Json]) -> float:
        u, v = (run_changed(encoder, ids, [0] * len(ids), changes)[0][-1].mean(0) for ids in sides)
        return float(u @ v / np.sqrt((u @ u) * (v @ v)))

    effects = [
        [cosine([]) - cosine([{"kind": "heads", "layer": layer, "heads": [head]}]) for head in range(3)]
        for layer in range(3)
    ]
    assert distance(item["heads"], effects) <= AS_A_GRAPH


def test_an_older_graph_says_what_would_run_them(served: Service) -> None:
    """Before anything runs, with the field."""
    again = "export its weights again with this release, or serve"
    for path, body, field in (
        ("/encode", {"inputs": TEXTS, "interventions": [EDGES]}, "interventions.0"),
        ("/explain", {"inputs": [TEXTS], "method": "heads"}, "method"),
    ):
        problem = assert_problem(post(served, {**body, "model": "older"}, path), 422, "unsupported")
        assert problem["field"] == field
        assert again in problem["detail"]


def test_states_cannot_be_changed_in_a_graph(served: Service) -> None:
    """What is sent in vain says what runs them."""
    some = {"kind": "states", "layer": 1, "tokens": [0], "vector": [0.0] * 48}
    body = {"inputs": TEXTS, "model": "graph", "interventions": [HALF, some]}
    problem = assert_problem(post(served, body, "/encode"), 422, "unsupported")
    assert problem["field"] == "interventions.1"
    assert "as an ONNX graph: serve its weights with PyTorch" in problem["detail"]
