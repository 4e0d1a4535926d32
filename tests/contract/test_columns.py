"""`columns` of `/encode` and `/attention`: an answer without what nobody reads, in every format."""

import json
from typing import Any

import numpy as np
import pytest

from tests.support.backends import both_backends
from tests.support.serving import (
    JSON,
    NDJSON,
    NPZ,
    SAFETENSORS,
    Json,
    Service,
    assert_problem,
    post,
    read_npz,
    read_safetensors,
    serve,
)

pytestmark = both_backends

COLUMNS = ["tokens", "token_ids", "offsets", "word_ids", "segment_ids", "special"]
"""As docs/api.md lists them, in the order of an answer."""
TEXTS = ["The cat sat on the mat.", "", "naïve 🙂"]
TEXT = "The cat sat on the mat. It slept, then it ate."
REQUESTS: dict[str, tuple[str, Json]] = {
    "vectors": ("/encode", {"inputs": TEXTS, "outputs": ["sentence", "tokens"]}),
    "pair": ("/encode", {"inputs": [["Who?", "The cat."]]}),
    "chunks": ("/encode", {"inputs": TEXT, "chunks": "sentences", "outputs": []}),
    "windows": ("/encode", {"inputs": [TEXT], "chunks": {"tokens": 4, "overlap": 1}, "precision": "int8"}),
    "maps": ("/attention", {"inputs": TEXTS, "layers": [0], "heads": [3]}),
    "words": ("/attention", {"inputs": TEXT, "level": "word", "layers": [-1], "special_tokens": "drop"}),
    "top": ("/attention", {"inputs": TEXTS[:1], "top_k": 2, "layers": [1], "outputs": ["sentence"]}),
    "statistics": ("/attention", {"inputs": TEXTS, "summary": True, "maps": False}),
}
CHOICES = [[], ["tokens"], ["special", "token_ids"], ["offsets", "word_ids", "segment_ids"], COLUMNS[::-1]]


def items(content: bytes, kind: str) -> tuple[dict[str, Any], list[Json], Json]:
    """The arrays of a file, the items in order, and the rest of an answer."""
    if kind == NDJSON:
        *lines, rest = [json.loads(line) for line in content.splitlines()]
        return {}, sorted(lines, key=lambda item: int(item["index"])), rest
    read = {NPZ: read_npz, SAFETENSORS: read_safetensors}.get(kind)
    arrays, rest = ({}, json.loads(content)) if read is None else read(content)
    return arrays, rest.pop("data"), rest


def alike(found: Any, expected: Any) -> bool:
    """Whether two values are equal, and numbers almost: the same texts may run in other batches."""
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(alike(found[name], expected[name]) for name in expected)
    if isinstance(expected, list) and expected and isinstance(expected[0], list | float):
        return len(found) == len(expected) and all(map(alike, found, expected))
    return bool(abs(found - expected) <= 1e-5 if isinstance(expected, float) else found == expected)


@pytest.mark.in_turns
@pytest.mark.parametrize("kind", [JSON, NDJSON, NPZ, SAFETENSORS])
@pytest.mark.parametrize("name", REQUESTS)
def test_an_answer_has_only_the_columns_that_are_named(service: Service, name: str, kind: str) -> None:
    """It is the full answer without the others, in the same order, whatever else it has."""
    path, body = REQUESTS[name]
    full = post(service, body, path, Accept=kind).content
    arrays, every, rest = items(full, kind)
    assert all(set(COLUMNS) <= item.keys() for item in every)
    for chosen in CHOICES:
        response = post(service, body | {"columns": chosen}, path, Accept=kind)
        assert response.headers["content-type"] == kind
        found_arrays, found, found_rest = items(response.content, kind)
        left_out = set(COLUMNS) - set(chosen)
        expected = [{key: item[key] for key in item if key not in left_out} for item in every]
        assert alike(found, expected), (found, expected)
        assert found_rest == rest
        assert found_arrays.keys() == arrays.keys()
        for array, values in arrays.items():
            assert found_arrays[array].dtype == values.dtype
            assert np.abs(found_arrays[array].astype(float) - values).max(initial=0) <= 1e-5
        assert len(response.content) < len(full) or not left_out


@pytest.mark.parametrize(
    ("chosen", "field"),
    [
        (["words"], "columns.0"),
        (["tokens", "Special"], "columns.1"),
        (["tokens", "tokens"], "columns.1"),
        ([*COLUMNS, "special"], "columns.6"),
        (["index"], "columns.0"),
        (["truncated"], "columns.0"),
        ([["tokens"]], "columns.0"),
        (["x" * 100_000] * 10, "columns.0"),
        ([None], "columns.0"),
        ("tokens", "columns"),
        ({"tokens": True}, "columns"),
        (None, "columns"),
    ],
)
@pytest.mark.parametrize("path", ["/encode", "/attention"])
def test_other_columns_are_refused(service: Service, path: str, chosen: object, field: str) -> None:
    """A name that there is not, or that is there twice, is a 422 that lists those that there are."""
    response = post(service, {"inputs": "a", "columns": chosen}, path)
    document = assert_problem(response, 422, "invalid-request", field=field)
    assert "'tokens', 'token_ids', 'offsets', 'word_ids', 'segment_ids' and 'special'" in document["detail"]
    assert len(response.content) < 2000


def test_they_are_fields_of_these_routes_alone(service: Service) -> None:
    """Other routes refuse the field, as they do every field without effect."""
    bodies: dict[str, Json] = {"/tokenize": {"inputs": "a"}, "/similarity": {"texts": ["a"]}}
    for path, body in bodies.items():
        assert_problem(post(service, body | {"columns": []}, path), 422, "invalid-request", field="columns")


@pytest.mark.thorough
def test_they_count_in_the_size_of_an_answer_only_if_they_are_there() -> None:
    """Where all columns of a request are more than an answer may have, fewer are answered; so are chunks."""
    texts = ["word " * 200] * 8
    requests: list[tuple[str, Json]] = [
        ("/encode", {"dimensions": 8}),
        ("/encode", {"dimensions": 8, "chunks": {"tokens": 100}}),
        ("/attention", {"summary": True, "maps": False, "statistics": ["entropy"]}),
    ]
    with serve(max_response_bytes=120_000) as service:
        for path, options in requests:
            body: Json = {"inputs": texts} | options
            assert_problem(post(service, body, path), 413, "response-too-large")
            for chosen in CHOICES[:2]:
                response = post(service, body | {"columns": chosen}, path)
                assert response.status_code == 200, response.text
                assert len(response.content) < 120_000
