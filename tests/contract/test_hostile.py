"""What one request may cost the others: little time on the event loop, bounded memory, never the process."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from model.tokenization.tokenizer import Truncation
from service.http.json_body import MAX_INDICES
from tests.support.doubles import tokenizer
from tests.support.serving import Json, Service, assert_problem, post, send, serve, status_mib
from tests.support.slowness import slowness

pytestmark = pytest.mark.alone

TEXT = " ".join(["word"] * 250)
SLACK_S = 0.5
"""The loop's own bound is 10 ms; the measuring client shares two busy cores with the service.

This bound and the next are for a usual processor; on a slow one they are as much longer.
"""
LONG_TEXT_SLACK_S = 1.5
"""A million tokens of the tokenizer's own are set free with the interpreter held."""
PEAK_MIB = 700


@pytest.fixture(scope="module")
def target() -> Iterator[Service]:
    """A service of its own, so that its peak memory is that of these requests."""
    with serve() as started:
        yield started


@contextmanager
def watched(service: Service) -> Iterator[Callable[[], float]]:
    """Ask /livez over and over; gives the longest that an answer took, in seconds."""
    longest, done = [0.0], threading.Event()

    def watch() -> None:
        with service.new_client() as client:
            while not done.is_set():
                start = time.perf_counter()
                assert client.get("/livez").status_code == 200
                longest.append(time.perf_counter() - start)
                time.sleep(0.002)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        time.sleep(0.1)
        yield lambda: max(longest)
    finally:
        done.set()
        thread.join()


def peak_mib(service: Service) -> float:
    return status_mib(service, "VmHWM")


def resident_mib(service: Service) -> float:
    return status_mib(service, "VmRSS")


COSTLY: dict[str, tuple[str, Json, int]] = {
    "a head over and over": (
        "/attention",
        {"layers": [0], "heads": [0] * MAX_INDICES, "aggregate": "mean"},
        200,
    ),
    "a row over and over": (
        "/attention",
        {"layers": [0], "heads": [0], "queries": [1] * MAX_INDICES, "keys": [0]},
        200,
    ),
    "heads of one number": (
        "/attention",
        {"layers": [0], "heads": [3] * MAX_INDICES, "queries": [0], "keys": [0]},
        200,
    ),
    "too many heads": ("/attention", {"heads": [0] * 100_000, "aggregate": "mean"}, 422),
    "too many layers": ("/attention", {"layers": [0] * 500_000}, 422),
    "pooling one layer over and over": (
        "/encode",
        {"pooling_layers": [0] * MAX_INDICES, "dimensions": 1},
        200,
    ),
    "too many pooled layers": ("/encode", {"pooling_layers": [0] * 200_000, "dimensions": 1}, 422),
    "wrong outputs": ("/encode", {"outputs": ["x"] * 300_000}, 422),
    "unknown fields": ("/encode", {f"field {i}": i for i in range(100_000)}, 422),
}


@pytest.mark.parametrize("name", COSTLY)
def test_no_list_costs_more_than_its_answer(name: str, target: Service) -> None:
    """However often a client lists a thing, others are served meanwhile and memory stays bounded."""
    path, options, status = COSTLY[name]
    body = {"inputs": TEXT} | options
    with watched(target) as longest:
        response = post(target, body, path)
        assert response.status_code == status, response.text[:500]
        assert longest() < SLACK_S * slowness()
    assert peak_mib(target) < PEAK_MIB
    if status == 422:
        assert_problem(response, 422, "invalid-request")


def test_vectors_that_are_cut_after_pooling_are_bounded_before(target: Service) -> None:
    """What is computed counts for the size of an answer, not only what is left of it."""
    body = {"inputs": ["a"] * 256, "pooling_layers": [0] * MAX_INDICES, "dimensions": 1}
    assert_problem(post(target, body), 413, "response-too-large")


def test_rows_of_many_inputs_are_checked_off_the_loop(target: Service) -> None:
    """A long list of rows for each of many inputs holds nobody up, and the one out of range is named."""
    body = {"inputs": ["a b c"] * 200, "queries": [0] * (MAX_INDICES - 1) + [9], "layers": [0], "heads": [0]}
    with watched(target) as longest:
        document = assert_problem(post(target, body, "/attention"), 422, "invalid-request")
        assert longest() < SLACK_S * slowness()
    assert document["field"] == "inputs.0"
    assert f"queries.{MAX_INDICES - 1} is 9" in document["detail"]


def test_a_long_text_is_cut_without_holding_up_others(target: Service) -> None:
    """Two megabytes of text are tokenized and cut while others are answered."""
    content = json.dumps({"inputs": "a " * 1_000_000, "dimensions": 2}).encode()
    with watched(target) as longest:
        response = send(target, content)
        assert response.status_code == 200
        assert response.json()["data"][0]["original_length"] == 1_000_002
        assert longest() < LONG_TEXT_SLACK_S * slowness()


def test_cutting_lets_other_threads_run() -> None:
    """The tokenizer releases the interpreter also where it cuts."""
    ticks, done = [time.perf_counter()], threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    for side in ("right", "left"):
        tokenizer().encode(["a " * 500_000], Truncation(side=side))
    done.set()
    thread.join()
    assert max(b - a for a, b in pairwise(ticks)) < LONG_TEXT_SLACK_S * slowness()


def test_an_answer_of_many_megabytes_is_written_in_pieces(target: Service) -> None:
    """While 40 MB of maps are written and read, others are answered."""
    with watched(target) as longest:
        response = post(target, {"inputs": TEXT}, "/attention")
        assert response.status_code == 200
        assert len(response.content) > 30_000_000
        assert longest() < SLACK_S * slowness()


def test_requests_that_are_being_tokenized_count_in_the_queue() -> None:
    """Of large bodies at once, those without room are refused before they are tokenized."""
    content = json.dumps({"inputs": ["a " * 3000] * 250, "dimensions": 2}).encode()
    statuses = list[int]()
    with serve(max_batch_tokens=256, max_queue_tokens=10_000) as service:
        threads = [
            threading.Thread(target=lambda: statuses.append(send(service, content).status_code))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(statuses) == {200, 429}
        refused = 'headlight_rejected_total{reason="overloaded"}'
        assert service.metrics()[refused] == statuses.count(429)


def test_a_client_that_goes_while_its_text_waits_to_be_tokenized_costs_nothing(target: Service) -> None:
    """Clients that left are dropped before their texts are tokenized."""
    content = json.dumps({"inputs": "a " * 900_000}).encode()
    head = b"POST /encode HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    dropped = 'headlight_requests_total{kind="inference",route="/encode",status="499"}'
    before = target.metrics()[dropped]
    for _ in range(6):
        with target.connect() as connection:
            connection.sendall(head % len(content) + content)
    target.wait_for_metric(dropped, before + 1)
    start = time.perf_counter()
    target.encode("hi")
    assert time.perf_counter() - start < 5


def test_what_a_long_text_took_is_given_back(target: Service) -> None:
    """A text of a million tokens takes hundreds of megabytes, and leaves the process as it was."""
    content = json.dumps({"inputs": "##a##b" * 160_000, "dimensions": 2}).encode()
    target.encode("a")
    before = resident_mib(target)
    assert send(target, content).json()["data"][0]["original_length"] == 960_002
    assert resident_mib(target) - before < 100


def test_a_prompt_counts_as_often_as_it_is_used(target: Service) -> None:
    """A megabyte before each of 256 inputs is refused at once, and one text with a long prompt is not."""
    body = {"inputs": ["a"] * 256, "prompt": "word " * 200_000, "dimensions": 1}
    start = time.perf_counter()
    document = assert_problem(post(target, body), 413, "body-too-large", field="prompt", limit=2 * 2**20)
    assert time.perf_counter() - start < 5
    assert document["actual"] == 256 * 1_000_000
    assert post(target, body | {"inputs": "a"}).status_code == 200
