"""`/v1/models` for OpenAI's and Cohere's clients, and base URLs that end in a slash."""

from tests.contract.test_openai import PATH, assert_error
from tests.support.serving import Json, Service, post
from tests.support.tei import ask


def test_models_are_listed(tei: Service) -> None:
    """For OpenAI's client and, under another name, for Cohere's; a name may need quoting."""
    listed = tei.http.get("/v1/models").json()
    assert [one["id"] for one in listed["data"]] == [one["name"] for one in listed["models"]]
    assert listed["data"][0] | {"created": 0} == {
        "id": "mini",
        "object": "model",
        "created": 0,
        "owned_by": "headlight",
    }
    assert tei.http.get("/v1/models/mini").json() == listed["data"][0] | listed["models"][0]
    assert_error(tei.http.get("/v1/models/org%2Fother"), 404, "model", "org/other")


def test_models_say_what_they_can(tei: Service) -> None:
    """A classifier of several labels ranks nothing; Cohere's `endpoint` filters."""
    listed = tei.http.get("/v1/models").json()["models"]
    endpoints = {one["name"]: one["endpoints"] for one in listed}
    assert endpoints["mini"] == ["embed", "rerank"]
    assert endpoints["labels"] == ["embed"]
    for name, able in endpoints.items():
        ranked = post(tei, {"model": name, "query": "a", "documents": ["b"]}, "/v1/rerank")
        assert (ranked.status_code == 200) == ("rerank" in able)
        assert post(tei, {"model": name, "input": "a"}, PATH).status_code == 200
    for endpoint in ("embed", "rerank", "chat"):
        found = tei.http.get("/v1/models", params={"endpoint": endpoint}).json()
        expected = [name for name, able in endpoints.items() if endpoint in able]
        assert [one["name"] for one in found["models"]] == [one["id"] for one in found["data"]] == expected


def test_two_slashes_are_one(tei: Service) -> None:
    """A base URL that ends in a slash leads to the same routes, with the same label in metrics."""
    body: Json = {"input": "a", "dimensions": 2}
    assert ask(tei, "/v1//embeddings", **body) == ask(tei, PATH, **body)
    for path in ("models", "models/mini"):
        assert tei.http.get(f"/v1//{path}").json() == tei.http.get(f"/v1/{path}").json()
    assert post(tei, {"inputs": [["a"]]}, "/v1//contextualizedembeddings").status_code == 200
    assert_error(post(tei, {"input": 1}, "/v1//embeddings"), 400, "input", "must be")
    assert "/v1//" not in tei.http.get("/metrics").text
