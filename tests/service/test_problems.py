"""The table of everything that can go wrong for a client."""

import inspect
import json

import pytest

import model.errors
from model.errors import (
    CheckpointError,
    InferenceError,
    InputTooLong,
    InputTooSlow,
    ModelError,
    NotFinite,
    NoTokens,
    OutOfMemory,
    OutOfRange,
    Unsupported,
)
from service.problems import KINDS, Problem, from_model_error

TABLE = {
    400: {"malformed-json", "malformed-request"},
    401: {"unauthorized"},
    404: {"not-found", "model-not-found"},
    405: {"method-not-allowed"},
    406: {"not-acceptable"},
    408: {"request-timeout"},
    413: {"body-too-large", "too-many-inputs", "response-too-large"},
    415: {"unsupported-media-type"},
    422: {"invalid-request", "input-too-long", "unsupported"},
    429: {"overloaded"},
    500: {"inference-failed"},
    503: {"not-ready"},
    504: {"deadline-exceeded"},
}


def test_the_table_is_that_of_the_contract() -> None:
    """Each kind of problem has the status that clients rely on."""
    statuses = {kind: int(status) for kind, (status, _) in KINDS.items()}
    for status, kinds in TABLE.items():
        assert {kind: statuses.get(kind) for kind in kinds} == dict.fromkeys(kinds, status)


def test_no_two_kinds_share_a_title() -> None:
    """A title is the short name of a type (RFC 9457 §3.1.3)."""
    titles = [title for _, title in KINDS.values()]
    assert len(set(titles)) == len(titles)


def test_a_document_has_every_member() -> None:
    """Type, title, status, detail, instance and request_id, and what else helps."""
    problem = Problem("overloaded", "Too much.", headers={"Retry-After": "3"}, members={"limit": 7})
    response = problem.response(instance="/encode", request_id="abc")
    assert json.loads(bytes(response.body)) == {
        "type": "urn:headlight:overloaded",
        "title": KINDS["overloaded"][1],
        "status": 429,
        "detail": "Too much.",
        "instance": "/encode",
        "request_id": "abc",
        "limit": 7,
    }
    assert response.status_code == 429
    assert response.headers["retry-after"] == "3"
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("error", "kind", "members"),
    [
        (
            InputTooLong(field="inputs.3", actual=9, limit=8),
            "input-too-long",
            {"field": "inputs.3", "actual": 9, "limit": 8},
        ),
        (
            InputTooSlow(field="inputs.3", what="spaces", actual=9, limit=8, expression="`b+$`", seconds=2.0),
            "input-too-long",
            {"field": "inputs.3", "actual": 9, "limit": 8},
        ),
        (
            OutOfRange("Out.", field="layers.0", actual=9, allowed=(-6, 5)),
            "invalid-request",
            {"field": "layers.0", "actual": 9, "allowed": [-6, 5]},
        ),
        (NoTokens(field="inputs.3"), "invalid-request", {"field": "inputs.3"}),
        (Unsupported("Not here.", field="pooling"), "unsupported", {"field": "pooling"}),
        (InferenceError("It failed."), "inference-failed", {}),
        (NotFinite("It is infinite."), "inference-failed", {}),
        (CheckpointError("A secret path."), "internal-error", {}),
        (OutOfMemory("A secret address."), "internal-error", {}),
    ],
)
def test_errors_of_the_model_become_problems(
    error: ModelError, kind: str, members: dict[str, object]
) -> None:
    """Each error of `model/` that a request can meet has its place in the table, with what it knows."""
    problem = from_model_error(error)
    assert problem.kind == kind
    assert dict(problem.members) == members
    assert ("secret" in str(error)) == (problem.detail != str(error)), "what is not for clients is not told"


def test_every_error_of_the_tree_is_mapped() -> None:
    """A new leaf in the error tree needs a row, and a case above."""
    leaves = {
        name
        for name, thing in inspect.getmembers(model.errors, inspect.isclass)
        if issubclass(thing, ModelError) and not thing.__subclasses__()
    }
    in_requests = {"InputTooLong", "InputTooSlow", "NoTokens", "OutOfRange", "Unsupported", "NotFinite"}
    assert leaves == in_requests | {"CheckpointError", "OutOfMemory", "Stopped"}
