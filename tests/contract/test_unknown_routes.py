"""What wrong base URLs lead to: a sentence that names the right one, where each client shows it."""

import pytest

from tests.support.serving import Service, assert_problem, request_bytes


def advice(service: Service, path: str, method: str = "POST") -> str:
    """The sentence of the 404 for a path, which `error.message` repeats for OpenAI's clients."""
    document = assert_problem(service.raw(request_bytes(path, method=method)), 404, "not-found")
    error = document["error"]
    assert error == {
        "message": document["detail"],
        "type": "invalid_request_error",
        "param": None,
        "code": "not_found",
    }
    assert document["detail"].endswith("; /docs lists the routes.")
    return str(document["detail"])


@pytest.mark.parametrize(
    ("path", "route", "bases"),
    [
        ("/openai/embeddings", "/v1/embeddings or /api/embeddings", {"OpenAI's": "/v1"}),
        ("/v1/v1/embeddings", "/v1/embeddings", {"OpenAI's": "/v1"}),
        ("/v1/embedding", "/v1/embeddings", {"OpenAI's": "/v1"}),
        ("/v1/embeddings/embeddings", "/v1/embeddings", {"OpenAI's": "/v1"}),
        ("/api/v1/rerank", "/v1/rerank or /v2/rerank", {"Cohere's": ""}),
        ("/tei/tei/embed", "/tei/embed", {"text-embeddings-inference's": "/tei"}),
        ("/v1/api/embed", "/api/embed", {"Ollama's": ""}),
        ("/encode/", "/encode", {}),
        ("//encode", "/encode", {}),
        ("/v1/attention", "/attention", {}),
        ("/tokenise", "/tokenize or /tei/tokenize", {"text-embeddings-inference's": "/tei"}),
    ],
)
def test_a_wrong_path_names_the_route_and_the_base_url(
    service: Service, path: str, route: str, bases: dict[str, str]
) -> None:
    """The route that ends alike, or nearly, and what its clients need as their base URL."""
    sentence = advice(service, path)
    assert route in sentence
    for name, base in bases.items():
        assert f"http://localhost{base} for {name}" in sentence
    assert bool(bases) == ("base URL" in sentence)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/generate"])
def test_routes_that_generate_say_that_nothing_is_generated(service: Service, path: str) -> None:
    """A chat client is told what this service is not."""
    assert "encode text and do not generate any" in advice(service, path)


def test_a_path_like_no_route_names_none(service: Service) -> None:
    """Nor does one that is too long to be compared."""
    for path in ("/quux", "/" + "encode" * 100):
        assert "perhaps" not in advice(service, path)


def test_an_openai_client_with_the_base_url_of_triton_reads_the_sentence(service: Service) -> None:
    """Under /v2, where errors are strings, `error` is an object for a path of OpenAI's."""
    assert "/v1/embeddings" in advice(service, "/v2/embeddings")
    other = service.raw(request_bytes("/v2/nothing")).json()
    assert other["error"].startswith("There is no route /v2/nothing")


def test_the_client_of_the_hub_for_javascript_shows_the_sentence(service: Service) -> None:
    """It prints `error`, which must be a string for it."""
    headers = {"User-Agent": "@huggingface/inference/4.13.30 Node.js/20"}
    error = service.http.post("/hf/embed", json={}, headers=headers).json()["error"]
    assert "you may want /embed or /tei/embed" in error
