"""Requests that are refused on arrival: before their bodies are read, in the words of each protocol."""

import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.contract.test_processes import wait_until
from tests.support.doubles import HANG
from tests.support.refusals import filled
from tests.support.serving import (
    Json,
    Service,
    assert_problem,
    post,
    read_answer,
    request_bytes,
    send,
    serve,
)

GOOD = b'{"inputs": "a", "dimensions": 2}'


FULL: Json = {"max_queue_tokens": 1, "log_format": "json", "log_level": "debug"}


@pytest.fixture(scope="module")
def full() -> Iterator[Service]:
    """A service whose queue is full."""
    with serve(module="tests.support.doubles", exit_code=None, **FULL) as service, filled(service):
        yield service


def test_a_full_queue_is_a_429_with_the_time_to_come_back(full: Service) -> None:
    """It has everything that an error has: the id, the numbers, and the time in seconds and milliseconds."""
    response = post(full, {"inputs": "a"}, X_Request_ID="mine")
    document = assert_problem(response, 429, "overloaded", limit=1, requested=1)
    assert document["request_id"] == "mine"
    assert document["actual"] >= 1
    assert "Retry-After" in document["detail"]
    whole, milliseconds = (int(response.headers[name]) for name in ("retry-after", "retry-after-ms"))
    assert 1 <= whole < 60
    assert 1 <= milliseconds < 60_000
    assert "date" in response.headers


def test_each_protocol_words_it_its_own_way(full: Service) -> None:
    """A client of OpenAI or of text-embeddings-inference finds its own errors; each route is counted."""
    openai = post(full, {"input": "a", "model": "all-MiniLM-L6-v2"}, "/v1/embeddings")
    tei = post(full, {"inputs": "a"}, "/embed")
    assert openai.status_code == tei.status_code == 429
    assert openai.json()["error"]["type"]
    assert tei.json()["error_type"]
    assert int(openai.headers["retry-after-ms"]) >= 1
    counted = full.metrics()
    assert counted['headlight_requests_total{kind="inference",route="/v1/embeddings",status="429"}'] == 1
    assert counted['headlight_requests_total{kind="inference",route="/embed",status="429"}'] == 1
    assert counted['headlight_rejected_total{reason="overloaded"}'] >= 2


def test_the_connection_goes_on_after_it(full: Service) -> None:
    """What arrives of the body is discarded, in one piece or many, and the next request is read cleanly."""
    body = b'{"inputs": "%s"}' % (b"word " * 10_000)
    whole = request_bytes(body=body)
    with full.connect() as connection:
        for parts in ([whole], [whole[:200], whole[200:9000], whole[9000:]], [whole[:-1], whole[-1:]]):
            for part in parts:
                connection.sendall(part)
                time.sleep(0.02)
            assert read_answer(connection).status_code == 429
            connection.sendall(request_bytes("/livez", method="GET"))
            assert read_answer(connection, "GET").status_code == 200


def test_it_closes_the_connection_of_a_client_that_wants_that(full: Service) -> None:
    """In HTTP/1.0, and with `Connection: close`."""
    for request in (
        request_bytes(body=GOOD, headers=["Connection: close"]),
        request_bytes(body=GOOD).replace(b"HTTP/1.1", b"HTTP/1.0"),
    ):
        with full.connect() as connection:
            connection.sendall(request)
            answer = read_answer(connection)
            assert (answer.status_code, answer.headers["connection"]) == (429, "close")
            assert connection.recv(1) == b""


@pytest.mark.thorough
def test_a_body_that_never_ends_is_not_waited_for_long() -> None:
    """The connection of a refused request is closed when the rest of its body does not arrive."""
    with (
        serve(module="tests.support.doubles", exit_code=None, request_timeout_s=6, **FULL) as service,
        filled(service),
        service.connect() as connection,
    ):
        connection.sendall(request_bytes(body=GOOD)[:-5])
        assert read_answer(connection).status_code == 429
        start = time.monotonic()
        assert connection.recv(1) == b""
        assert 4 < time.monotonic() - start < 20


def test_a_client_that_comes_back_too_early_is_told_the_same_time() -> None:
    """Or else one that never waits would put off all others; while loading, others' times grow."""
    with serve("--loading", module="tests.support.timed", wait=False, exit_code=None) as service:
        service.wait_until_listening()
        time.sleep(1.5)
        with service.connect() as connection:
            told = []
            for _ in range(3):
                connection.sendall(request_bytes(body=GOOD))
                told.append(int(read_answer(connection).headers["retry-after-ms"]))
                time.sleep(0.2)
    assert told[0] - 350 > told[2] > 0
    assert told[1] > told[2]


def test_clients_that_share_the_connection_of_a_proxy_have_times_of_their_own() -> None:
    """What one of them was told is nothing to the other."""
    with serve(
        "--loading",
        module="tests.support.timed",
        wait=False,
        exit_code=None,
        trusted_proxies="127.0.0.1",
    ) as service:
        service.wait_until_listening()
        time.sleep(1.5)
        with service.connect() as connection:
            told = []
            for client in ("192.0.2.1", "192.0.2.2"):
                connection.sendall(request_bytes(body=GOOD, headers=[f"X-Forwarded-For: {client}"]))
                told.append(int(read_answer(connection).headers["retry-after-ms"]))
                time.sleep(0.2)
    assert told[1] > told[0] + 100


def test_a_client_that_does_not_read_is_not_refused_for_ever(full: Service) -> None:
    """Its refusals would fill the memory; so no more of its requests are read."""
    requests = 1000 * request_bytes(body=GOOD)
    with full.connect() as connection:
        connection.settimeout(2)
        sent = 0
        with suppress(TimeoutError):
            while sent < 2**26:
                sent += connection.send(requests)
    assert sent < 2**24
    assert post(full, {"inputs": "a"}).status_code == 429


def test_pipelined_requests_are_answered_in_order(full: Service) -> None:
    """A refusal waits for the response to what came before it."""
    with full.connect() as connection:
        connection.sendall(request_bytes("/info", method="GET") + 2 * request_bytes(body=GOOD))
        statuses = []
        reader = connection.makefile("rb")
        for _ in range(3):
            status = int(reader.readline().split()[1])
            length = 0
            while line := reader.readline().strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            reader.read(length)
            statuses.append(status)
        assert statuses == [200, 429, 429]


def test_what_is_wrong_otherwise_is_said_first(full: Service) -> None:
    """An overload hides no mistake of the client that would keep it from being served anyway."""
    assert post(full, {}, "/nothing").status_code == 404
    assert full.http.get("/encode").status_code == 405
    assert full.http.post("/encode", content=b"a", headers={"Content-Type": "text/plain"}).status_code == 415
    assert send(full, b" " * (2 * 2**20 + 1)).status_code == 413


def test_refusals_have_one_line_for_all_of_a_second(full: Service) -> None:
    """A line for each would cost more than the refusal."""
    for _ in range(50):
        assert post(full, {"inputs": "a"}).status_code == 429
    until = time.monotonic() + 5
    while "requests refused on arrival" not in full.log and time.monotonic() < until:
        time.sleep(0.05)
    lines = [line for line in full.log.splitlines() if "refused on arrival" in line]
    assert 1 <= len(lines) < 40
    assert "overloaded" in lines[-1]


def test_without_a_key_it_is_a_401_as_ever() -> None:
    """A client without a key learns nothing of the load."""
    key: Json = {"api_keys": "a-key-of-sixteen-letters"}
    with serve(module="tests.support.doubles", exit_code=None, **FULL, **key) as service:
        assert service.raw(request_bytes(body=GOOD)).status_code == 401


def test_while_loading_clients_are_told_how_long_it_may_take() -> None:
    """As long again as it has taken so far: so the times grow, and are no longer than half a minute."""
    with serve("--loading", module="tests.support.timed", wait=False, exit_code=None) as service:
        service.wait_until_listening()
        times = []
        for _ in range(2):
            response = post(service, {"inputs": "a"})
            document = assert_problem(response, 503, "not-ready", phase="loading")
            assert "loading" in document["detail"]
            times.append(int(response.headers["retry-after"]))
            time.sleep(2)
    assert 1 <= times[0] < times[1] <= 30


def test_a_drain_refuses_on_arrival_and_closes_the_connection() -> None:
    """So that the client's next request reaches another instance."""
    with serve(
        module="tests.support.doubles", exit_code=None, drain_timeout_s=3, log_level="info"
    ) as service:
        with service.connect() as held, service.connect() as other:
            held.sendall(request_bytes(body=b'{"inputs": "%s"}' % HANG.encode()))
            service.wait_for_metric("headlight_requests_in_flight{}", 1)
            service.signal()
            wait_until(lambda: service.http.get("/readyz").status_code == 503, service)
            other.sendall(request_bytes(body=GOOD))
            answer = read_answer(other)
            assert_problem(answer, 503, "not-ready", phase="draining")
            assert answer.headers["connection"] == "close"
            assert other.recv(1) == b""
            cut_off = read_answer(held)
            assert_problem(cut_off, 503, "not-ready")
        service.wait()
        assert "Traceback" not in service.log
        assert "requests cut off: 1" in service.log


def test_requests_that_wait_for_the_event_loop_count_when_the_service_drains() -> None:
    """Hundreds that arrive together with the signal are all answered, and then the service ends."""
    with serve() as service:
        clients = [service.connect() for _ in range(200)]
        for client in clients:
            client.sendall(request_bytes(body=GOOD))
        threading.Timer(0.0, service.signal).start()
        statuses = [_status(client) for client in clients]
        assert set(statuses) <= {200, 503}
        assert service.wait() == 0


def test_a_body_is_read_at_the_expense_of_its_key() -> None:
    """So that it waits while its client rests, and delays nobody else behind the same address.

    Whose the next head is, nobody knows before it is read: it is taken for that of the last one.
    """
    key, address = "a-key-of-sixteen-letters", "read for connections of 127.0.0.1"
    name = f"key:{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    owner, heads = f"read for {name}", f"read for connections of {name}"
    body = b'{"inputs": "%s"}' % (b"word " * 100_000)
    asked = request_bytes(body=body, headers=[f"Authorization: Bearer {key}"])
    with serve(module="tests.support.logged_reads", exit_code=None, api_keys=key) as service:
        with service.connect() as connection:
            for _ in range(2):
                connection.sendall(asked)
                assert read_answer(connection).status_code == 200
        with service.connect() as connection:
            connection.sendall(request_bytes("/info", method="GET"))
            assert read_answer(connection, "GET").status_code == 401
        reads = [line for line in service.log.splitlines() if line.startswith("read for")]
        assert set(reads) == {address, owner, heads}
        assert reads.count(owner) > 1
        assert reads.count(heads) == 1
        assert reads[-1] == address


def _status(client: socket.socket) -> int:
    with client:
        return read_answer(client).status_code
