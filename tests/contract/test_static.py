"""Tables of token vectors over HTTP: the same vectors through every protocol, and no layer to look into."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.references.comparing import distance
from tests.references.static import SIZE, Static, write_model2vec, write_sentence_transformers
from tests.support.oip import text
from tests.support.serving import Json, Service, answered, assert_problem, post, serve

TEXTS = ["the man beats the boy", " ", "🙃 🙃", "🙃 the 日", "the man " * 300, "hello" * 300, "world"]
"""Of one token and none, of unknown ones alone, and longer than model2vec reads."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Static]:
    """A folder of each library."""
    place = tmp_path_factory.mktemp("tables")
    return {
        "potion": write_model2vec(place / "potion", quantized=True),
        "static": write_sentence_transformers(place / "static", place="0_StaticEmbedding"),
    }


@pytest.fixture(scope="module")
def served(tables: dict[str, Static]) -> Iterator[Service]:
    """Both, in one service."""
    models = ",".join(f"{name}={one.folder}" for name, one in tables.items())
    with serve(model=models) as started:
        yield started


def vectors(answer: Json) -> Any:
    return [item["embedding"] for item in answer["data"]]


ROUTES: dict[str, tuple[str, str, Any]] = {
    "native": ("/encode", "inputs", vectors),
    "OpenAI": ("/v1/embeddings", "input", vectors),
    "Ollama": ("/api/embed", "input", lambda answer: answer["embeddings"]),
    "Cohere": ("/v2/embed", "texts", lambda answer: answer["embeddings"]["float"]),
}


@pytest.mark.parametrize("model", ["potion", "static"])
@pytest.mark.parametrize("protocol", ROUTES)
def test_vectors_are_those_of_the_library(
    served: Service, tables: dict[str, Static], protocol: str, model: str
) -> None:
    """Each text alone, and all in one request."""
    path, name, read = ROUTES[protocol]
    options = {"input_type": "search_document", "embedding_types": ["float"]} if protocol == "Cohere" else {}
    expected = [tables[model].vector(one) for one in TEXTS]
    for texts, those in [(TEXTS, expected), *(([t], [v]) for t, v in zip(TEXTS, expected, strict=True))]:
        body = {"model": model, name: texts, **options}
        assert distance(read(answered(post(served, body, path))), those) <= 1e-5


def test_the_protocols_of_one_model_have_the_first(served: Service, tables: dict[str, Static]) -> None:
    """text-embeddings-inference names none, and the Open Inference Protocol has it in the path."""
    expected = [tables["potion"].vector(one) for one in TEXTS]
    answer = post(served, {"inputs": TEXTS}, "/embed")
    assert answer.status_code == 200
    assert distance(answer.json(), expected) <= 1e-5
    (output,) = answered(post(served, {"inputs": [text(*TEXTS)]}, "/v2/models/potion/infer"))["outputs"]
    assert distance(np.reshape(output["data"], output["shape"]), expected) <= 1e-5


def test_vectors_are_the_same_beside_many_others(served: Service, tables: dict[str, Static]) -> None:
    """In a body that another thread tokenizes."""
    found = vectors(served.encode(TEXTS * 30, model="potion"))
    assert distance(found, [tables["potion"].vector(one) for one in TEXTS] * 30) <= 1e-5


def test_rows_of_the_table_are_the_vectors_of_tokens(served: Service, tables: dict[str, Static]) -> None:
    """And pooled otherwise, cut and in parts, they are what an encoder's last hidden state would be."""
    table = tables["potion"]
    rows = table.vectors[table.ids(TEXTS[0])]
    (item,) = served.encode(TEXTS[0], model="potion", outputs=["tokens"])["data"]
    assert distance(item["token_embeddings"], rows[None]) <= 1e-5
    options = {"pooling": "max", "normalize": False, "dimensions": 7}
    (item,) = served.encode(TEXTS[0], model="potion", **options)["data"]
    assert distance(item["embedding"], rows.max(0)[:7]) <= 1e-5
    (item,) = served.encode(TEXTS[0], model="potion", chunks=[[0, 7]], normalize=False)["data"]
    assert distance(item["chunks"]["embeddings"], rows[None, :2].mean(1)) <= 1e-5


def test_texts_are_compared_ranked_and_explained(served: Service, tables: dict[str, Static]) -> None:
    """By the cosine of their vectors, of which that of a text without tokens is 0, and exactly by tokens."""
    source, others = "the man", ["the boy", " ", "hello world"]
    vector = tables["potion"].vector
    expected = [float(vector(source) @ vector(other)) for other in others]
    body: Json = {"model": "potion", "source": source, "texts": others}
    assert distance(answered(post(served, body, "/similarity"))["similarities"], expected) <= 1e-5
    body = {"model": "potion", "query": source, "texts": others}
    ranked = answered(post(served, body, "/rerank"))["data"]
    scores = [one["score"] for one in sorted(ranked, key=lambda one: one["index"])]
    assert distance(scores, expected) <= 1e-5
    body = {"model": "potion", "inputs": [[source, others[0]]]}
    (item,) = answered(post(served, body, "/explain"))["data"]
    assert item["score"] == pytest.approx(expected[0], abs=1e-5)
    assert np.sum(item["parts"]) == pytest.approx(expected[0], abs=1e-4)


LAYERLESS: list[tuple[str, Json, str]] = [
    ("/attention", {"inputs": "the man"}, "it has no attention"),
    (
        "/encode",
        {"inputs": "a", "interventions": [{"kind": "heads", "layer": 0, "heads": [0]}]},
        'so interventions.0, of the kind "heads", has nothing to change',
    ),
    ("/explain", {"inputs": [["the man", "the boy"]], "method": "heads"}, 'set method to "parts" or'),
    ("/explain", {"inputs": [["the man", "the boy"]], "method": "gradient"}, 'set method to "parts" or'),
]


@pytest.mark.parametrize(("path", "body", "part"), LAYERLESS, ids=range(len(LAYERLESS)))
def test_what_only_layers_have_is_refused_in_a_sentence(
    served: Service, path: str, body: Json, part: str
) -> None:
    """Which names the way out."""
    answer = post(served, {"model": "static", **body}, path)
    document = assert_problem(answer, 422, "unsupported")
    assert part in document["detail"]
    assert "a table of token vectors, without layers" in document["detail"]
    assert "serve an encoder model" in document["detail"]


def test_info_says_what_it_is(served: Service) -> None:
    """No layers, no heads and no attention, and vectors of tokens all the same."""
    potion, static = answered(served.http.get("/info"))["models"]
    for model in (potion, static):
        assert (model["layers"], model["heads"], model["attention"]) == (0, 0, False)
        assert (model["token_embeddings"], model["backend"], model["device"]) == (True, "static", "cpu")
    assert (potion["family"], potion["max_length"], potion["sentence_size"]) == ("model2vec", 512, SIZE)
    assert (static["family"], static["normalize"], static["sentence_size"]) == ("static", True, SIZE // 2)
    assert answered(post(served, {"model": "potion"}, "/api/show"))["details"]["format"] == "safetensors"


def test_a_damaged_folder_ends_the_start(tmp_path: Path) -> None:
    """With one sentence, and none of a traceback."""
    write_model2vec(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with serve(model=tmp_path, wait=False, exit_code=1) as service:
        service.wait()
        assert "has no tokenizer.json, which a table of token vectors needs: " in service.log
        assert "Traceback" not in service.log


@pytest.mark.parametrize("pair", [["world", "🙃"], ["", "world"], ["", ""]])
def test_texts_without_tokens_have_no_parts(served: Service, pair: list[str]) -> None:
    """Nor any similarity to others."""
    body = {"inputs": [pair], "model": "potion", "method": "parts"}
    (item,) = answered(post(served, body, "/explain"))["data"]
    assert item["score"] == 0
    assert np.array(item["parts"]).size == 0
