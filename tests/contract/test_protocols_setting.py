"""`HEADLIGHT_PROTOCOLS`: which protocols of other servers are served."""

import pytest

from service.protocols.endpoints import ENDPOINTS
from service.setting_values import PROTOCOLS
from tests.support.serving import Service, assert_problem, post, serve

TEI = {"inputs": {"source_sentence": "a", "sentences": ["b"]}}


def others(service: Service) -> set[str]:
    """The protocols whose routes answer, and those in the schema, which must be the same."""
    served, described = set(), set()
    paths = service.http.get("/openapi.json").json()["paths"]
    for endpoint in ENDPOINTS:
        if endpoint.protocol != "native" and endpoint.path != "/" and "{" not in endpoint.path:
            found = service.http.request(endpoint.methods[0], endpoint.path)
            if found.status_code != 404:
                served.add(endpoint.protocol)
            if endpoint.documented_path in paths:
                described.add(endpoint.protocol)
    assert served == described
    return served


def test_all_are_served_by_default(service: Service) -> None:
    """Each protocol of the table, and the setting names each."""
    assert others(service) == set(PROTOCOLS)
    assert {endpoint.protocol for endpoint in ENDPOINTS} - {"native"} == set(PROTOCOLS)


def test_some_are_served() -> None:
    """Only those that are named."""
    with serve(protocols="openai, cohere") as some:
        assert others(some) == {"openai", "cohere"}
        assert_problem(post(some, TEI, "/tei/similarity"), 404, "not-found")
        assert some.http.post("/", json={"inputs": "a"}).status_code == 405
        assert "/tei" not in some.http.get("/metrics").text
        # Paths that would be those of the Open Inference Protocol, which begin as those of Cohere.
        for where in ("/v2/nothing", "/v2/", "/v2/models/a/infer"):
            assert_problem(some.http.post(where, content=b"{}"), 404, "not-found")


def test_none_leaves_the_native_routes() -> None:
    """They answer, and no route of another protocol does."""
    with serve(protocols="none") as native:
        assert others(native) == set()
        assert native.http.post("/encode", json={"inputs": "a"}).status_code == 200


@pytest.mark.parametrize("value", ["grpc", "tei,", "all,tei"])
def test_a_wrong_name_ends_the_start(value: str) -> None:
    """With a sentence that lists the names."""
    with serve(wait=False, exit_code=2, protocols=value) as wrong:
        wrong.process.wait(30)
        assert f"use all, none, or some of {', '.join(PROTOCOLS)}." in wrong.log_file.read_text(
            encoding="utf-8"
        )
