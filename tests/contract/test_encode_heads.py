"""`POST /encode` of models with a head: sparse vectors of words, and vectors for late interaction."""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.references.autoencoder import FEATURES, KEPT, Csr, write_csr
from tests.references.checkpoints import MINILM, SUITED
from tests.references.comparing import distance, relative_distance
from tests.references.late_interaction import SIZE, LateInteraction, write_pylate
from tests.references.splade import largest, weights_of, write_sparse_encoder
from tests.support.backends import Kept, both_backends, native
from tests.support.serving import (
    JSON,
    NDJSON,
    NPZ,
    SAFETENSORS,
    Json,
    Service,
    assert_problem,
    post,
    read_npz,
    read_safetensors,
    serve,
)

pytestmark = both_backends

TEXTS = ["the man beats the boy", "hello, world: [the boy].", "a", ""]
LONG_QUERY = "the man " * 20


@pytest.fixture(scope="session")
def splade(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder of a SparseEncoder, and its model in `transformers`."""
    folder = tmp_path_factory.mktemp("models") / "splade"
    return folder, write_sparse_encoder(folder, **SUITED)


@pytest.fixture(scope="session")
def colbert(tmp_path_factory: pytest.TempPathFactory) -> LateInteraction:
    """A folder of PyLate."""
    return write_pylate(tmp_path_factory.mktemp("models") / "colbert", **SUITED)


@pytest.fixture(scope="session")
def csr(tmp_path_factory: pytest.TempPathFactory) -> Csr:
    """A folder of a SparseEncoder with a SparseAutoEncoder, whose pooling leaves prompts out."""
    return write_csr(
        tmp_path_factory.mktemp("models") / "csr", normalize=True, include_prompt=False, **SUITED
    )


@pytest.fixture(scope="session")
def served(kept: Kept, backend: str, splade: tuple[Path, Any], colbert: LateInteraction, csr: Csr) -> Service:
    """All of them, and with PyTorch the embedded model, which has no head."""

    def start() -> AbstractContextManager[Service]:
        sources = {"splade": splade[0], "colbert": colbert.folder, "csr": csr.folder}
        models = [f"{name}={kept.folder(folder, backend)}" for name, folder in sources.items()]
        return serve(model=",".join(models + [MINILM] * (backend != "onnx")), threads=1, **native(backend))

    return kept.service(("heads", backend), start)


def expected_words(model: Any, item: Json) -> list[tuple[int, float]]:
    """The definition, on the logits of `transformers` for an item's tokens."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([item["token_ids"]])).logits[0].numpy()
    return largest(weights_of(logits))


def test_sparse_vectors_are_those_of_splade(served: Service, splade: tuple[Path, Any]) -> None:
    """Largest first, beside the vectors of the same pass; each word has its name."""
    answer = served.encode(TEXTS, outputs=["sparse", "sentence"], model="splade")
    vocabulary = json.loads((splade[0] / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    plain = served.encode(TEXTS, model="splade")
    for item, alone in zip(answer["data"], plain["data"], strict=True):
        sparse, expected = item["sparse"], expected_words(splade[1], item)
        assert sparse["token_ids"] == [word for word, _ in expected]
        assert distance(sparse["weights"], [weight for _, weight in expected]) <= 1e-5
        assert [vocabulary[token] for token in sparse["tokens"]] == sparse["token_ids"]
        assert distance(item["embedding"], alone["embedding"]) <= 2e-6
    (one,) = served.encode(TEXTS[0], outputs=["sparse"], model="splade", top_k=3)["data"]
    assert one["sparse"]["token_ids"] == answer["data"][0]["sparse"]["token_ids"][:3]
    assert "embedding" not in one


def test_features_of_an_autoencoder_are_the_library_s(served: Service, backend: str, csr: Csr) -> None:
    """Each text alone and in a batch, with more features or a prompt than by default; in TEI as well."""
    bound = 1e-4 if backend == "onnx" else 1e-5
    options: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"top_k": 40}, {"k": 40}),
        ({"prompt_name": "query"}, {"unpooled": "the boy "}),
    ]
    for asked, expected in options:
        body = {"outputs": ["sparse", "sentence"], "model": "csr", **asked}
        batch = served.encode(TEXTS, **body)["data"]
        for i, text in enumerate(TEXTS):
            (alone,) = served.encode(text, **body)["data"]
            for sparse in (alone["sparse"], batch[i]["sparse"]):
                found = np.zeros(FEATURES)
                found[sparse["token_ids"]] = sparse["weights"]
                assert distance(found, csr.weights(text, **expected)) <= bound
                assert sparse["tokens"] == [str(number) for number in sparse["token_ids"]]
                assert sparse["weights"] == sorted(sparse["weights"], reverse=True)
    words = served.encode(TEXTS, outputs=["sparse"], model="csr")["data"]
    for path in ("/tei/embed_sparse", "/tei"):
        answers = post(served, {"inputs": TEXTS[:3], "model": "csr"}, path).json()
        for item, values in zip(words[:3], answers, strict=True):
            assert [one["index"] for one in values] == item["sparse"]["token_ids"]
            assert distance([one["value"] for one in values], item["sparse"]["weights"]) <= 2e-6
            assert len(values) == KEPT


def test_every_format_has_the_same_words(served: Service) -> None:
    """Files have the ids and weights as arrays, and the names in their metadata."""
    body = {"inputs": TEXTS, "outputs": ["sparse"], "model": "splade"}
    plain = post(served, body, accept=JSON).json()["data"]
    for kind, read in ((NPZ, read_npz), (SAFETENSORS, read_safetensors)):
        arrays, meta = read(post(served, body, accept=kind).content)
        for i, item in enumerate(plain):
            ids, weights = arrays[f"{i}.sparse_ids"], arrays[f"{i}.sparse_weights"]
            assert (ids.dtype.name, weights.dtype.name) == ("int32", "float32")
            assert ids.tolist() == item["sparse"]["token_ids"]
            assert np.array_equal(weights, np.array(item["sparse"]["weights"], np.float32))
            assert meta["data"][i]["sparse"] == {"tokens": item["sparse"]["tokens"]}
    lines = post(served, body, accept=NDJSON).text.splitlines()
    found = sorted((json.loads(line) for line in lines[:-1]), key=lambda item: int(item["index"]))
    assert [item["sparse"]["token_ids"] for item in found] == [i["sparse"]["token_ids"] for i in plain]


def test_vectors_of_a_role_are_those_of_late_interaction(served: Service, colbert: LateInteraction) -> None:
    """The columns show the tokens that ran; without a role there are plain hidden states."""
    for role in ("query", "document"):
        answer = served.encode(TEXTS, outputs=["tokens"], role=role, model="colbert")
        tokens = 0
        for text, item in zip(TEXTS, answer["data"], strict=True):
            ids, rows, vectors = colbert.vectors(text, is_query=role == "query")
            assert (item["token_ids"], item["token_rows"]) == (ids, rows)
            assert distance(item["token_embeddings"], vectors[None]) <= 1e-5
            tokens += len(ids)
        assert answer["usage"]["input_tokens"] == tokens
    body = {"inputs": TEXTS[:1], "outputs": ["tokens"], "role": "query", "model": "colbert"}
    (few,) = served.encode(columns=["special"], **body)["data"]
    assert list(few) == ["index", "special", "truncated", "original_length", "token_rows", "token_embeddings"]
    arrays, meta = read_npz(post(served, body, accept=NPZ).content)
    assert arrays["0.token_embeddings"].shape == (1, len(meta["data"][0]["token_rows"]), SIZE)
    (plain,) = served.encode(TEXTS[0], outputs=["tokens"], model="colbert")["data"]
    hidden = colbert.hidden(plain["token_ids"], [1] * len(plain["token_ids"]))
    assert "token_rows" not in plain
    assert relative_distance(plain["token_embeddings"], hidden[None]) <= 1e-5


def test_a_query_too_long_for_its_role_is_refused_with_that_limit(
    served: Service, colbert: LateInteraction
) -> None:
    """The role's limit holds, not the model's."""
    body = {"inputs": LONG_QUERY, "outputs": ["tokens"], "role": "query", "model": "colbert"}
    document = assert_problem(
        post(served, {**body, "truncate": False}), 422, "input-too-long", field="inputs.0", actual=43
    )
    assert document["limit"] == colbert.settings.query_length


@pytest.mark.parametrize(
    ("body", "field", "detail"),
    [
        ({"top_k": 3}, "top_k", 'has no effect without "sparse" or "logit_lens" in outputs'),
        ({"role": "query"}, "role", 'needs "outputs": ["tokens"] or'),
        ({"role": "query", "outputs": ["sparse"]}, "role", 'set "outputs" to ["tokens"]'),
        ({"role": "query", "outputs": ["tokens", "sentence"]}, "role", 'set "outputs" to ["tokens"]'),
        ({"role": "query", "outputs": ["tokens"], "layers": [0]}, "layers", "must be [-1] with role"),
        ({"role": "query", "outputs": ["tokens"], "inputs": [["a", "b"]]}, "role", "inputs has pairs"),
        ({"role": "passage", "outputs": ["tokens"]}, "role", "must be 'query' or 'document'"),
    ],
)
def test_options_without_effect_are_refused(
    served: Service, body: dict[str, Any], field: str, detail: str
) -> None:
    """Whatever the model is."""
    response = post(served, {"inputs": "a", "model": "colbert", **body})
    document = assert_problem(response, 422, "invalid-request", field=field)
    assert detail in document["detail"]


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (
            {"outputs": ["sparse"], "model": "colbert"},
            'The model "colbert" has no masked_words head, autoencoder head or bge-m3 layers, '
            'needed by "sparse" in outputs: choose from splade, csr.',
        ),
        (
            {"outputs": ["tokens"], "role": "query", "model": "splade"},
            'The model "splade" has no late_interaction head or bge-m3 layers, needed by role: '
            "choose from colbert.",
        ),
    ],
)
def test_other_models_are_refused_with_those_that_can(
    served: Service, body: dict[str, Any], detail: str
) -> None:
    """By the head that they would need."""
    document = assert_problem(post(served, {"inputs": "a", **body}), 422, "unsupported", field="model")
    assert document["detail"] == detail


def test_sparse_vectors_are_bounded_before_they_are_computed(splade: tuple[Path, Any], csr: Csr) -> None:
    """Every word could have a weight, and of features as many as the folder keeps: `top_k` says fewer."""
    with serve(model=f"splade={splade[0]},csr={csr.folder}", max_response_bytes=50_000, threads=1) as small:
        assert post(small, {"inputs": ["a"] * 20, "outputs": ["sparse"], "model": "csr"}).status_code == 200
        body = {"inputs": ["a"] * 20, "outputs": ["sparse"], "model": "splade"}
        document = assert_problem(post(small, body), 413, "response-too-large", limit=50_000)
        assert "set `top_k`" in document["detail"]
        assert post(small, {**body, "top_k": 2}).status_code == 200
