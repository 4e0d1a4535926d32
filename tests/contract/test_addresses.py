"""Which contract answers at an address: text-embeddings-inference's under `/tei`, else the native one."""

import json
import re
from typing import Any

import pytest

from service.protocols.endpoints import ENDPOINTS
from tests.support.serving import Json, Service, post
from tests.support.tei import QUERY, RANKED, TEXT

RANKER: Json = {"model": "ranker", "query": QUERY}
SENTENCES: Json = {"source_sentence": TEXT, "sentences": [TEXT]}


def contract(answer: Any) -> str:
    """Whose form a response has, told by what only that contract's responses have."""
    if isinstance(answer, list):
        return "tei"
    for name, fields in (
        ("cohere", {"results", "meta", "id"}),  # with Voyage's fields beside them
        ("voyage", {"object", "data", "model", "usage"}),
    ):
        if fields <= answer.keys():
            return name
    return "native" if {"model", "usage"} <= answer.keys() else "unknown"


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/encode", {"inputs": TEXT}, "native"),
        ("/rerank", {**RANKER, "texts": RANKED}, "native"),
        ("/rerank", {**RANKER, "texts": RANKED, "raw_scores": True}, "native"),
        ("/tei/rerank", {**RANKER, "texts": RANKED}, "tei"),
        ("/v1/rerank", {**RANKER, "documents": RANKED}, "cohere"),
        ("/v1/rerank", {**RANKER, "documents": RANKED, "top_n": 1}, "cohere"),
        ("/v1/rerank", {**RANKER, "documents": RANKED, "top_k": 1}, "voyage"),
        ("/v1/rerank", {**RANKER, "documents": RANKED, "truncation": True}, "voyage"),
        ("/v1/rerank", {**RANKER, "documents": RANKED, "top_k": None, "truncation": None}, "cohere"),
        ("/similarity", {"texts": [TEXT, QUERY]}, "native"),
        ("/similarity", {"source": TEXT, "texts": [QUERY]}, "native"),
        ("/tei/similarity", {"inputs": SENTENCES}, "tei"),
        ("/predict", {"model": "labels", "inputs": TEXT}, "native"),
        ("/tei/predict", {"model": "labels", "inputs": TEXT}, "tei"),
        ("/tokenize", {"inputs": TEXT}, "native"),
        ("/tei/tokenize", {"inputs": TEXT}, "tei"),
        ("/decode", {"token_ids": [101]}, "native"),
        ("/tei/decode", {"ids": [101]}, "tei"),
        ("/tei", {"inputs": TEXT}, "tei"),
    ],
    ids=str,
)
def test_the_address_decides(tei: Service, path: str, body: Json, expected: str) -> None:
    """The same body has a native answer and one of another contract; only Voyage's is told by its fields."""
    response = post(tei, body, path)
    assert response.status_code == 200, response.text
    assert contract(response.json()) == expected


@pytest.mark.parametrize("path", ["/embeddings", "/tei/embeddings", "/tei/v1/embeddings"])
def test_text_embeddings_inference_has_openai_s_embeddings(tei: Service, path: str) -> None:
    """The same answers and the same errors, at its addresses."""
    bodies: tuple[Json, ...] = ({"input": TEXT, "model": "mini"}, {"input": []})
    for body in bodies:
        found, expected = (post(tei, body, route, X_Request_ID="a") for route in (path, "/v1/embeddings"))
        assert (found.status_code, found.json()) == (expected.status_code, expected.json())


ROUTES = [endpoint.path for endpoint in ENDPOINTS if endpoint.inference]
FIT = {
    "/predict": "labels",
    "/tei/predict": "labels",
    "/tei/rerank": "ranker",
    "/embed_sparse": "splade",
    "/tei/embed_sparse": "splade",
}


@pytest.mark.parametrize("route", ROUTES)
def test_a_body_that_is_no_object_is_shown_one_that_is_valid(tei: Service, route: str) -> None:
    """With the fields of its own route: who sends what the error shows is answered."""
    path = route.replace("{model:path}", "mini").replace("{version}", "1")
    document = post(tei, [], path).json()
    error = document.get("detail") or document["error"]
    found = re.search(r"body must be a JSON object, such as (\{.*\})\.$", error)
    assert found is not None, error
    body = json.loads(found[1].replace("NAME", "mini"))
    answer = post(tei, body | ({"model": FIT[route]} if route in FIT else {}), path)
    assert answer.status_code == 200, (body, answer.text)


def test_info_is_one_answer_for_both(tei: Service) -> None:
    """Under the prefix as without it: native fields, and those of text-embeddings-inference."""
    info = tei.http.get("/info").json()
    assert {"version", "models", "limits", "model_id", "max_client_batch_size"} <= info.keys()
    assert tei.http.get("/tei/info").json() == info
