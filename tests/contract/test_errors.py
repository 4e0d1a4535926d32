"""500 and 503, and the order in which refusals are looked for, over a real socket."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.doubles import POISON
from tests.support.serving import LONG, ROUTES, Json, Service, answered, assert_problem, post, serve

# ----------------------------------------------------------------------------------------------- 500


def test_a_failed_computation_is_the_500_of_its_own_request_alone(failing: Service) -> None:
    """One input that cannot be computed fails its request; neighbours of the same batch are answered."""
    failed = 'headlight_inference_failures_total{model="all-MiniLM-L6-v2",reason="exception"}'
    before = failing.metrics().get(failed, 0)
    bodies: list[Json] = [{"inputs": ["a good text", f"number {i}"]} for i in range(12)]
    bodies[5] = {"inputs": ["a good text", f"a drop of {POISON}", "another"]}
    with ThreadPoolExecutor(12) as pool:
        responses = list(pool.map(lambda body: post(failing, body), bodies))
    for i, response in enumerate(responses):
        if i == 5:
            assert_problem(response, 500, "inference-failed")
        else:
            answered(response)
    assert failing.metrics()[failed] == before + 1
    assert POISON not in failing.log, "texts of clients are never logged"
    failing.encode("and it goes on")
    assert failing.http.get("/readyz").status_code == 200


# ------------------------------------------------------------------------------------ 503 and before


def test_while_loading_work_is_a_503_and_only_routes_come_before_it() -> None:
    """Before its models are loaded a service lives and is not ready; 404 and 405 come first, then 503."""
    with serve(wait=False) as service:
        service.wait_until_listening()
        for path in ("/readyz", "/health"):
            response = service.http.get(path)
            assert_problem(response, 503, "not-ready")
            assert int(response.headers["retry-after"]) >= 1
        for path in ROUTES:
            response = post(service, {"inputs": "a"}, path)
            assert_problem(response, 503, "not-ready")
            assert int(response.headers["retry-after"]) >= 1
        headers = {"Content-Type": "text/plain", "Accept": "text/html"}
        assert_problem(service.http.post("/encode", content=b"x", headers=headers), 503, "not-ready")
        assert_problem(service.http.post("/nothing", content=b"x", headers=headers), 404, "not-found")
        assert_problem(service.http.put("/encode", content=b"x", headers=headers), 405, "method-not-allowed")
        assert service.http.get("/livez").status_code == 200
        assert service.metrics()["headlight_ready{}"] == 0
        assert_problem(service.http.get("/readyz"), 503, "not-ready")
        service.wait_until_ready()
        service.encode("now")
        assert service.metrics()["headlight_ready{}"] == 1


TOO_LARGE = b"x" * 4001


@pytest.mark.parametrize(
    ("earlier", "kind", "path", "content", "headers"),
    [
        (
            "415 before 406",
            "unsupported-media-type",
            "/encode",
            b"",
            {"Content-Type": "a/b", "Accept": "a/b"},
        ),
        ("406 before 413", "not-acceptable", "/encode", TOO_LARGE, {"Accept": "a/b"}),
        ("413 before 400", "body-too-large", "/encode", TOO_LARGE, {}),
        ("400 before 422", "malformed-json", "/encode?query=1", b"{", {}),
        ("422 before 404", "invalid-request", "/encode", b'{"inputs": "a", "model": "b", "c": 1}', {}),
        (
            "too many before the type of arrays",
            "too-many-inputs",
            "/encode?dtype=uint8",
            b'{"inputs": ["a", "a", "a", "a", "a"]}',
            {"Accept": "application/x-npz"},
        ),
        (
            "404 before too long",
            "model-not-found",
            "/encode",
            json.dumps({"inputs": LONG, "model": "b", "truncate": False}).encode(),
            {},
        ),
        (
            "404 before a range",
            "model-not-found",
            "/attention",
            b'{"inputs": "a", "model": "b", "layers": [99]}',
            {},
        ),
        (
            "too long before 413",
            "input-too-long",
            "/attention",
            json.dumps({"inputs": ["a " * 100, LONG], "truncate": False}).encode(),
            {},
        ),
    ],
)
def test_of_two_faults_the_earlier_is_told(
    strict: Service, earlier: str, kind: str, path: str, content: bytes, headers: dict[str, str]
) -> None:
    """Where several errors apply, the order of the contract decides."""
    response = strict.http.post(path, content=content, headers=headers)
    assert response.json()["type"] == f"urn:headlight:{kind}", earlier


def test_an_answer_too_large_is_told_when_the_queue_has_room(several: Service) -> None:
    """Where the queue is full, what could never be answered gets the 429 of all, and its 413 afterwards."""
    large = {"inputs": "a " * 250, "decimals": 9, "model": "mini"}
    seen = set()
    with ThreadPoolExecutor(12) as pool:
        pending = []
        for _ in range(12):
            pending.append(pool.submit(post, several, {"inputs": [LONG, LONG, LONG]}))
            pending.append(pool.submit(post, several, large, "/attention"))
        for i, future in enumerate(pending):
            seen.add((i % 2, future.result().status_code))
    assert seen <= {(0, 200), (0, 429), (1, 413), (1, 429)}
    assert (0, 429) in seen
    assert_problem(post(several, large, "/attention"), 413, "response-too-large")
