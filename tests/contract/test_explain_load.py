"""A sweep of `/explain` counts as what it runs, and ends with its client."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.support.serving import (
    JSON_TYPE,
    Json,
    Service,
    answered,
    assert_problem,
    post,
    request_bytes,
    serve,
)

MODEL = 'model="all-MiniLM-L6-v2"'
SWEEP: Json = {"inputs": [["word " * 100, "other words " * 50]] * 8, "method": "heads"}
TOKENS = 73 * 8 * 204
"""Of the sweep: each of the two texts has two special tokens."""


@pytest.fixture(scope="module")
def patient() -> Iterator[Service]:
    """A service with small batches, in which requests may take long."""
    with serve(max_batch_tokens=512, threads=1, request_timeout_s=600) as started:
        yield started


def sample(service: Service, name: str) -> float:
    return service.metrics()[f"headlight_{name}{{{MODEL}}}"]


def test_a_sweep_ends_with_its_client(patient: Service) -> None:
    """What waits of it is dropped, and never runs."""
    before = sample(patient, "input_tokens_total")
    body = json.dumps(SWEEP).encode()
    with patient.connect() as connection:
        connection.sendall(request_bytes("/explain", body, [f"{k}: {v}" for k, v in JSON_TYPE.items()]))
        patient.wait_for_metric(f"headlight_queue_tokens{{{MODEL}}}", 1)
    until = time.monotonic() + 60
    while sample(patient, "queue_tokens"):
        assert time.monotonic() < until, "the sweep goes on without its client"
        time.sleep(0.02)
    assert sample(patient, "input_tokens_total") - before < TOKENS


def test_its_tokens_are_counted_and_refused_like_those_of_texts(patient: Service) -> None:
    """In usage and metrics; and a deadline that they cannot meet is refused with their number."""
    small = {**SWEEP, "inputs": [["a cat", "a kitten"]]}
    before = sample(patient, "input_tokens_total")
    answer = answered(post(patient, small, "/explain"))
    assert answer["usage"]["input_tokens"] == 8 * 73
    assert sample(patient, "input_tokens_total") - before == 8 * 73
    document = assert_problem(
        post(patient, SWEEP, "/explain", X_Request_Timeout_Ms="50"), 422, "deadline-too-short"
    )
    assert document["tokens"] == TOKENS


def test_too_many_sequences_are_refused_before_any_work(patient: Service) -> None:
    """However short they are: each takes a place in the queue."""
    before = sample(patient, "input_tokens_total")
    body = {**SWEEP, "inputs": [["a", "b"]] * 57}
    document = assert_problem(
        post(patient, body, "/explain"), 413, "explanation-too-large", limit=8192, actual=57 * 2 * 72
    )
    assert "8208 times more, each time without one head, with 8208 sequences" in document["detail"]
    assert sample(patient, "input_tokens_total") == before
