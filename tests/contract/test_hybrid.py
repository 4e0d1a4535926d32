"""All three kinds of vectors of a folder in the form of bge-m3, on every route that has some of them."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

from tests.references.checkpoints import MINILM
from tests.references.comparing import distance
from tests.references.hybrid import SIZE, Hybrid, write_hybrid
from tests.support.backends import Kept, both_backends, native
from tests.support.serving import NPZ, Json, Service, answered, assert_problem, post, read_npz, serve

pytestmark = both_backends

QUERY = "the man beats the boy"
TEXTS = ["the boy, the man: hello", "hello, [SEP] world: [CLS] the boy", "a", "日 本 は boy", "hello " * 80]
ALL = ["sentence", "sparse", "tokens"]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Hybrid:
    """A folder whose layers are safetensors."""
    return write_hybrid(tmp_path_factory.mktemp("models") / "m3")


@pytest.fixture(scope="session")
def served(kept: Kept, backend: str, written: Hybrid) -> Service:
    """It, and with PyTorch the embedded model, which makes sentence vectors alone."""

    def start() -> AbstractContextManager[Service]:
        models = [f"m3={kept.folder(written.folder, backend)}"] + [MINILM] * (backend != "onnx")
        return serve(model=",".join(models), threads=1, **native(backend))

    return kept.service(("hybrid", backend), start)


def check(item: Json, written: Hybrid, text: str, outputs: list[str]) -> None:
    """An item has the vectors that were asked for, those of the reference, and no others."""
    expected = written.vectors(text)
    assert item["token_ids"] == expected.ids
    names = {"sentence": "embedding", "sparse": "sparse", "tokens": "token_embeddings"}
    for output, name in names.items():
        assert (name in item) == (output in outputs)
    if "sentence" in outputs:
        assert distance(item["embedding"], expected.sentence) <= 1e-5
    if "tokens" in outputs:
        assert item["token_rows"] == list(range(1, len(expected.ids)))
        assert distance(item["token_embeddings"], expected.tokens[None]) <= 1e-5
    if "sparse" in outputs:
        sparse = item["sparse"]
        assert sorted(sparse["token_ids"]) == sorted(expected.sparse)
        weights = [expected.sparse[word] for word in sparse["token_ids"]]
        assert distance(sparse["weights"], weights) <= 1e-5
        by_id = dict(zip(item["token_ids"], item["tokens"], strict=True))
        assert sparse["tokens"] == [by_id[word] for word in sparse["token_ids"]]


@pytest.mark.parametrize("role", ["query", "document"])
def test_one_request_returns_all_three(role: str, served: Service, written: Hybrid) -> None:
    """Of queries and documents alike, beside each other and alone."""
    answer = served.encode(TEXTS, outputs=ALL, role=role)
    for text, item in zip(TEXTS, answer["data"], strict=True):
        check(item, written, text, ALL)
        (alone,) = served.encode(text, outputs=ALL, role=role)["data"]
        check(alone, written, text, ALL)
    assert answer["usage"]["input_tokens"] == sum(len(item["token_ids"]) for item in answer["data"])


def test_requests_for_some_of_them_share_batches(served: Service, written: Hybrid) -> None:
    """Each returns what it asked for."""
    kinds = [["sentence"], ["sparse"], ["tokens"], ["sparse", "sentence"], ["tokens", "sparse"], ALL]
    asked = [(text, kind) for text in TEXTS for kind in kinds]

    def encode(one: tuple[str, list[str]]) -> Json:
        text, outputs = one
        role = {"role": "document"} if "tokens" in outputs else {}
        item: Json = served.encode(text, outputs=outputs, **role)["data"][0]
        return item

    with ThreadPoolExecutor(10) as threads:
        for (text, outputs), item in zip(asked, threads.map(encode, asked), strict=True):
            check(item, written, text, outputs)


def test_files_have_the_same_arrays(served: Service) -> None:
    """Of integers and float32, with the names of words in their metadata."""
    body = {"inputs": TEXTS, "outputs": ALL, "role": "query", "top_k": 2}
    arrays, meta = read_npz(post(served, body, accept=NPZ).content)
    for i, item in enumerate(answered(post(served, body))["data"]):
        assert arrays[f"{i}.sparse_ids"].tolist() == item["sparse"]["token_ids"]
        assert len(item["sparse"]["token_ids"]) <= 2
        assert meta["data"][i]["sparse"] == {"tokens": item["sparse"]["tokens"]}
        assert arrays[f"{i}.token_embeddings"].shape == (1, len(item["token_rows"]), SIZE)
        assert np.array_equal(arrays[f"{i}.embedding"], np.array(item["embedding"], np.float32))


def test_without_a_role_tokens_are_hidden_states(served: Service, written: Hybrid) -> None:
    """As of every other encoder."""
    (item,) = served.encode(TEXTS[0], outputs=ALL)["data"]
    hidden, _ = written.reference.run(item["token_ids"], [0] * len(item["token_ids"]))
    assert "token_rows" not in item
    assert distance(item["token_embeddings"], hidden[-1:]) <= 1e-5 * float(np.abs(hidden[-1]).max())


def test_the_model_says_what_it_has(served: Service) -> None:
    """Programs can choose it by that."""
    info = answered(served.http.get("/info"))
    assert info["models"][0]["prediction"] == {"kind": "hybrid", "labels": [], "activation": "identity"}
    assert info["models"][0]["pooling"] == ["cls"]
    assert info["model_type"] == {"embedding": {"pooling": "cls"}}


def test_embed_sparse_has_the_weights_of_tokens(served: Service, written: Hybrid) -> None:
    """Its clients read numbers of tokens and weights; on `/` and `/embed` the model is one of vectors."""
    found: Any = answered(post(served, {"inputs": TEXTS}, "/embed_sparse"))
    for text, words in zip(TEXTS, found, strict=True):
        sparse = written.vectors(text).sparse
        assert {word["index"] for word in words} == sparse.keys()
        assert all(abs(word["value"] - sparse[word["index"]]) <= 1e-5 for word in words)
    for path in ("/", "/embed"):
        (vector,) = answered(post(served, {"inputs": TEXTS[0]}, path))
        assert distance(vector, written.vectors(TEXTS[0]).sentence) <= 1e-5


def test_sparse_vectors_are_bounded_by_the_text(written: Hybrid, backend: str) -> None:
    """A text has no more words than tokens, however large the vocabulary is: a small limit holds many."""
    if backend != "torch":
        pytest.skip("the bound is the same for every backend")
    with serve(model=f"m3={written.folder}", max_response_bytes=60_000, threads=1) as small:
        body = {"inputs": ["a"] * 30, "outputs": ["sparse"], "columns": []}
        assert post(small, body).status_code == 200
        refused = post(small, {**body, "inputs": ["hello " * 80] * 30})
        assert "set `top_k`" in assert_problem(refused, 413, "response-too-large", limit=60_000)["detail"]


# ------------------------------------------------------------------------------------ scores


@pytest.mark.parametrize(
    "weights",
    [[1, 1, 1], [0.4, 0.2, 0.4], [0.15, 0.5, 0.35], [3, 0, 0], [0, 1, 0], [0, 0, 1e-6], [10, 1000, 1]],
    ids=str,
)
def test_scores_are_those_of_compute_score(weights: list[float], served: Service, written: Hybrid) -> None:
    """Weighted, and divided by the sum of the weights; the best text first."""
    answer = answered(post(served, {"query": QUERY, "texts": TEXTS, "weights": weights}, "/rerank"))
    assert answer["method"] == "hybrid"
    expected = written.scores(QUERY, TEXTS, weights)
    for item in answer["data"]:
        assert abs(item["score"] - expected[item["index"]]) <= 1e-5
    scores = [item["score"] for item in answer["data"]]
    assert scores == sorted(scores, reverse=True)
    best = answered(post(served, {"query": QUERY, "texts": TEXTS, "weights": weights, "top_n": 2}, "/rerank"))
    assert best["data"] == answer["data"][:2]
    tokens = sum(len(written.vectors(text).ids) for text in [QUERY, *TEXTS])
    assert answer["usage"] == {"input_tokens": tokens}


def test_without_weights_texts_are_ranked_by_sentence_vectors(served: Service, written: Hybrid) -> None:
    """As before, and as of every model of them."""
    answer = answered(post(served, {"query": QUERY, "texts": TEXTS}, "/rerank"))
    assert answer["method"] == "bi-encoder"
    expected = written.scores(QUERY, TEXTS, [1, 0, 0])
    for item in answer["data"]:
        assert abs(item["score"] - expected[item["index"]]) <= 1e-5


def test_a_query_without_words_matches_none(served: Service) -> None:
    """Of an empty one only special tokens are left."""
    body = {"query": "日は", "texts": TEXTS, "weights": [0, 1, 0]}
    answer = answered(post(served, body, "/rerank"))
    asked = served.encode("日は", outputs=["sparse"])["data"][0]["sparse"]["token_ids"]
    words = [item["sparse"]["token_ids"] for item in served.encode(TEXTS, outputs=["sparse"])["data"]]
    for item in answer["data"]:
        assert (item["score"] > 0) == (not {*asked}.isdisjoint(words[item["index"]]))


LIST = "weights must be a list of three numbers, for the sentence vectors, the sparse vectors and the vectors"


@pytest.mark.parametrize(
    ("weights", "field", "detail"),
    [
        ([1, 1], "weights", LIST),
        ([1, 1, 1, 1], "weights", LIST),
        ([], "weights", LIST),
        ({"dense": 1}, "weights", LIST),
        (1, "weights", LIST),
        ([0, 0, 0], "weights", "weights must not all be 0: give one kind of vectors a weight above 0"),
        ([1, -0.5, 1], "weights.1", "weights.1 must be a number from 0 to 1000000"),
        ([1, 1, 1e7], "weights.2", "weights.2 must be a number from 0 to 1000000"),
        (["1", 1, 1], "weights.0", "weights.0 must be a number from 0 to 1000000"),
        ([True, 1, 1], "weights.0", "weights.0 must be a number from 0 to 1000000"),
        ([None, 1, 1], "weights.0", "weights.0 must be a number from 0 to 1000000"),
    ],
    ids=str,
)
def test_other_weights_are_refused(weights: Any, field: str, detail: str, served: Service) -> None:
    """In one sentence that names the field and what it may be."""
    response = post(served, {"query": QUERY, "texts": TEXTS, "weights": weights}, "/rerank")
    assert detail in assert_problem(response, 422, "invalid-request", field=field)["detail"]


@pytest.mark.parametrize(
    ("option", "value"), [("raw_scores", True), ("attention", {"layers": [0]}), ("prompt", "p")]
)
def test_what_is_of_pairs_is_refused(option: str, value: Any, served: Service) -> None:
    """Query and texts run apart."""
    body = {"query": QUERY, "texts": TEXTS, "weights": [1, 1, 1], option: value}
    document = assert_problem(post(served, body, "/rerank"), 422, "unsupported", field=option)
    assert "the method of this model is hybrid: leave it out" in document["detail"]


def test_other_models_have_no_weights(served: Service, backend: str) -> None:
    """The error names the model that has."""
    if backend == "onnx":
        pytest.skip("one model is served")
    body = {"query": QUERY, "texts": TEXTS, "weights": [1, 1, 1], "model": MINILM}
    document = assert_problem(post(served, body, "/rerank"), 422, "unsupported", field="model")
    assert document["detail"] == (
        f'The model "{MINILM}" has no bge-m3 layers, needed by weights: choose from m3.'
    )
    refused = post(served, {"inputs": "a", "outputs": ["sparse"], "model": MINILM})
    assert "choose from m3" in assert_problem(refused, 422, "unsupported", field="model")["detail"]


def test_a_similarity_is_explained_by_sentence_vectors(served: Service, backend: str) -> None:
    """What is explained is the vector that `/similarity` compares."""
    if backend == "onnx":
        pytest.skip("gradients and parts are the same code")
    body = {"inputs": [[QUERY, TEXTS[0]]]}
    assert answered(post(served, body, "/explain"))["data"][0]["index"] == 0
