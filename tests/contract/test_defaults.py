"""A value that is an option's documented default changes nothing, whatever else is asked."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.serving import JSON, NDJSON, NPZ, ROUTES, SAFETENSORS, Json, Service

BASES: dict[str, list[Json]] = {
    "/encode": [
        {},
        {"outputs": ["tokens"]},
        {"outputs": ["tokens"], "layers": [0, 1]},
        {"truncate": False, "normalize": True},
        {"prompt": "a ", "truncation_side": "left"},
    ],
    "/attention": [
        {"layers": [0]},
        {"layers": [0], "weights": "score"},
        {"heads": [1], "aggregate": "rollout", "truncate": False},
        {"layers": [1], "summary": True, "maps": False},
        {"summary": True, "maps": False, "level": "word", "special_tokens": "drop", "renormalize": True},
        {"layers": [0], "outputs": ["tokens"], "top_k": 2, "queries": [1]},
        {"layers": [0], "outputs": ["sentence"], "dimensions": 8, "prompt": "a "},
    ],
}
"""Requests in which options of every kind have no effect, or are excluded by others."""


def defaults(service: Service, path: str) -> Json:
    """The default of each field but `inputs`, as the schema documents it."""
    document = service.http.get("/openapi.json").json()
    name = {"/encode": "EncodeRequest", "/attention": "AttentionRequest"}[path]
    fields = document["components"]["schemas"][name]["properties"]
    found = {name: field["default"] for name, field in fields.items() if name != "inputs"}
    assert len(found) == len(fields) - 1
    return found


def ask(service: Service, path: str, body: Json, accept: str, parameters: dict[str, str]) -> Any:
    headers = {"Accept": accept}
    response = service.http.post(path, json={"inputs": "the man"} | body, headers=headers, params=parameters)
    assert response.status_code == 200, response.text
    return response.content


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data(), path=st.sampled_from(ROUTES), accept=st.sampled_from([JSON, NPZ, SAFETENSORS, NDJSON]))
def test_a_field_at_its_default_is_as_good_as_absent(
    service: Service, data: st.DataObject, path: str, accept: str
) -> None:
    """Any of the fields, beside any others, in any format: the same bytes; so is `?dtype=float32`."""
    base = data.draw(st.sampled_from(BASES[path]))
    known = {name: value for name, value in defaults(service, path).items() if name not in base}
    said = data.draw(st.sets(st.sampled_from(sorted(known))))
    parameters = data.draw(st.sampled_from([{}, {"dtype": "float32"}]))
    body = base | {name: known[name] for name in said}
    assert ask(service, path, body, accept, parameters) == ask(service, path, base, accept, {})


@pytest.mark.parametrize(("path", "base"), [(path, base) for path in ROUTES for base in BASES[path]])
def test_every_default_may_be_written_out(service: Service, path: str, base: Json) -> None:
    """As pages and generated clients do: all the fields there are, in JSON with the default dtype."""
    everything = defaults(service, path) | base
    assert ask(service, path, everything, JSON, {"dtype": "float32"}) == ask(service, path, base, JSON, {})


@pytest.mark.parametrize(
    ("path", "body", "parameters"),
    [
        ("/encode", {"outputs": []}, {}),
        ("/encode", {"layers": [0]}, {}),
        ("/encode", {"outputs": ["tokens"], "normalize": False}, {}),
        ("/attention", {"pooling": "mean"}, {}),
        ("/attention", {"statistics": ["entropy"]}, {}),
        ("/attention", {"summary": True, "statistics": []}, {}),
        ("/attention", {"summary": True, "statistics": ["median"]}, {}),
        ("/attention", {"summary": True, "maps": False, "top_k": 1}, {}),
        ("/attention", {}, {"dtype": "float16"}),
    ],
)
def test_another_value_without_effect_is_still_refused(
    service: Service, path: str, body: Json, parameters: dict[str, str]
) -> None:
    """Only the default is harmless: what would be ignored is told."""
    response = service.http.post(path, json={"inputs": "a"} | body, params=parameters)
    assert response.status_code == 422
    assert response.json()["field"].split(".")[0] in {*body, "query"}
