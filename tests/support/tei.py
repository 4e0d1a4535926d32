"""Requests of text-embeddings-inference, and the forms of their answers."""

from typing import Any

import httpx

from tests.support.serving import Service, post

TEXT = "What is Deep Learning?"
TEXTS = ["Deep Learning is not...", "Deep learning is..."]
QUERY, RANKED = "the man beats", ["boy beats man", "hello world", "the boy, the man. " * 3, "a b"]


def ask(service: Service, path: str, **body: object) -> Any:
    """The answer of a request, which must be a 200 with JSON."""
    response = post(service, body, path)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    return response.json()


def assert_error(response: httpx.Response, status: int, kind: str, part: str = "") -> None:
    """Check that an answer is an error of TEI's form, of these two members alone."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    error = response.json()
    assert list(error) == ["error", "error_type"]
    assert error["error_type"] == kind
    assert part in error["error"]
