"""Errors of text-embeddings-inference: its statuses, types and sentences, and the service's limits."""

import threading

import httpx
import pytest

from tests.support.serving import KEY, LONG, Json, Service, post, send
from tests.support.tei import ask, assert_error


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed", {"inputs": ""}),
        ("/embed", {"inputs": []}),
        ("/embed", {"inputs": ["a", ""]}),
        ("/embed", {"inputs": [[]]}),
        ("/embed_all", {"inputs": ""}),
        ("/", {"inputs": ""}),
        ("/tei/predict", {"inputs": "", "model": "labels"}),
        ("/tei/predict", {"inputs": ["", ""], "model": "labels"}),
        ("/tei/rerank", {"query": "a", "texts": []}),
        ("/tei/rerank", {"query": "", "texts": [""]}),
        ("/tei/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}),
        ("/tei/tokenize", {"inputs": []}),
        ("/tei/decode", {"ids": []}),
    ],
)
def test_an_empty_input_is_a_400(tei: Service, path: str, body: Json) -> None:
    """Of the type that is only for that."""
    assert_error(post(tei, body, path), 400, "Empty", "empty")


@pytest.mark.parametrize(
    ("path", "body", "part"),
    [
        ("/embed", {}, "inputs is required"),
        ("/embed", {"inputs": None}, "inputs is required"),
        ("/embed", {"inputs": {"a": 1}}, "inputs must be"),
        ("/embed", {"inputs": ["a", 1]}, "inputs.1 must be"),
        ("/embed", {"inputs": [1, "a"]}, "inputs.1 must be"),
        ("/embed", {"inputs": "a", "truncate": 1}, "truncate must be true or false"),
        ("/embed", {"inputs": "a", "truncation_direction": "up"}, "truncation_direction must be"),
        ("/embed", {"inputs": "a", "dimensions": 0}, "dimensions must be at least 1"),
        ("/embed", {"inputs": "a", "dimensions": 385}, "dimensions is 385"),
        ("/embed", {"inputs": "a", "prompt_name": "none"}, "Input validation error: prompt_name"),
        ("/tei/predict", {"inputs": ["a", "b", "c"]}, "inputs must be"),
        ("/tei/predict", {"inputs": [["a"], "b"]}, "inputs.1 must be"),
        ("/tei/rerank", {"texts": ["a"]}, "query is required"),
        ("/tei/similarity", {"inputs": {"sentences": ["a"]}}, "inputs.source_sentence is required"),
        ("/tei/decode", {"ids": [99999]}, "ids.0 is 99999"),
    ],
)
def test_what_is_not_valid_is_a_422(tei: Service, path: str, body: Json, part: str) -> None:
    """With the sentence of the native route, which names the field."""
    assert_error(post(tei, body, path), 422, "Validation", part)


@pytest.mark.parametrize("path", ["/embed", "/tei/rerank"])
def test_a_deep_value_is_a_422(tei: Service, path: str) -> None:
    """As deep as JSON may be, which is deeper than Python shows."""
    body = b'{"inputs": "a", "query": "a", "texts": ["a"], "truncation_direction": %b}'
    response = send(tei, body % (b"[" * 1010 + b"]" * 1010), path)
    assert_error(response, 422, "Validation", "truncation_direction must be")


@pytest.mark.parametrize("path", ["/embed", "/embed_all"])
def test_a_long_text_is_truncated_unless_that_is_refused(tei: Service, path: str) -> None:
    """A 200 by default, as since 1.9; with "truncate": false the original's sentence."""
    assert len(ask(tei, path, inputs=LONG)) == 1
    assert len(ask(tei, path, inputs=[[1037] * 300])) == 1
    sentence = "Input validation error: `inputs` must have less than 256 tokens. Given: {}"
    refused = post(tei, {"inputs": LONG, "truncate": False}, path)
    assert_error(refused, 422, "Validation", sentence.format(302))
    refused = post(tei, {"inputs": [[1037] * 300], "truncate": False}, path)
    assert_error(refused, 422, "Validation", sentence.format(300))


def test_limits_are_those_of_the_service(tei_ranking: Service, tei: Service) -> None:
    """Too many inputs have the original's sentence, bodies that are too large the service's."""
    sentence = "batch size 5 > maximum allowed batch size 4"
    five = ["a"] * 5
    for path, body in (
        ("/embed", {"inputs": five}),
        ("/embed", {"inputs": [[101]] * 5}),
        ("/tei/predict", {"inputs": [["a"]] * 5}),
        ("/tei/rerank", {"query": "a", "texts": five}),
        ("/tei/similarity", {"inputs": {"source_sentence": "a", "sentences": five}}),
        ("/tei/tokenize", {"inputs": five}),
        ("/tei/decode", {"ids": [[101]] * 5}),
    ):
        assert_error(post(tei_ranking, body, path), 422, "Validation", sentence)
    large = post(tei, {"inputs": "a" * (2 * 2**20)}, "/embed")
    assert_error(large, 413, "Validation", "The body has")
    broken = tei.http.post("/embed", content=b"{", headers={"Content-Type": "application/json"})
    assert_error(broken, 400, "Validation", "not valid JSON")
    assert_error(post(tei, {"inputs": "a", "model": "x"}, "/embed"), 404, "Validation", "not served here")


def test_an_overloaded_service_says_when_to_retry(several: Service) -> None:
    """A 429 of the original's type and beginning, with Retry-After."""
    long = ["word " * 250] * 20
    with several.new_client() as client:
        answers: list[httpx.Response] = []
        sending = [
            threading.Thread(target=lambda: answers.append(client.post("/embed", json={"inputs": long})))
            for _ in range(8)
        ]
        for thread in sending:
            thread.start()
        for thread in sending:
            thread.join()
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert_error(refused[0], 429, "Overloaded", "Model is overloaded")
    assert int(refused[0].headers["retry-after"]) >= 1


def test_a_key_is_asked_for_in_the_form_of_the_protocol(guarded: Service) -> None:
    """Routes of inference need it and say so; a token where no keys are set is ignored."""
    for path in ("/embed", "/tei/rerank", "/"):
        refused = post(guarded, {"inputs": "a"}, path)
        assert_error(refused, 401, "Validation", "key")
        assert refused.headers["www-authenticate"] == "Bearer"
    assert guarded.http.get("/tei/health").status_code == 200
    assert guarded.http.get("/").status_code == 307
    assert post(guarded, {"inputs": "a"}, "/embed", Authorization=f"Bearer {KEY}").status_code == 200


def test_a_token_of_the_hub_is_ignored(tei: Service) -> None:
    """Its client sends one to every address, also where no keys are set."""
    assert post(tei, {"inputs": "a"}, "/embed", Authorization="Bearer hf_x").status_code == 200
