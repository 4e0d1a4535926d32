"""Long answers on their way: failures after the start, slow readers, readers that go, and the drain."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse, IncompleteRead

import numpy as np
import pytest

from tests.support.backends import Kept, both_backends
from tests.support.doubles import DRAG, DRAG_S, HANG, POISON
from tests.support.serving import (
    JSON,
    LONG,
    NDJSON,
    NPZ,
    Json,
    Service,
    assert_problem,
    post,
    request_bytes,
    serve,
)

pytestmark = [both_backends, pytest.mark.thorough]

MAPS = {"inputs": LONG, "layers": [0, 1, 2, 3]}
"""An answer of 3.1 million numbers: 28 MB as JSON."""
MODEL = 'model="all-MiniLM-L6-v2"'
IN_FLIGHT = "headlight_requests_in_flight{}"


@pytest.fixture(scope="module")
def faulty() -> Iterator[Service]:
    """A service whose backend fails on one word and hangs on another.

    It has so much time that hundreds of texts are let in, however slow the machine is.
    """
    with serve(module="tests.support.doubles", threads=1, request_timeout_s=300) as started:
        yield started


@pytest.fixture(scope="module")
def quiet(kept: Kept, backend: str) -> Iterator[Service]:
    """A service that nobody else uses."""
    with kept.embedded(backend) as started:
        yield started


def ask(service: Service, body: Json, path: str = "/attention", accept: str = JSON) -> socket.socket:
    """Send a request and leave its answer unread, with little room for it on the way."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", service.port))
    connection.sendall(request_bytes(path, json.dumps(body).encode(), [f"Accept: {accept}"]))
    return connection


def memory(service: Service) -> float:
    return service.metrics()["process_resident_memory_bytes{}"]


def until_idle(service: Service) -> None:
    deadline = time.monotonic() + 10
    while service.metrics()[IN_FLIGHT] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert service.metrics()[IN_FLIGHT] == 0


def lines(service: Service, inputs: list[str], **headers: str) -> list[Json]:
    response = post(service, {"inputs": inputs}, Accept=NDJSON, **headers)
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def test_a_failure_after_the_start_is_the_last_line(faulty: Service) -> None:
    """What was computed is sent, then the problem, and no `usage`."""
    *items, problem = lines(faulty, ["good"] * 3 + [LONG] * 4 + [POISON])
    assert {item["index"] for item in items} <= set(range(7))
    assert len(items) >= 3
    assert problem["type"] == "urn:headlight:inference-failed"
    assert (problem["status"], problem["instance"]) == (500, "/encode")
    assert problem["request_id"]
    assert "usage" not in problem


def test_a_failure_before_the_first_line_is_an_ordinary_problem(faulty: Service) -> None:
    """With its status, as in the other formats."""
    response = post(faulty, {"inputs": [POISON]}, Accept=NDJSON)
    assert_problem(response, 500, "inference-failed")
    response = post(faulty, {"inputs": [LONG] * 8}, Accept=NDJSON, X_Request_Timeout_Ms="1")
    assert_problem(response, 504, "deadline-exceeded")


def test_the_time_of_a_request_is_over_in_the_middle_of_its_lines(faulty: Service) -> None:
    """The deadline holds after the start too, and is a line then; it is counted as a rejection."""
    rejected = 'headlight_rejected_total{reason="deadline-exceeded"}'
    before = faulty.metrics()[rejected]
    inputs = ["good"] * 3 + [f"{DRAG} {'word ' * 100}"] * 12
    *items, problem = lines(faulty, inputs, X_Request_Timeout_Ms=str(int(1900 * DRAG_S)))
    assert 3 <= len(items) < len(inputs)
    assert problem["type"] == "urn:headlight:deadline-exceeded"
    assert problem["limit"] == 1.9 * DRAG_S
    assert faulty.metrics()[rejected] == before + 1
    until_idle(faulty)


@pytest.mark.parametrize("accept", [JSON, NDJSON, NPZ])
def test_a_slow_reader_gets_everything_and_holds_up_nobody(quiet: Service, accept: str) -> None:
    """The pieces wait for the reader; other requests are answered meanwhile."""
    expected = post(quiet, MAPS, "/attention", Accept=accept).content
    with ask(quiet, MAPS, accept=accept) as connection:
        answer = HTTPResponse(connection, method="POST")
        answer.begin()
        assert answer.read(1000) == expected[:1000]
        start = time.monotonic()
        for _ in range(20):
            quiet.encode("short")
        assert time.monotonic() - start < 5
        assert quiet.metrics()[IN_FLIGHT] == 1
        assert answer.read() == expected[1000:]
    until_idle(quiet)


def test_memory_is_bounded_by_a_piece_and_not_by_the_answer(quiet: Service) -> None:
    """Eight answers of 28 MB as text, unread: only their arrays of 12 MB are held.

    Answers that are read come first: they make the room that batches compute in, which grows by doubling, is
    kept, and is as large as the largest batches that happened to run side by side.
    """
    arrays = 4 * 12 * 256 * 256 * 4
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: post(quiet, MAPS, "/attention", Accept=NPZ), range(30)))
    before = memory(quiet)
    connections = [ask(quiet, MAPS) for _ in range(8)]
    for connection in connections:
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    grown = memory(quiet) - before
    for connection in connections:
        connection.close()
    until_idle(quiet)
    assert grown < 8 * arrays + 6e7, f"{grown / 1e6:.0f} MB"


@pytest.mark.parametrize("accept", [JSON, NDJSON, NPZ])
def test_a_reader_that_goes_ends_the_work(quiet: Service, accept: str) -> None:
    """What is left is not written, what was sent is counted, and the log has no complaint."""
    name = accept.removeprefix("application/").removeprefix("x-")
    counter = f'headlight_response_bytes_total{{format="{name}",route="/attention"}}'
    whole = len(post(quiet, MAPS, "/attention", Accept=accept, Accept_Encoding="identity").content)
    before, answered = quiet.metrics(), f'headlight_inputs_total{{{MODEL},route="/attention"}}'
    with ask(quiet, MAPS, accept=accept) as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    until_idle(quiet)
    after = quiet.metrics()
    assert 0 <= after.get(counter, 0) - before.get(counter, 0) < whole / 2
    assert after[answered] == before[answered]
    assert "Traceback" not in quiet.log
    assert "exception" not in quiet.log.lower()


def test_texts_that_wait_behind_a_reader_that_goes_are_not_run(faulty: Service) -> None:
    """The rest of a stream of lines is dropped with its reader: fifty batches of four texts."""
    batches = f"headlight_batches_total{{{MODEL}}}"
    with ask(faulty, {"inputs": [LONG] * 200}, "/encode", NDJSON) as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        started = faulty.metrics()[batches]
    until_idle(faulty)
    assert faulty.metrics()[batches] - started < 25


def test_the_drain_waits_for_answers_on_their_way() -> None:
    """After SIGTERM a slow reader still gets the whole answer, and a stream of lines all its lines."""
    patient: Json = {"request_timeout_s": 300, "drain_timeout_s": 120}
    with serve(max_batch_tokens=256, threads=1, **patient) as service, ThreadPoolExecutor(1) as pool:
        long = pool.submit(lines, service, [LONG] * 40)
        with ask(service, MAPS) as connection:
            answer = HTTPResponse(connection, method="POST")
            answer.begin()
            answer.read(1000)
            service.signal()
            time.sleep(0.3)
            assert len(answer.read()) > 25_000_000
        assert len(long.result(30)) == 41
        assert service.wait() == 0


def test_what_the_drain_has_no_time_for_is_told() -> None:
    """At the end of the drain's time a stream of lines ends with a problem, and JSON is cut off."""
    with serve(module="tests.support.doubles", drain_timeout_s=1.5, threads=1) as service:
        with ask(service, MAPS) as other:
            cut = HTTPResponse(other, method="POST")
            cut.begin()
            with ask(service, {"inputs": [LONG] * 4 + [HANG]}, "/encode", NDJSON) as connection:
                answer = HTTPResponse(connection, method="POST")
                answer.begin()
                found = [json.loads(answer.readline())["index"] for _ in range(4)]  # they fill a batch
                assert sorted(found) == [0, 1, 2, 3]
                service.signal()
                problem = json.loads(answer.readline())
                assert problem["type"] == "urn:headlight:not-ready"
                assert answer.read() == b""
            with pytest.raises((IncompleteRead, ConnectionError)):
                cut.read()
        assert service.wait() == 0


def test_many_long_answers_at_once_are_all_whole(quiet: Service) -> None:
    """Readers of different formats beside each other get their own numbers."""
    bodies = [{"inputs": ["word " * (100 + i)], "layers": [0, 1], "decimals": 6} for i in range(6)]
    expected = [post(quiet, body, "/attention").json() for body in bodies]
    failures: list[str] = []

    def client(number: int) -> None:
        with quiet.new_client() as http:
            for accept in (JSON, NDJSON, JSON):
                body = bodies[number]
                text = http.post("/attention", json=body, headers={"Accept": accept}).text
                item = json.loads(text)["data"][0] if accept == JSON else json.loads(text.splitlines()[0])
                reference = np.array(expected[number]["data"][0]["attention"])
                if np.abs(np.array(item["attention"]) - reference).max() > 4e-6:
                    failures.append(f"{number} {accept}")

    threads = [threading.Thread(target=client, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
