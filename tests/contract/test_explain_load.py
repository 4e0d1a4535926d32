"""A sweep of `/explain` counts as what it runs, and ends with its client."""

import json
import socket
import time
from collections.abc import Iterator

import pytest

from tests.support.serving import (
    JSON_TYPE,
    Json,
    Service,
    answered,
    assert_problem,
    client_at,
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
        post(patient, SWEEP, "/explain", X_Request_Timeout_Ms="500"), 422, "deadline-too-short"
    )
    assert document["tokens"] == TOKENS


def test_too_many_sequences_are_refused_before_any_work(patient: Service) -> None:
    """However short they are: each takes a place in the queue."""
    before = sample(patient, "input_tokens_total")
    body = {**SWEEP, "inputs": [["a", "b"]] * 57}
    document = assert_problem(
        post(patient, body, "/explain"), 413, "explanation-too-large", limit=8192, actual=57 * 2 * 72
    )
    assert "8208 more times, each time without one head, with 8208 sequences" in document["detail"]
    assert sample(patient, "input_tokens_total") == before


@pytest.fixture(scope="module")
def narrow_queue() -> Iterator[Service]:
    """A service whose queue takes two sweeps of `LARGE`, and not three."""
    with serve(max_batch_tokens=512, max_queue_tokens=32_000, threads=1, request_timeout_s=600) as started:
        yield started


LARGE: Json = {"inputs": [["word " * 100, "other words " * 50]], "method": "heads"}
"""14,892 tokens."""
HALF: Json = {"inputs": [["word " * 50, "other words " * 24]], "method": "heads"}
"""7,446 tokens."""
BATCH = 512


def begin(service: Service, body: Json) -> socket.socket:
    """Send a sweep, and wait until all of it is in the queue."""
    connection = service.connect()
    content = json.dumps(body).encode()
    connection.sendall(request_bytes("/explain", content, [f"{k}: {v}" for k, v in JSON_TYPE.items()]))
    service.wait_for_metric(f"headlight_queue_tokens{{{MODEL}}}", 1)
    return connection


def test_it_fills_the_queue_and_the_share_of_its_client(narrow_queue: Service) -> None:
    """All tokens that it will run: its client may add less than another, who may add as much as is left."""
    with begin(narrow_queue, LARGE):
        document = assert_problem(post(narrow_queue, HALF, "/explain"), 429, "overloaded")
        waiting = sample(narrow_queue, "queue_tokens")
        with client_at(narrow_queue, "127.0.0.2") as another:
            assert answered(another.post("/explain", json=HALF))["usage"]["input_tokens"] == 73 * 102
    assert document["requested"] == 73 * 102
    assert 73 * 204 / 2 <= waiting <= 73 * 204


def test_it_stops_within_a_batch_of_the_end_of_its_client(narrow_queue: Service) -> None:
    """What runs at that moment is the last."""
    begin(narrow_queue, LARGE).close()
    until = time.monotonic() + 60
    while sample(narrow_queue, "queue_tokens"):
        assert time.monotonic() < until, "the sweep goes on without its client"
    dropped = sample(narrow_queue, "input_tokens_total")
    time.sleep(0.5)
    assert sample(narrow_queue, "input_tokens_total") - dropped <= BATCH
