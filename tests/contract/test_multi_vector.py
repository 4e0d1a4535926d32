"""A MultiVectorEncoder over HTTP: vectors of tokens of both roles, and MaxSim of both."""

import json
from collections.abc import Iterator

import pytest

from tests.references.checkpoints import SUITED
from tests.references.comparing import distance
from tests.references.multi_vector import MultiSettings, MultiVector, write_multi_vector
from tests.support.serving import Service, answered, assert_problem, post, serve

TEXTS = ["the man beats the boy", "hello, world.", "a", "", "hello world " * 20]
SETTINGS = MultiSettings(
    expansion={"strategy": "min", "length": 12},
    document_length=20,
    skipped=[",", "."],
    prompts={"query": "the ", "document": "man "},
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> MultiVector:
    return write_multi_vector(tmp_path_factory.mktemp("multi") / "multi", SETTINGS, **SUITED)


@pytest.fixture(scope="module")
def served(written: MultiVector) -> Iterator[Service]:
    with serve(model=written.folder, threads=1) as started:
        yield started


@pytest.mark.parametrize("role", ["query", "document"])
def test_vectors_are_those_of_the_modules(served: Service, written: MultiVector, role: str) -> None:
    """With the prompt of the role, what fills queries up, and without the words to skip."""
    items = served.encode(TEXTS, outputs=["tokens"], role=role)["data"]
    for text, item in zip(TEXTS, items, strict=True):
        ids, rows, vectors = written.vectors(text, role)
        assert (item["token_ids"], item["token_rows"]) == (ids, rows)
        assert distance(item["token_embeddings"], vectors[None]) <= 1e-5


def test_texts_are_ranked_by_maxsim(served: Service, written: MultiVector) -> None:
    """Of the vectors of both roles."""
    ranked = answered(post(served, {"query": TEXTS[0], "texts": TEXTS[1:]}, "/rerank"))["data"]
    _, _, query = written.vectors(TEXTS[0], "query")
    for item in ranked:
        _, _, document = written.vectors(TEXTS[1 + item["index"]], "document")
        assert item["score"] == pytest.approx((query @ document.T).max(1).sum(), abs=1e-4)


def test_another_prompt_takes_the_place_of_the_role_s(served: Service) -> None:
    """A request may have its own."""
    (item,) = served.encode("boy", outputs=["tokens"], role="document", prompt="hello ")["data"]
    assert item["tokens"][1:3] == ["hello", "boy"]


@pytest.fixture(scope="module")
def defaulted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One with a default prompt, a long one for queries and none for documents."""
    prompts = {"query": "the man " * 1200, "document": "", "other": "hello "}
    settings = MultiSettings(document_length=20, prompts=prompts)
    written = write_multi_vector(tmp_path_factory.mktemp("multi") / "multi", settings, **SUITED)
    file = written.folder / "config_sentence_transformers.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "default_prompt_name": "other"}))
    with serve(model=written.folder, threads=1) as started:
        yield started


def test_a_role_has_its_own_prompt_and_not_the_default(defaulted: Service) -> None:
    """As in `encode_document`; a request's own prompt goes before both."""
    for options, first in (
        ({"role": "document"}, "world"),
        ({"role": "document", "prompt_name": "other"}, "hello"),
        ({}, "hello"),
    ):
        (item,) = defaulted.encode("world", outputs=["tokens"], **options)["data"]
        assert item["tokens"][1] == first, options


def test_the_prompt_of_a_role_counts_as_much_as_a_request_s(defaulted: Service) -> None:
    """It stands before every text, and is read off the event loop, within the limit of prompts."""
    body = {"inputs": ["a"] * 256, "outputs": ["tokens"], "role": "query"}
    problem = assert_problem(post(defaulted, body), 413, "body-too-large", field="prompt")
    assert problem["actual"] == 256 * 9600
