"""Bodies in gzip and deflate, on every route for which a model runs: what they hold counts."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from service.endpoints import Endpoint
from service.protocols.endpoints import ENDPOINTS
from tests.support.serving import Service, serve

MODEL = "all-MiniLM-L6-v2"
ROUTES = [one for one in ENDPOINTS if one.inference]
CODINGS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    ("deflate", zlib.compress),
]
LIMIT = 4000


@pytest.fixture(scope="module")
def small() -> Iterator[Service]:
    with serve(max_body_bytes=LIMIT) as started:
        yield started


def address(endpoint: Endpoint) -> str:
    return endpoint.path.replace("{model:path}", MODEL).replace("{version}", "1")


def example(endpoint: Endpoint) -> dict[str, Any]:
    value: dict[str, Any] = next(iter(endpoint.examples.values()))["value"]
    return value | {"model": MODEL}


def sent(service: Service, path: str, content: bytes, coding: str | None) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"} | ({"Content-Encoding": coding} if coding else {})
    response = service.http.post(path, content=content, headers=headers)
    return response.status_code, response.json()


def form(value: Any) -> Any:
    """The fields and lengths of an answer, whose durations and ids differ from one time to the next."""
    if isinstance(value, dict):
        return {name: form(one) for name, one in value.items()}
    return len(value) if isinstance(value, list) else type(value)


@pytest.mark.parametrize("endpoint", ROUTES, ids=lambda one: str(one.path))
def test_every_route_reads_them(small: Service, endpoint: Endpoint) -> None:
    """The same answer as to the body itself, in each coding."""
    path, body = address(endpoint), json.dumps(example(endpoint)).encode()
    plain = sent(small, path, body, None)
    assert plain[0] == 200 or "unsupported" in str(plain) or "Backend" in str(plain) or plain[0] == 400
    for coding, compress in CODINGS:
        status, answer = sent(small, path, compress(body), coding)
        assert (status, form(answer)) == (plain[0], form(plain[1]))


@pytest.mark.parametrize("endpoint", ROUTES, ids=lambda one: str(one.path))
def test_every_route_guards_against_bombs(small: Service, endpoint: Endpoint) -> None:
    """A body of a few bytes that stands for three million is refused by the limit, a damaged one is a 400."""
    bomb = gzip.compress(b" " * 3_000_000)
    assert len(bomb) < LIMIT
    status, answer = sent(small, address(endpoint), bomb, "gzip")
    assert status == 413
    assert f"the limit is {LIMIT}" in str(answer)
    status, answer = sent(small, address(endpoint), gzip.compress(b"{}")[:-1], "gzip")
    assert status == 400
    assert "The body is not valid gzip: its end is missing." in str(answer)


def test_other_codings_are_refused_with_the_known_ones(small: Service) -> None:
    """In the header, which clients read, and in words."""
    response = small.http.post("/encode", content=b"{}", headers={"Content-Encoding": "br"})
    assert response.status_code == 415
    assert response.headers["accept-encoding"] == "gzip, deflate"
    assert response.json()["allowed"] == ["gzip", "deflate", "identity"]
