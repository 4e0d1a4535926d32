"""422: what `POST /attention` cannot do together, and options that would have no effect."""

from typing import Any

import pytest

from tests.support.backends import both_backends
from tests.support.serving import Json, Service, answered, assert_problem, batches, post

pytestmark = both_backends

STATISTICS: Json = {"summary": True, "maps": False}

VALUES: list[tuple[Json, str]] = [
    ({"weights": "logit"}, "weights"),
    ({"weights": None}, "weights"),
    ({"weights": ["score"]}, "weights"),
    ({"aggregate": "median"}, "aggregate"),
    ({"special_tokens": "remove"}, "special_tokens"),
    ({"special_tokens": True}, "special_tokens"),
    ({"level": "sentence"}, "level"),
    ({"level": 1}, "level"),
    ({"renormalize": "true"}, "renormalize"),
    ({"renormalize": 1}, "renormalize"),
    ({"top_k": 0}, "top_k"),
    ({"top_k": -1}, "top_k"),
    ({"top_k": 1.5}, "top_k"),
    ({"top_k": "3"}, "top_k"),
    ({"top_k": True}, "top_k"),
    ({"top_k": [3]}, "top_k"),
    ({"thumbnail": 0}, "thumbnail"),
    ({"thumbnail": 257}, "thumbnail"),
    ({"thumbnail": 1.5}, "thumbnail"),
    ({"thumbnail": "64"}, "thumbnail"),
    ({"thumbnail": True}, "thumbnail"),
    ({"thumbnail": [8, 8]}, "thumbnail"),
    ({"keys": [], "top_k": 1}, "keys"),
    ({"summary": "yes"}, "summary"),
    ({"summary": 1}, "summary"),
    ({"summary": True, "maps": 0}, "maps"),
    ({"summary": True, "maps": "false"}, "maps"),
    ({"outputs": ["words"]}, "outputs.0"),
    ({"outputs": "sentence"}, "outputs"),
    ({"outputs": ["sentence"], "pooling": "median"}, "pooling"),
    ({"outputs": ["sentence"], "normalize": 1}, "normalize"),
    ({"outputs": ["sentence"], "dimensions": 0}, "dimensions"),
    ({"outputs": ["sentence"], "dimensions": 385}, "dimensions"),
    ({"outputs": ["sentence"], "dimensions": "6"}, "dimensions"),
    ({"outputs": ["sentence"], "pooling_layers": [0]}, "pooling_layers"),
    ({"top_keys": 3}, "top_keys"),
]

TOGETHER: list[tuple[Json, set[str]]] = [
    ({"aggregate": "rollout", "weights": "score"}, {"weights", "aggregate"}),
    ({"aggregate": "rollout", "weights": "value_norm"}, {"weights", "aggregate"}),
    ({"weights": "score", "renormalize": True}, {"weights", "renormalize"}),
    ({"weights": "score", "renormalize": True, "top_k": 2}, {"weights", "renormalize"}),
    ({"thumbnail": 8, "top_k": 2}, {"thumbnail", "top_k"}),
    ({"thumbnail": 8, "weights": "score", "renormalize": True}, {"weights", "renormalize"}),
    ({"maps": False}, {"maps", "summary"}),
    ({"maps": False, "summary": False}, {"maps", "summary"}),
    ({"maps": False, "outputs": ["sentence"]}, {"maps", "summary"}),
    *(
        (STATISTICS | option, {"maps", *option})
        for option in (
            {"weights": "score"},
            {"aggregate": "mean"},
            {"queries": [0]},
            {"keys": [0]},
            {"top_k": 1},
            {"thumbnail": 8},
        )
    ),
    ({"pooling": "mean"}, {"pooling"}),
    ({"normalize": True}, {"normalize"}),
    ({"dimensions": 6}, {"dimensions"}),
    ({"outputs": ["tokens"], "pooling": "mean"}, {"pooling"}),
    ({"outputs": ["tokens"], "normalize": False}, {"normalize"}),
    ({"outputs": ["tokens"], "dimensions": 6}, {"dimensions"}),
    (STATISTICS | {"pooling": "mean"}, {"pooling"}),
]


@pytest.mark.parametrize(("options", "field"), VALUES)
def test_a_value_that_an_option_does_not_take_is_named(service: Service, options: Json, field: str) -> None:
    """Each is a 422 that names the field."""
    response = post(service, {"inputs": "a", **options}, "/attention")
    document = assert_problem(response, 422, "invalid-request")
    assert document["field"] == field, document


@pytest.mark.parametrize(("options", "fields"), TOGETHER)
def test_options_that_cannot_be_had_together_are_refused(
    service: Service, options: Json, fields: set[str]
) -> None:
    """Nothing is silently left out: a 422 names one of the options, its sentence too, and nothing is run."""
    before = batches(service)
    response = post(service, {"inputs": "a", **options}, "/attention")
    document = assert_problem(response, 422, "invalid-request")
    assert document["field"] in fields, document
    assert any(field in document["detail"] for field in fields)
    assert batches(service) == before


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 3.0},
        {"top_k": 10**6},
        {"thumbnail": 256.0},
        {"thumbnail": 64, "top_k": None},
        {**STATISTICS, "thumbnail": None},
        {"weights": "score", "renormalize": False},
        {"aggregate": "rollout", "weights": "probability"},
        {"outputs": ["sentence"], "dimensions": 384.0},
        {"maps": True},
        {**STATISTICS, "layers": [0], "heads": [1], "decimals": 3, "outputs": ["tokens"]},
        {**STATISTICS, "prompt": "", "truncate": False},
        {**STATISTICS, "special_tokens": "drop", "level": "word", "renormalize": True},
    ],
)
def test_what_is_allowed_beside_what_is_refused(service: Service, options: Json) -> None:
    """The rules refuse no more than they say."""
    answered(post(service, {"inputs": "a", **options}, "/attention"))


@pytest.mark.parametrize("name", ["queries", "keys"])
@pytest.mark.parametrize(
    ("inputs", "options", "field"),
    [
        (["one two", "one two"], {"special_tokens": "drop", "at": [1, 0]}, "inputs.0"),
        (["one two", "one two"], {"special_tokens": "drop", "at": [-1]}, "inputs.0"),
        (["one two three", "one two"], {"special_tokens": "drop", "at": [3]}, "inputs.1"),
        (["one two", ""], {"special_tokens": "drop", "at": [1]}, "inputs.1"),
        ([["a", "b"], ["a b", "c"]], {"special_tokens": "drop", "at": [2]}, "inputs.0"),
        (["one two", "unbelievably"], {"level": "word", "at": [3]}, "inputs.1"),
        (["one two", "unbelievably"], {"level": "word", "at": [-4]}, "inputs.1"),
        (["one unbelievably"], {"level": "word", "special_tokens": "drop", "at": [3]}, "inputs.0"),
        (["one"], {"level": "word", "at": [10**30]}, "inputs.0"),
        (["one", "one two"], {"aggregate": "rollout", "at": [3]}, "inputs.0"),
        (["one", "one two"], {"top_k": 1, "weights": "score", "at": [-4]}, "inputs.0"),
    ],
)
def test_a_position_that_is_not_there_names_its_input(
    service: Service, name: str, inputs: Any, options: Json, field: str
) -> None:
    """Beyond the tokens or words, or dropped with the special tokens: the first such input is named."""
    before = batches(service)
    chosen = {(name if option == "at" else option): value for option, value in options.items()}
    response = post(service, {"inputs": inputs, **chosen}, "/attention")
    document = assert_problem(response, 422, "invalid-request", field=field)
    assert field in document["detail"]
    assert name in document["detail"]
    assert batches(service) == before, "nothing is computed for a request that is refused"


def test_a_dropped_position_is_told_from_one_that_does_not_exist(service: Service) -> None:
    """The sentence says that special tokens were dropped, which is what to change."""
    body = {"inputs": "one two", "special_tokens": "drop", "queries": [0]}
    document = assert_problem(post(service, body, "/attention"), 422, "invalid-request", field="inputs.0")
    assert "special" in document["detail"] or "drop" in document["detail"]
    answered(post(service, body | {"special_tokens": "keep"}, "/attention"))


@pytest.mark.parametrize("accept", ["application/x-npz", "application/x-safetensors"])
def test_binary_numbers_are_not_rounded(service: Service, accept: str) -> None:
    """`decimals` is of JSON numbers; with a binary format it would have no effect."""
    response = post(service, {"inputs": "a", "decimals": 3}, "/attention", Accept=accept)
    assert_problem(response, 422, "invalid-request", field="decimals")
