"""Folders of a MultiVectorEncoder that pool vectors, choose tokens or average MaxSim, over HTTP.

What they answer is what sentence-transformers 6.2 makes of the same folders.
"""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.references.checkpoints import SUITED
from tests.references.comparing import distance
from tests.references.explained import interaction_parts
from tests.references.multi_vector import (
    CASES,
    COMPONENTS,
    TEXTS,
    MultiVector,
    recorded,
    write_multi_vector,
)
from tests.support.backends import Kept, both_backends, native
from tests.support.serving import (
    NDJSON,
    NPZ,
    SAFETENSORS,
    Json,
    Service,
    answered,
    assert_problem,
    post,
    read_npz,
    read_safetensors,
    serve,
)

pytestmark = both_backends

NAMES = {name.replace(" ", "-"): name for name in CASES}
POOLED = [name for name, case in CASES.items() if case.pooling is not None]
ROLES = ("query", "document")
Answer = Callable[[str, list[str]], list[float]]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MultiVector]:
    place = tmp_path_factory.mktemp("models")
    return {name: write_multi_vector(place / name, CASES[case], **SUITED) for name, case in NAMES.items()}


def runs(kept: Kept, folder: Path, folders: dict[str, MultiVector], backend: str) -> Path:
    """The folder that a backend runs. All have one encoder, whose graph is made once: that takes a minute."""
    if backend != "onnx":
        return folder
    target = folder.with_name(f"{folder.name}-graph")
    shutil.copytree(kept.folder(folders["pooled"].folder, backend), target)
    for file in folder.rglob("*"):
        if file.is_file() and file != folder / "model.safetensors":
            place = target / file.relative_to(folder)
            place.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, place)
    return target


@pytest.fixture(scope="session")
def served(kept: Kept, backend: str, folders: dict[str, MultiVector]) -> Service:
    def start() -> AbstractContextManager[Service]:
        models = [f"{name}={runs(kept, one.folder, folders, backend)}" for name, one in folders.items()]
        return serve(model=",".join(models), threads=1, **native(backend))

    return kept.service(("token pooling", backend), start)


@pytest.fixture
def bound(backend: str) -> float:
    return 1e-4 if backend == "onnx" else 1e-5


def assert_vectors(item: Json, written: MultiVector, text: str, role: str, bound: float) -> None:
    """All of them as by the definition, and which of them each token is part of."""
    ids, rows, _ = written.vectors(text, role)
    vectors, clusters = written.pooled(text, role)
    assert (item["token_ids"], item["token_rows"]) == (ids, rows)
    (found,) = item["token_embeddings"]
    assert len(found) == len(vectors)
    assert distance(np.reshape(found, vectors.shape), vectors) <= bound
    if role in (written.settings.pooling or {"tasks": []})["tasks"]:
        assert item["token_clusters"] == clusters
    else:
        assert "token_clusters" not in item


@pytest.mark.in_turns
@pytest.mark.parametrize("name", NAMES)
def test_vectors_are_those_of_the_library(
    served: Service, folders: dict[str, MultiVector], name: str, bound: float
) -> None:
    """Of both roles in shared batches, and of each text alone."""
    asked = [(role, order) for role in ROLES for order in (1, -1)] * 2

    def encode(role: str, order: int) -> list[Json]:
        found: list[Json] = served.encode(TEXTS[::order], outputs=["tokens"], role=role, model=name)["data"]
        return found[::order]

    with ThreadPoolExecutor(len(asked)) as pool:
        answers = list(pool.map(lambda one: encode(*one), asked))
    expected = recorded()[NAMES[name]]
    for (role, _), items in zip(asked, answers, strict=True):
        for text, item, vectors in zip(TEXTS, items, expected[role], strict=True):
            assert_vectors(item, folders[name], text, role, bound)
            first = [row[:COMPONENTS] for row in item["token_embeddings"][0]]
            made = np.reshape(vectors, (-1, COMPONENTS))
            assert distance(np.reshape(first, made.shape), made) <= bound
    for role in ROLES:
        for text in TEXTS:
            (item,) = served.encode(text, outputs=["tokens"], role=role, model=name)["data"]
            assert_vectors(item, folders[name], text, role, bound)


def test_every_format_has_the_same_vectors(served: Service) -> None:
    """As many rows, and the same columns beside them."""
    body = {"inputs": TEXTS, "outputs": ["tokens"], "role": "document", "model": "pooled"}
    plain = served.encode(TEXTS, outputs=["tokens"], role="document", model="pooled")["data"]
    for kind, read in ((NPZ, read_npz), (SAFETENSORS, read_safetensors)):
        arrays, meta = read(post(served, body, accept=kind).content)
        for i, item in enumerate(plain):
            assert distance(arrays[f"{i}.token_embeddings"], item["token_embeddings"]) <= 1e-6
            assert meta["data"][i]["token_clusters"] == item["token_clusters"]
            assert meta["data"][i]["token_rows"] == item["token_rows"]
    lines = [json.loads(line) for line in post(served, body, accept=NDJSON).text.splitlines()[:-1]]
    for item in lines:
        assert item["token_clusters"] == plain[item["index"]]["token_clusters"]
        assert distance(item["token_embeddings"], plain[item["index"]]["token_embeddings"]) <= 1e-6


def scores_of(served: Service, name: str, path: str) -> Answer:
    """Rank texts by a route: their scores, in the order of the texts."""

    def answer(query: str, texts: list[str]) -> list[float]:
        given = {"query": query, "model": name}
        given |= {"documents" if path.startswith("/v") else "texts": texts}  # type: ignore[dict-item]
        found: Any = post(served, given, path).json()
        items = found if path.startswith("/tei") else found["data"]
        score = "relevance_score" if path.startswith("/v") else "score"
        by_index = {item["index"]: float(item[score]) for item in items}
        return [by_index[i] for i in range(len(texts))]

    return answer


@pytest.mark.in_turns
@pytest.mark.parametrize("path", ["/rerank", "/tei/rerank", "/v1/rerank", "/v2/rerank"])
@pytest.mark.parametrize("name", NAMES)
def test_scores_are_those_of_the_library(served: Service, name: str, path: str, bound: float) -> None:
    """MaxSim of what pooling leaves, or its mean; a text without vectors comes after all others."""
    answer, expected = scores_of(served, name, path), recorded()[NAMES[name]]["scores"]
    for query, scores in zip(TEXTS, expected, strict=True):
        if query:  # an empty one is not ranked for
            vectors = len(recorded()[NAMES[name]]["query"][TEXTS.index(query)])
            assert answer(query, TEXTS) == pytest.approx(scores, rel=1e-6, abs=bound * max(1, vectors))
            assert answer(query, TEXTS[:1]) == pytest.approx(scores[:1], rel=1e-6, abs=bound * vectors)


def test_the_parts_of_a_mean_sum_to_it(
    served: Service, folders: dict[str, MultiVector], bound: float
) -> None:
    """Each is that of MaxSim, divided by the vectors of the query."""
    pair, written = [TEXTS[0], TEXTS[1]], folders["mean"]
    (item,) = answered(post(served, {"inputs": [pair], "unit": "token", "model": "mean"}, "/explain"))["data"]
    (ids, rows, query), (others_ids, others, document) = (
        written.vectors(text, role) for text, role in zip(pair, ROLES, strict=True)
    )
    whole = np.zeros((len(ids), len(others_ids)))
    whole[np.ix_(rows, others)] = interaction_parts(query, document) / len(query)
    assert distance(item["parts"], whole) <= bound
    assert item["function"] == "mean_max_sim"
    assert item["score"] == pytest.approx(recorded()["mean"]["scores"][0][1], abs=bound)


@pytest.mark.parametrize("name", ["pooled", "pooled-queries", "pooled-to-one"])
def test_what_a_pooled_score_loses_is_by_leaving_out(
    served: Service, folders: dict[str, MultiVector], name: str, bound: float
) -> None:
    """Without the unit other tokens may become one: the text is pooled anew."""
    pair, written = [TEXTS[0], TEXTS[1]], folders[name]
    body = {"inputs": [pair], "model": name, "replacement": "mask"}
    answer = answered(post(served, body, "/explain"))
    (item,) = answer["data"]
    sides = [written.tokens(text, role) for text, role in zip(pair, ROLES, strict=True)]
    mask = written.reference.tokenizer.mask_token_id
    starts = [0, len(sides[0][0])]

    def score(left_out: range, side: int) -> float:
        found = []
        for number, ((ids, attended, rows), role) in enumerate(zip(sides, ROLES, strict=True)):
            changed = [mask if number == side and i in left_out else token for i, token in enumerate(ids)]
            found.append(written.pool(written.unit(changed, attended)[rows], role)[0])
        return written.max_sim(*found)

    complete = score(range(0), 0)
    assert answer["method"] == "occlusion"
    assert item["score"] == pytest.approx(complete, abs=12 * bound)
    assert item["score"] == pytest.approx(recorded()[NAMES[name]]["scores"][0][1], abs=12 * bound)
    for unit, (first, after) in enumerate(item["units"]["token_spans"]):
        side = item["units"]["segment"][unit]
        effect = complete - score(range(first - starts[side], after - starts[side]), side)
        assert item["attributions"][unit] == pytest.approx(effect, abs=24 * bound)


@pytest.mark.parametrize("method", ["parts", "gradient"])
def test_what_needs_a_vector_for_each_token_is_refused(served: Service, backend: str, method: str) -> None:
    """With the method that works."""
    body = {"inputs": [TEXTS[:2]], "model": "pooled", "method": method}
    problem = assert_problem(post(served, body, "/explain"), 422, "unsupported", field="method")
    graph = backend == "onnx" and method == "gradient"
    assert graph or "merges the vectors of several tokens into one" in problem["detail"]
    assert problem["detail"].endswith(' to "occlusion".')
