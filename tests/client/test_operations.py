"""The Python client before and beside its calls: is it there, is it ready, what runs, and what is logged."""

import asyncio
import logging
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import httpx
import pytest

from headlight_client import (
    AsyncHeadlight,
    Headlight,
    HeadlightConnectionError,
    HeadlightError,
    HeadlightTimeout,
)
from headlight_client.info import Info, ServedModel, ServiceLimits
from service.protocols import operations
from tests.client.test_retry import ANSWER
from tests.support.serving import Service, free_port, serve
from tests.support.stand_in import Reply, refused, stand_in

READY = Reply(pieces=[b'{"status":"ready"}'])


def test_info_is_what_the_service_says(strict: Service) -> None:
    """Every member of /info is an attribute, of both clients; what is new there is in `document`."""

    async def asked() -> Info:
        async with AsyncHeadlight(strict.url) as client:
            return await client.info()

    with Headlight(strict.url) as client:
        info = client.info()
    shown = strict.http.get("/info").json()
    assert info == asyncio.run(asked())
    assert info.document == shown
    assert (info.version, len(info.models)) == (shown["version"], 1)
    assert {f.name for f in fields(ServedModel)} <= set(operations.ServedModel.model_fields)
    for field in fields(ServedModel):
        assert getattr(info.models[0], field.name) == shown["models"][0][field.name]
    for field in fields(ServiceLimits):
        assert getattr(info.limits, field.name) == shown["limits"][field.name]
    assert len(repr(info).splitlines()) == 1


def test_an_earlier_service_has_no_times_in_its_info(strict: Service) -> None:
    """What its models do not say is None, and calls are made as with any other."""
    shown = strict.http.get("/info").json()
    for name in ("request_timeout_s", "longest_text_s"):
        assert shown["models"][0].pop(name) > 0
    (model,) = Info.of(shown).models
    assert (model.request_timeout_s, model.longest_text_s) == (None, None)


def test_an_info_that_is_none_is_an_error() -> None:
    """Something else at that URL is a HeadlightError, never a stray KeyError."""
    page = Reply(pieces=[b"<html></html>"], headers={"Content-Type": "text/html"})
    for reply in (page, Reply(pieces=[b"[]"]), Reply(pieces=[b'{"version": "1"}'])):
        with (
            stand_in(ANSWER, gets={"/info": reply}) as server,
            Headlight(server.url) as client,
            pytest.raises(HeadlightError, match="cannot be read"),
        ):
            client.info()


def test_a_key_and_headers_go_with_every_request() -> None:
    """What a gateway asks for is sent to all routes."""
    gets = {"/readyz": READY, "/info": Reply(pieces=[b'{"version": "1", "models": [], "limits": {}}'])}
    sent: Any = {"api_key": "k", "headers": {"X-Team": "search"}}
    with stand_in(ANSWER, gets=gets) as server, Headlight(server.url, **sent) as client:
        client.wait_until_ready()
        client.info()
        client.encode("a")
    assert [one.path for one in server.received] == ["/readyz", "/info", "/encode"]
    assert {one.headers["x-team"] for one in server.received} == {"search"}
    assert {one.headers["authorization"] for one in server.received} == {"Bearer k"}


def test_a_service_that_starts_is_waited_for() -> None:
    """From before it listens until it is ready; then it answers at once, without a retry."""
    port = free_port()
    with Headlight(f"http://127.0.0.1:{port}", retries=0) as client:
        waiting = threading.Thread(target=client.wait_until_ready)
        waiting.start()
        with serve(port=port, wait=False):
            waiting.join(60)
            assert not waiting.is_alive()
            assert len(client.encode("a")) == 1


def test_waiting_ends_with_what_was_seen_last() -> None:
    """Not ready in time: the URL, the time, and why."""

    async def wait(url: str) -> None:
        async with AsyncHeadlight(url) as client:
            await client.wait_until_ready(timeout=0.5)

    def wait_too(url: str) -> None:
        with Headlight(url) as client:
            client.wait_until_ready(timeout=0.5)

    for waited in (wait_too, lambda url: asyncio.run(wait(url))):
        with stand_in(ANSWER, gets={"/readyz": refused(503, {"detail": "It loads."})}) as server:
            start = time.monotonic()
            with pytest.raises(HeadlightTimeout) as raised:
                waited(server.url)
            assert time.monotonic() - start < 2
        assert str(raised.value) == (
            f"{server.url}/readyz was not ready within 0.5 s. Last error: It loads. (503 overloaded)"
        )
        assert isinstance(raised.value.__cause__, HeadlightError)
        assert 2 <= len(server.received) <= 5
        with pytest.raises(HeadlightTimeout, match=r"Last error: .* cannot be reached"):
            waited(server.url)


def test_waiting_for_what_will_not_come_ends_at_once() -> None:
    """A server that has no /readyz is another program, which no waiting makes into this one."""
    with (
        stand_in(ANSWER) as server,
        Headlight(server.url) as client,
        pytest.raises(HeadlightError) as raised,
    ):
        client.wait_until_ready()
    assert raised.value.status == 404
    assert len(server.received) == 1


@contextmanager
def silent() -> Iterator[str]:
    """A listener that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def failure(url: str, **options: Any) -> HeadlightConnectionError:
    with (
        Headlight(url, retries=0, **options) as client,
        pytest.raises(HeadlightConnectionError) as raised,
    ):
        client.encode("a")
    return raised.value


def test_what_fails_below_http_names_the_url_and_the_way_out() -> None:
    """Refused, no such host, no TLS, silence: each is a HeadlightError that says what to check."""
    url = f"http://127.0.0.1:{free_port()}"
    error = failure(url)
    assert str(error).startswith(f"{url}/encode cannot be reached: ")
    assert "Check the URL and that the service is running" in str(error)
    assert isinstance(error, HeadlightError)
    assert isinstance(error.__cause__, httpx.ConnectError)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 (our own bytes)
    assert (str(copy), copy.url, copy.status) == (str(error), f"{url}/encode", None)
    assert "http://nowhere.invalid:8000/encode cannot be reached" in str(
        failure("http://nowhere.invalid:8000")
    )
    with stand_in(ANSWER) as server:
        secure = failure(server.url.replace("http:", "https:"))
    assert "does not use TLS" in str(secure)
    with silent() as address:
        late = failure(f"http://{address}", timeout=0.2)
    assert isinstance(late, HeadlightTimeout)
    assert str(late) == (
        f"http://{address}/encode sent nothing for 0.2 s: allow more with timeout=…, "
        "or send fewer texts at a time."
    )


def test_a_url_without_its_scheme_is_refused_at_once() -> None:
    """The commonest slip is found when the client is made."""
    with pytest.raises(ValueError, match=r"url is 'localhost:8000': include the scheme"):
        Headlight("localhost:8000")
    with pytest.raises(ValueError, match="concurrency is 0"):
        AsyncHeadlight(concurrency=0)


def test_attempts_that_failed_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A call that waits says for what: which attempt is next, when, and the reason; a full queue is usual."""
    replies = [refused(429, {"detail": "Full."}, Retry_After="0"), Reply(reset=True), ANSWER]
    with (
        caplog.at_level(logging.INFO, "headlight_client"),
        stand_in(*replies) as server,
        Headlight(server.url) as client,
    ):
        client.encode("a")
    first, second = caplog.records
    assert (first.levelname, second.levelname) == ("INFO", "WARNING")
    assert first.getMessage().startswith(f"{server.url}/encode: attempt 2 in 0.")
    assert first.getMessage().endswith(" s, after: Full. (429 overloaded)")
    assert second.getMessage().startswith(f"{server.url}/encode: attempt 3 in 0.")
