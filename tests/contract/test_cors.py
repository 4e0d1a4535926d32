"""Which web pages may ask from a browser."""

from collections.abc import Iterator

import pytest

from tests.support.serving import ROUTES, Service, assert_problem, requests_total, serve

PAGE, OTHER = "https://page.example", "https://other.example"
KEY = "key-0123456789abcdef"
ASKS = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}
ALLOW_ORIGIN = "access-control-allow-origin"


@pytest.fixture(scope="module")
def opened() -> Iterator[Service]:
    """A service that one page may ask, with a key."""
    with serve(cors_origins=f"{PAGE}, http://localhost:3000", api_keys=KEY) as started:
        yield started


@pytest.mark.parametrize("path", [*ROUTES, "/info", "/livez"])
def test_by_default_no_page_may_ask(service: Service, path: str) -> None:
    """Nothing that a browser takes for a permission, before and with a request."""
    asked = service.http.options(path, headers={"Origin": PAGE, **ASKS})
    assert_problem(asked, 405, "method-not-allowed")
    for response in (asked, service.http.request("GET", path, headers={"Origin": PAGE})):
        assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", [*ROUTES, "/info"])
def test_an_allowed_page_is_told_so_before_it_sends_its_key(opened: Service, path: str) -> None:
    """The browser's question carries no key and is answered; its headers are allowed, cookies are not."""
    before = opened.metrics()
    asked = opened.http.options(path, headers={"Origin": PAGE, **ASKS})
    assert asked.status_code == 200
    assert asked.headers[ALLOW_ORIGIN] == PAGE
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert {"authorization", "content-type"} <= set(
        asked.headers["access-control-allow-headers"].lower().replace(" ", "").split(",")
    )
    assert "access-control-allow-credentials" not in asked.headers
    assert asked.headers["x-request-id"]
    after = opened.metrics()
    answered = requests_total(path)
    assert after[answered] == before[answered]
    unmatched = 'headlight_requests_total{kind="other",route="unmatched",status="200"}'
    assert after[unmatched] == before[unmatched] + 1


@pytest.mark.parametrize("path", ROUTES)
def test_an_allowed_page_may_read_answers_and_errors(opened: Service, path: str) -> None:
    """With what scripts want to read beside the body."""
    headers = {"Origin": PAGE, "Authorization": f"Bearer {KEY}"}
    good = opened.http.post(path, json={"inputs": "a"}, headers=headers)
    bad = opened.http.post(path, json={"inputs": []}, headers=headers)
    locked = opened.http.post(path, json={"inputs": "a"}, headers={"Origin": PAGE})
    assert [response.status_code for response in (good, bad, locked)] == [200, 422, 401]
    for response in (good, bad, locked):
        assert response.headers[ALLOW_ORIGIN] == PAGE
        assert {"X-Request-ID", "Server-Timing", "Retry-After", "X-Truncated-Inputs", "X-Covered"} <= set(
            response.headers["access-control-expose-headers"].split(", ")
        )
        assert "origin" in response.headers["vary"].lower()
    assert "accept" in good.headers["vary"].lower()


def test_other_pages_methods_and_paths_are_answered_as_without_it(opened: Service) -> None:
    """No permission, and the same problem documents as ever."""
    for headers in (
        {"Origin": OTHER, **ASKS},
        {"Origin": f"{PAGE}.evil.example", **ASKS},
        {"Origin": "null", **ASKS},
        {"Origin": PAGE, **ASKS, "Access-Control-Request-Method": "DELETE"},
        {"Origin": PAGE},
        ASKS,
    ):
        asked = opened.http.options("/encode", headers=headers)
        assert_problem(asked, 405, "method-not-allowed")
    response = opened.http.post(
        "/encode", json={"inputs": "a"}, headers={"Origin": OTHER, "Authorization": f"Bearer {KEY}"}
    )
    assert response.status_code == 200
    assert not [name for name in response.headers if name.startswith("access-control")]
    assert_problem(opened.http.get("/nothing", headers={"Origin": PAGE}), 404, "not-found")


def test_a_star_lets_every_page_ask(narrow: Service) -> None:
    """For a service that is public anyway."""
    response = narrow.http.post("/encode", json={"inputs": "a"}, headers={"Origin": OTHER})
    assert response.headers[ALLOW_ORIGIN] == "*"
    assert narrow.http.options("/encode", headers={"Origin": OTHER, **ASKS}).status_code == 200
