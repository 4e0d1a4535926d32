"""Around every request: its id, and an answer whatever happens."""

import asyncio
import json
import string
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send

from service.app import create_app
from service.http.middleware import RequestMiddleware
from service.http.request_context import request_id
from service.lifecycle import ServiceState
from service.protocols.endpoints import ENDPOINTS
from service.settings import read_settings
from tests.support.serving import Service, parse_metrics

SANE = string.ascii_letters + string.digits + "._-"


@given(given=st.text(SANE, min_size=1, max_size=128))
def test_a_sane_id_is_kept(given: str) -> None:
    """What reads like a token is the id of the request."""
    assert request_id(given) == given


@given(
    given=st.none() | st.just("") | st.text(SANE, min_size=129) | st.text().filter(lambda t: not t.isascii())
)
def test_another_id_is_replaced(given: str | None) -> None:
    """What is missing, too long or not a token gets a new id."""
    made = request_id(given)
    assert made != given
    assert 16 <= len(made) <= 128
    assert request_id(made) == made


def test_new_ids_differ() -> None:
    """No two requests share a made id."""
    assert len({request_id(None) for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    ("path", "method"),
    [("/encode", "POST"), ("/livez", "GET"), ("/metrics", "GET"), ("/docs", "GET"), ("/nothing", "GET")],
)
def test_every_answer_carries_the_id(service: Service, path: str, method: str) -> None:
    """The client's own id comes back on every route, and in the problem document."""
    body = {"inputs": "a"} if method == "POST" else None
    response = service.http.request(method, path, json=body, headers={"X-Request-ID": "mine-1.2_3"})
    assert response.headers["x-request-id"] == "mine-1.2_3"
    if response.status_code >= 400:
        assert response.json()["request_id"] == "mine-1.2_3"
    other = service.http.request(method, path, json=body).headers["x-request-id"]
    assert other != service.http.request(method, path, json=body).headers["x-request-id"]


@pytest.mark.parametrize("given", ["two words", "a" * 129, '"quoted"', "new\tline", "<script>", "{}", "é"])
def test_an_id_that_could_harm_a_log_is_replaced(service: Service, given: str) -> None:
    """Only tokens are repeated."""
    headers = {b"X-Request-ID": given.encode()}
    response = service.http.get("/livez", headers=headers)
    assert response.headers["x-request-id"].isalnum()


def test_the_app_is_fastapis_own() -> None:
    """Requests reach the endpoints through its own call, with our layers in the place of its own."""
    app = create_app(read_settings())
    assert type(app) is FastAPI
    assert isinstance(app.middleware_stack, RequestMiddleware)


# ------------------------------------------------------------------------------- the middleware alone


def call(app: Any, path: str = "/encode", method: str = "POST") -> tuple[list[Message], ServiceState]:
    """Send one request through the middleware around an ASGI app."""
    state = ServiceState(read_settings(), ENDPOINTS)
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {"type": "http", "path": path, "method": method, "headers": [], "query_string": b""}
    asyncio.run(RequestMiddleware(app, state, other=app)(scope, receive, send))
    return sent, state


def test_an_error_that_nobody_foresaw_is_a_500_problem(caplog: pytest.LogCaptureFixture) -> None:
    """The client gets a document without the error's text, the log gets the error, and the count goes up."""

    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError("a secret")

    sent, state = call(broken)
    headers = dict(sent[0]["headers"])
    document = json.loads(sent[1]["body"])
    assert sent[0]["status"] == document["status"] == 500
    assert headers[b"content-type"] == b"application/problem+json"
    assert document["request_id"] == headers[b"x-request-id"].decode()
    assert document["instance"] == "/encode"
    assert "secret" not in sent[1]["body"].decode()
    assert "a secret" in caplog.text
    samples = parse_metrics(state.metrics.exposition().decode())
    assert samples['headlight_requests_total{kind="inference",route="/encode",status="500"}'] == 1
    assert state.in_flight == 0


def test_an_error_after_the_head_is_not_answered_twice() -> None:
    """When an answer has begun, nothing is written after it and the server closes the connection."""

    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        call(broken)


@pytest.mark.parametrize(
    ("path", "method", "in_flight", "seen_as"),
    [
        ("/encode", "POST", 1, "POST"),
        ("/attention", "POST", 1, "POST"),
        ("/encode", "HEAD", 1, "HEAD"),
        ("/livez", "GET", 0, "GET"),
        ("/livez", "HEAD", 0, "GET"),
        ("/nothing", "HEAD", 0, "GET"),
    ],
)
def test_inference_requests_are_in_flight_while_they_last(
    path: str, method: str, in_flight: int, seen_as: str
) -> None:
    """The drain waits for inference only; HEAD is read as GET elsewhere."""
    seen: list[tuple[int, str]] = []
    state = ServiceState(read_settings(), ENDPOINTS)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((state.in_flight, scope["method"]))
        await send({"type": "http.response.start", "status": 204, "headers": []})

    async def nothing(*_: Any) -> Any:
        return None

    scope: Scope = {"type": "http", "path": path, "method": method, "headers": [], "query_string": b""}
    asyncio.run(RequestMiddleware(app, state, other=app)(scope, nothing, nothing))
    assert seen == [(in_flight, seen_as)]
    assert state.in_flight == 0
