"""Sparse models whose queries a table weighs, over HTTP: queries need no pass of the encoder."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.references.comparing import distance
from tests.references.router import Routed, write_router
from tests.support.serving import NDJSON, Json, Service, answered, assert_problem, batches, post, serve

CHANGE = {"kind": "heads", "layer": 0, "heads": [0]}
PROMPTS = {"query": "boy the ", "document": "man ", "other": "beats "}
TEXTS = ["the man beats the boy", "hello, [SEP] world", "🙃 the", "the the the", "hello " * 80]


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Routed]:
    """Folders that take a text without a role for a query, or for a document."""
    place = tmp_path_factory.mktemp("routed")
    found = {name: write_router(place / name, name) for name in ("query", "document")}
    return found | {"prompted": write_router(place / "prompted", "query", PROMPTS)}


@pytest.fixture(scope="module")
def served(routed: dict[str, Routed]) -> Iterator[Service]:
    models = ",".join(f"{name}={one.folder}" for name, one in routed.items())
    with serve(model=models, threads=1) as started:
        yield started


def dense(items: list[Json], size: int) -> Any:
    found = np.zeros((len(items), size))
    for row, item in zip(found, items, strict=True):
        row[item["sparse"]["token_ids"]] = item["sparse"]["weights"]
    return found


@pytest.mark.parametrize("role", ["query", "document", None])
@pytest.mark.parametrize("model", ["query", "document"])
def test_vectors_are_those_of_the_route(
    served: Service, routed: dict[str, Routed], model: str, role: str | None
) -> None:
    """Of the role, or else of the folder's default route; only documents are run."""
    one = routed[model]
    before = batches(served, model)
    body = {"model": model, "inputs": [*TEXTS, ""], "outputs": ["sparse"], "role": role}
    items = answered(post(served, body))["data"]
    chosen = one.query if (role or model) == "query" else one.document
    assert distance(dense(items, len(one.weights)), [chosen(text) for text in [*TEXTS, ""]]) <= 1e-5
    assert (batches(served, model) > before) == ((role or model) == "document")


def test_texts_have_the_prompt_of_their_role(served: Service, routed: dict[str, Routed]) -> None:
    """As in `encode_query` and `encode_document`, unless the request has one; none without a role."""
    one = routed["prompted"]
    for options, chosen, before in (
        ({"role": "query"}, one.query, "boy the "),
        ({"role": "document"}, one.document, "man "),
        ({}, one.query, ""),
        ({"role": "query", "prompt_name": "other"}, one.query, "beats "),
        ({"role": "document", "prompt": "hello "}, one.document, "hello "),
        ({"role": "document", "prompt": ""}, one.document, ""),
    ):
        body = {"model": "prompted", "inputs": [*TEXTS, ""], "outputs": ["sparse"], **options}
        items = answered(post(served, body))["data"]
        expected = [chosen(before + text) for text in [*TEXTS, ""]]
        assert distance(dense(items, len(one.weights)), expected) <= 1e-5, options


def test_many_queries_and_lines_have_the_same_vectors(served: Service, routed: dict[str, Routed]) -> None:
    """In a thread, and one after the other."""
    one, body = routed["query"], {"model": "query", "outputs": ["sparse"], "role": "query"}
    items = answered(post(served, {**body, "inputs": TEXTS * 20}))["data"]
    expected = [one.query(text) for text in TEXTS]
    assert distance(dense(items, len(one.weights)), expected * 20) <= 1e-5
    lines = post(served, {**body, "inputs": TEXTS}, Accept=NDJSON)
    assert lines.status_code == 200
    assert len(lines.text.splitlines()) >= len(TEXTS)


def test_only_the_largest_are_kept(served: Service, routed: dict[str, Routed]) -> None:
    """As of documents."""
    body = {"model": "query", "inputs": TEXTS[0], "outputs": ["sparse"], "role": "query", "top_k": 2}
    (item,) = answered(post(served, body))["data"]
    expected = np.sort(routed["query"].query(TEXTS[0]))[::-1][:2]
    assert distance(item["sparse"]["weights"], expected) <= 1e-6


def test_the_default_route_counts_where_a_protocol_has_no_roles(
    served: Service, routed: dict[str, Routed]
) -> None:
    """text-embeddings-inference has no field for one; the first model is served there."""
    answer = post(served, {"inputs": TEXTS}, "/embed_sparse")
    assert answer.status_code == 200
    for text, words in zip(TEXTS, answer.json(), strict=True):
        expected = routed["query"].query(text)
        assert {word["index"]: pytest.approx(word["value"], abs=1e-6) for word in words} == {
            i: expected[i] for i in np.flatnonzero(expected)
        }


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (
            {"outputs": ["tokens"], "role": "query"},
            'role is "query", and this model weighs queries only with',
        ),
        ({"outputs": ["sentence", "sparse"], "role": "query"}, 'set "outputs" to ["sparse"], or "role" to'),
        ({"outputs": ["sparse"], "chunks": "sentences"}, "role is not given, so texts are queries"),
        ({"outputs": ["sentence", "sparse"]}, "role is not given, so texts are queries"),
        ({"outputs": ["sentence"], "role": "query"}, 'needs "outputs": ["tokens"] or ["sparse"]'),
        (
            {"outputs": ["sparse"], "role": "query", "interventions": [CHANGE]},
            "Queries do not run through this model, so interventions cannot change them",
        ),
    ],
)
def test_queries_have_sparse_vectors_alone(served: Service, options: Json, part: str) -> None:
    """What else is asked for is refused, with the way out."""
    answer = post(served, {"model": "query", "inputs": "a", **options})
    assert part in assert_problem(answer, 422, "invalid-request")["detail"]


def test_documents_have_what_other_encoders_have(served: Service) -> None:
    """A sentence vector beside the sparse one."""
    body = {"model": "query", "inputs": "a", "outputs": ["sentence", "sparse"], "role": "document"}
    (item,) = answered(post(served, body))["data"]
    assert len(item["embedding"]) == 32
    assert item["sparse"]["weights"]
