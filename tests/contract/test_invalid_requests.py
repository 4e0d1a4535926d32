"""422: every rule of a request, and the names and lengths that only a model can judge."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.backends import both_backends
from tests.support.serving import LONG, ROUTES, Json, Service, answered, assert_problem, batches, post, send

pytestmark = both_backends

BOTH: list[tuple[Json, str]] = [
    ({}, "inputs"),
    ({"inputs": None}, "inputs"),
    ({"inputs": []}, "inputs"),
    ({"inputs": 7}, "inputs"),
    ({"inputs": True}, "inputs"),
    ({"inputs": {"text": "a"}}, "inputs"),
    ({"inputs": [7]}, "inputs.0"),
    ({"inputs": ["a", None]}, "inputs.1"),
    ({"inputs": ["a", ["a", "b"]]}, "inputs.1"),
    ({"inputs": [["a", "b"], "a"]}, "inputs.1"),
    ({"inputs": [["a"]]}, "inputs.0"),
    ({"inputs": [["a", "b", "c"]]}, "inputs.0"),
    ({"inputs": [["a", 7]]}, "inputs.0"),
    ({"inputs": [[]]}, "inputs.0"),
    ({"inputs": "a", "colour": 1}, "colour"),
    ({"inputs": "a", "Layers": [0]}, "Layers"),
    ({"inputs": "a", "model": 7}, "model"),
    ({"inputs": "a", "truncate": "true"}, "truncate"),
    ({"inputs": "a", "truncate": 1}, "truncate"),
    ({"inputs": "a", "truncation_side": "middle"}, "truncation_side"),
    ({"inputs": "a", "truncate": False, "truncation_side": "left"}, "truncation_side"),
    ({"inputs": "a", "columns": ["words"]}, "columns.0"),
    ({"inputs": "a", "columns": ["special", "special"]}, "columns.1"),
    ({"inputs": "a", "columns": None}, "columns"),
    ({"inputs": "a", "prompt": 7}, "prompt"),
    ({"inputs": "a", "prompt": "b", "prompt_name": "query"}, "prompt"),
    ({"inputs": "a", "prompt": "", "prompt_name": "query"}, "prompt"),
    ({"inputs": "a", "prompt_name": "nobody"}, "prompt_name"),
    ({"inputs": "a", "layers": []}, "layers"),
    ({"inputs": "a", "layers": 0}, "layers"),
    ({"inputs": "a", "layers": "0"}, "layers"),
    ({"inputs": "a", "layers": [True]}, "layers.0"),
    ({"inputs": "a", "layers": ["6"]}, "layers.0"),
    ({"inputs": "a", "layers": [0, 1.5]}, "layers.1"),
    ({"inputs": "a", "layers": [0, None]}, "layers.1"),
    ({"inputs": "a", "layers": [0, 99]}, "layers.1"),
    ({"inputs": "a", "layers": [-99]}, "layers.0"),
    ({"inputs": "a", "layers": [10**30]}, "layers.0"),
]
ENCODE: list[tuple[Json, str]] = [
    ({"outputs": []}, "outputs"),
    ({"outputs": ["words"]}, "outputs.0"),
    ({"outputs": "sentence"}, "outputs"),
    ({"pooling": "median"}, "pooling"),
    ({"pooling": 1}, "pooling"),
    ({"pooling_layers": []}, "pooling_layers"),
    ({"pooling_layers": [7]}, "pooling_layers.0"),
    ({"normalize": "yes"}, "normalize"),
    ({"normalize": 1}, "normalize"),
    ({"dimensions": 0}, "dimensions"),
    ({"dimensions": -1}, "dimensions"),
    ({"dimensions": 385}, "dimensions"),
    ({"dimensions": True}, "dimensions"),
    ({"dimensions": "6"}, "dimensions"),
    ({"dimensions": 6.5}, "dimensions"),
    ({"dimensions": [6]}, "dimensions"),
    ({"dimensions": 10**30}, "dimensions"),
    ({"dimensions": 1e300}, "dimensions"),
    ({"layers": [0]}, "layers"),
    ({"outputs": ["tokens"], "pooling": "cls"}, "pooling"),
    ({"outputs": ["tokens"], "pooling_layers": [0]}, "pooling_layers"),
    ({"outputs": ["tokens"], "normalize": True}, "normalize"),
    ({"outputs": ["tokens"], "dimensions": 6}, "dimensions"),
    ({"heads": [0]}, "heads"),
    ({"decimals": 3}, "decimals"),
]
ATTENTION: list[tuple[Json, str]] = [
    ({"layers": [6]}, "layers.0"),
    ({"layers": "every"}, "layers"),
    ({"heads": [12]}, "heads.0"),
    ({"heads": [0, -13]}, "heads.1"),
    ({"heads": None}, "heads"),
    ({"queries": []}, "queries"),
    ({"queries": [3]}, "inputs.0"),
    ({"queries": [0, -4]}, "inputs.0"),
    ({"keys": [3]}, "inputs.0"),
    ({"keys": ["0"]}, "keys.0"),
    ({"aggregate": "median"}, "aggregate"),
    ({"decimals": 0}, "decimals"),
    ({"decimals": 10}, "decimals"),
    ({"decimals": 1e300}, "decimals"),
    ({"queries": [1e30]}, "inputs.0"),
    ({"keys": [-(10**30)]}, "inputs.0"),
    ({"decimals": "6"}, "decimals"),
    ({"decimals": True}, "decimals"),
    ({"decimals": 6.5}, "decimals"),
    ({"decimals": None}, "decimals"),
    ({"pooling_layers": [0]}, "pooling_layers"),
]


def cases() -> Iterator[Any]:
    for body, field in BOTH:
        for path in ROUTES:
            yield pytest.param(path, {"outputs": ["tokens"]} | body if path == "/encode" else body, field)
    for options, field in ENCODE:
        yield pytest.param("/encode", {"inputs": "a"} | options, field)
    for options, field in ATTENTION:
        yield pytest.param("/attention", {"inputs": "a"} | options, field)


@pytest.mark.parametrize(("path", "body", "field"), list(cases()))
def test_a_request_that_is_not_valid_names_its_field(
    service: Service, path: str, body: Json, field: str
) -> None:
    """Each rule of the contract is a 422 that names the field and speaks of it in JSON's words."""
    document = assert_problem(post(service, body, path), 422, "invalid-request")
    assert document["field"] == field, document
    assert len(document["detail"]) > len(field) + 10
    assert "Input should" not in document["detail"]  # the words of the library that validates


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"dimensions": 10**30}, "dimensions is 1e+30, but"),
        ({"dimensions": 10**300}, "dimensions is 1e+300, but"),
        ({"pooling_layers": [-(10**20)]}, "pooling_layers.0 is -1e+20 and"),
        ({"dimensions": 2**62}, f"dimensions is {2**62}, but"),
    ],
)
def test_a_large_number_is_quoted_as_one_that_equals_it(service: Service, options: Json, sent: str) -> None:
    """JSON has no limit of digits; those that a float cannot hold are not made up."""
    document = assert_problem(post(service, {"inputs": "a"} | options, "/encode"), 422, "invalid-request")
    assert sent in document["detail"]


@pytest.mark.parametrize("body", [[], ["a"], "a", 7, None, True, [{"inputs": "a"}]])
def test_a_body_that_is_no_object_is_a_422(service: Service, body: object) -> None:
    """JSON that is not an object has no fields to read."""
    assert_problem(send(service, json.dumps(body).encode()), 422, "invalid-request", field="body")


@pytest.mark.parametrize(
    ("path", "options", "allowed"),
    [
        ("/encode", {"outputs": ["tokens"], "layers": [7]}, [-7, 6]),
        ("/encode", {"pooling_layers": [-8]}, [-7, 6]),
        ("/encode", {"dimensions": 385}, [1, 384]),
        ("/encode", {"dimensions": 769, "pooling": "mean_max"}, [1, 768]),
        ("/attention", {"layers": [-7]}, [-6, 5]),
        ("/attention", {"heads": [12]}, [-12, 11]),
        ("/attention", {"queries": [-6]}, [-5, 4]),
        ("/attention", {"keys": [5]}, [-5, 4]),
    ],
)
def test_what_is_out_of_range_is_told_the_range(
    service: Service, path: str, options: Json, allowed: list[int]
) -> None:
    """The range that exists is in the document and in its sentence."""
    document = assert_problem(
        post(service, {"inputs": "one two three", **options}, path), 422, "invalid-request"
    )
    assert document["allowed"] == allowed
    assert str(allowed[0]) in document["detail"]
    assert str(allowed[1]) in document["detail"]


@pytest.mark.parametrize("name", ["queries", "keys"])
def test_a_position_that_one_input_does_not_have_names_that_input(service: Service, name: str) -> None:
    """The long input has the position; the short one is named, and its range."""
    before = batches(service)
    body = {"inputs": ["one two three four", "one"], name: [4]}
    document = assert_problem(post(service, body, "/attention"), 422, "invalid-request")
    assert (document["field"], document["actual"], document["allowed"]) == ("inputs.1", 4, [-3, 2])
    assert "inputs.1" in document["detail"]
    assert name in document["detail"]
    assert batches(service) == before


def test_whole_numbers_may_be_written_with_a_point(service: Service) -> None:
    """6.0 is an integer, as in JSON Schema."""
    body = {"inputs": "a", "outputs": ["sentence", "tokens"], "dimensions": 6.0, "layers": [6.0, -1e0]}
    (item,) = answered(post(service, body))["data"]
    assert len(item["embedding"]) == 6
    assert len(item["token_embeddings"]) == 2


def test_query_parameters_are_refused(service: Service) -> None:
    """An option in the query string would have no effect, so it is refused."""
    response = service.http.post("/encode?pooling=cls", json={"inputs": "a"})
    document = assert_problem(response, 422, "invalid-request")
    assert "pooling" in document["field"]


def test_several_faults_are_told_at_once(service: Service) -> None:
    """The document lists what is wrong, the first field first."""
    document = assert_problem(
        post(service, {"inputs": "a", "normalize": 1, "colour": 2}), 422, "invalid-request"
    )
    assert {error["field"] for error in document["errors"]} == {"normalize", "colour"}


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        (
            "/encode",
            {"input": "x"},
            "inputs is required; input is not a known field (did you mean inputs?).",
        ),
        ("/attention", {"inputs": "x", "layer": [0]}, "layer is not a known field (did you mean layers?)."),
        (
            "/encode",
            {"inputs": "x", "Pooling": "cls"},
            "Pooling is not a known field (did you mean pooling?).",
        ),
        ("/attention", {"inputs": "x", "topk": 3}, "topk is not a known field (did you mean top_k?)."),
    ],
)
def test_a_field_that_is_misspelt_is_told_which_was_meant(
    service: Service, path: str, body: Json, sentence: str
) -> None:
    """The sentence alone is enough to mend the request, beside a missing field too."""
    assert assert_problem(post(service, body, path), 422, "invalid-request")["detail"] == sentence


def test_many_unknown_fields_are_told_by_their_number(service: Service) -> None:
    """Each of a few is listed; of more the number is told, within another object too."""
    few = {"inputs": "a", **{f"x{i}": i for i in range(10)}}
    document = assert_problem(post(service, few, "/encode"), 422, "invalid-request")
    assert [error["field"] for error in document["errors"]] == [f"x{i}" for i in range(10)]
    options = {f"x{i}": i for i in range(200)}
    body = {"query": "a", "texts": ["a"], "attention": options}
    document = assert_problem(post(service, body, "/rerank"), 422, "invalid-request", field="attention")
    assert document["detail"].startswith("attention has 200 fields, and there are 15: layers, heads, ")


@pytest.mark.parametrize(
    ("path", "field", "most"), [("/encode", "outputs", 4), ("/attention", "statistics", 10)]
)
def test_a_list_is_as_long_as_its_choices(service: Service, path: str, field: str, most: int) -> None:
    """Its length is looked at before its items, and is all that is told."""
    body = {"inputs": "a", field: ["x"] * (most + 1)}
    document = assert_problem(post(service, body, path), 422, "invalid-request", field=field)
    assert document["errors"] == [{"field": field, "detail": f"must be a list of at most {most} item(s)"}]
    assert_problem(post(service, body | {field: ["x"]}, path), 422, "invalid-request", field=f"{field}.0")


def test_a_field_like_no_other_is_told_the_fields(service: Service) -> None:
    """However long its name is, and beside another fault, which comes first."""
    for name in ("colour", "inputs" * 50_000):
        document = assert_problem(post(service, {name: 1, "normalize": 1}), 422, "invalid-request")
        assert document["detail"].startswith("inputs is required; ")
        assert "is not a known field; the fields are inputs, model, truncate" in document["detail"]


def test_an_input_too_long_is_named_with_its_length_and_the_limit(service: Service) -> None:
    """With `truncate` false the first input beyond the limit is a 422, and nothing is computed."""
    before = batches(service)
    for path in ROUTES:
        response = post(service, {"inputs": ["short", LONG, LONG], "truncate": False}, path)
        document = assert_problem(response, 422, "input-too-long", field="inputs.1", actual=302, limit=256)
        assert all(part in document["detail"] for part in ("inputs.1", "302", "256"))
    assert batches(service) == before


def test_an_unknown_model_is_a_404_with_the_names(several: Service) -> None:
    """The names of the served models are in the document."""
    for path in ROUTES:
        response = post(several, {"inputs": "a", "model": "gpt"}, path)
        document = assert_problem(
            response, 404, "model-not-found", allowed=["mini", "prompted"], actual="gpt"
        )
        assert "mini" in document["detail"]


def test_an_unknown_prompt_is_told_the_models_prompts(several: Service) -> None:
    """The names of the model's own prompts are in the document."""
    body = {"inputs": "a", "model": "prompted", "prompt_name": "nobody"}
    document = assert_problem(post(several, body), 422, "invalid-request", field="prompt_name")
    assert document["allowed"] == ["query", "passage"]
    document = assert_problem(post(several, {**body, "model": "mini"}), 422, "invalid-request")
    assert document["detail"] == 'prompt_name is "nobody", and this model has no prompts: leave it out.'
