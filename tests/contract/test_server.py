"""The edges of the process: signals, the drain, and connections that misbehave."""

import contextlib
import json
import re
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.contract.test_processes import HANGING, SLOWER, wait_for_end, wait_until
from tests.support.serving import (
    START_S,
    Service,
    answered,
    assert_problem,
    read_answer,
    request_bytes,
    serve,
)

pytestmark = pytest.mark.thorough

LONG = "word " * 300
SLOW: dict[str, Any] = {"max_batch_tokens": 256, "threads": 1, "request_timeout_s": 300}
"""So much time that hundreds of texts are let in, however slow the machine is."""


def in_flight(service: Service) -> float:
    return service.metrics()["headlight_requests_in_flight{}"]


@pytest.mark.alone
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_service_ends_at_the_first_signal(signum: signal.Signals) -> None:
    """With nothing to answer, the exit is quick and clean, also with an idle connection open."""
    with serve() as service:
        service.encode("one")
        service.signal(signum)
        assert wait_for_end(service) < 4, "an idle connection is kept for five seconds"
        assert "Traceback" not in service.log


def test_the_drain_answers_what_was_accepted_and_takes_no_new_work() -> None:
    """After SIGTERM it still listens: unready at once, new work is a 503, accepted work is answered."""
    with (
        serve(**HANGING) as service,
        ThreadPoolExecutor(1) as pool,
        service.new_client() as other,
    ):
        accepted = pool.submit(other.post, "/encode", json=SLOWER)
        service.wait_for_metric("headlight_requests_in_flight{}", 1)
        service.signal()
        wait_until(lambda: service.http.get("/readyz").status_code == 503, service)
        for path in ("/readyz", "/health"):
            response = service.http.get(path)
            assert_problem(response, 503, "not-ready", phase="draining")
            assert int(response.headers["retry-after"]) >= 1
        for path in ("/encode", "/attention"):
            response = service.http.post(path, json={"inputs": "a"})
            assert_problem(response, 503, "not-ready")
            assert int(response.headers["retry-after"]) >= 1
        assert service.http.get("/livez").status_code == 200, "a new connection is still taken"
        assert service.metrics()["headlight_ready{}"] == 0
        assert not accepted.done()
        assert len(answered(accepted.result(60))["data"]) == 6
        assert service.wait() == 0
        # The last scrape may not have ended, although its response has been read.
        said = r"SIGTERM: draining for at most 30 s, requests in flight: [12]; new ones are refused"
        assert re.search(said, service.log)
        assert re.search(r"stopped after [\d.]+ s, requests cut off: 0\n$", service.log)


def test_a_signal_under_load_loses_no_accepted_request() -> None:
    """Sixteen clients that send without a pause: every request gets a whole answer or a 503, then exit 0."""
    statuses: list[int] = []
    broken: list[str] = []
    stop = threading.Event()

    with serve(max_batch_tokens=512) as service:

        def client(number: int) -> None:
            body = {"inputs": [f"client {number} " + "word " * (5 * number)] * 3}
            while not stop.is_set():
                try:
                    # A connection each: one that was never opened is no accepted request.
                    with service.new_client() as http:
                        response = http.post("/encode", json=body)
                        statuses.append(response.status_code)
                        assert response.status_code in (200, 503)
                        if response.status_code == 200:
                            assert len(response.json()["data"]) == 3
                except httpx.ConnectError:
                    return
                except (httpx.TransportError, AssertionError, ValueError) as error:
                    broken.append(repr(error))
                    return

        threads = [threading.Thread(target=client, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        service.wait_for_metric('headlight_requests_total{kind="inference",route="/encode",status="200"}', 60)
        service.signal()
        assert service.wait() == 0
        stop.set()
        for thread in threads:
            thread.join(20)
        # A connection that the kernel took and the service never saw may be reset: it was not accepted.
        assert not [error for error in broken if "ReadError" not in error and "RemoteProtocol" not in error]
        assert service.log.count("POST /encode 200 in ") == statuses.count(200)
        refused = sum(map(int, re.findall(r"refused on arrival .*: (\d+) not-ready", service.log)))
        assert service.log.count("POST /encode 503 in ") + refused == statuses.count(503)
        assert refused
        assert statuses.count(200) >= 60
        assert "Traceback" not in service.log


def test_every_request_that_was_in_flight_is_answered() -> None:
    """Forty requests whose bodies have arrived before the signal: forty answers, none broken."""
    settings: dict[str, Any] = {"max_batch_tokens": 512, "request_timeout_s": 300, "drain_timeout_s": 120}
    with serve(**settings) as service, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(service.connect(timeout=150)) for _ in range(40)]
        request = request_bytes(body=json.dumps({"inputs": [LONG] * 2}).encode())
        # Sent in milliseconds, computed for a second or more: most wait when the signal comes.
        for connection in connections:
            connection.sendall(request)
        service.wait_for_metric("headlight_requests_in_flight{}", 20)
        service.signal()
        statuses = [read_answer(connection).status_code for connection in connections]
        assert service.wait(150) == 0
        assert set(statuses) <= {200, 503}
        assert statuses.count(200) >= 20


@pytest.mark.alone
def test_a_second_signal_ends_at_once() -> None:
    """Who does not want to wait for the drain sends another signal."""
    with (
        serve(**HANGING, exit_code=None, log_format="json") as service,
        ThreadPoolExecutor(1) as pool,
        service.new_client() as other,
    ):
        pending = pool.submit(other.post, "/encode", json=SLOWER)
        service.wait_for_metric("headlight_requests_in_flight{}", 1)
        service.signal()
        wait_until(lambda: "SIGTERM: draining" in service.log, service)
        time.sleep(0.7)  # two that come together count as one
        assert service.process.poll() is None
        service.signal()
        assert wait_for_end(service) < 2
        assert service.wait() == 128 + signal.SIGTERM
        last = json.loads(service.log.splitlines()[-1])
        assert last["level"] == "warning"
        assert last["message"] == "SIGTERM again: stopped at once, requests cut off: 1"
        with pytest.raises(httpx.TransportError):
            pending.result(5)


@pytest.mark.alone
@pytest.mark.parametrize("sent", [b'{"inputs": ', b""], ids=["half a body", "no body"])
def test_the_drain_ends_in_its_time_whatever_a_client_does(sent: bytes) -> None:
    """A request that never becomes whole holds the exit for HEADLIGHT_DRAIN_TIMEOUT_S and no longer."""
    with serve(drain_timeout_s=2) as service, service.connect() as connection:
        connection.sendall(b"POST /encode HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n" + sent)
        service.wait_for_metric("headlight_requests_in_flight{}", 1)
        service.signal()
        assert wait_for_end(service) < 3.5
        assert "requests cut off: 1\n" in service.log


@pytest.mark.alone
@pytest.mark.parametrize(
    ("request_timeout_s", "drain_timeout_s", "ends_in_s"),
    [(1, 20, 6), (30, 2, 3.5)],
    ids=["cut off first", "the drain's time is over first"],
)
def test_the_drain_does_not_wait_for_a_reader_that_stands_still(
    request_timeout_s: float, drain_timeout_s: float, ends_in_s: float
) -> None:
    """Who does not read is cut off as at other times, and at the latest, quietly, when the drain is over."""
    with (
        serve(request_timeout_s=request_timeout_s, drain_timeout_s=drain_timeout_s) as service,
        service.connect() as connection,
    ):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = b'{"inputs": "' + b"word " * 254 + b'"}'
        connection.sendall(request_bytes("/attention", body))
        assert connection.recv(1) == b"H"
        service.signal()
        assert wait_for_end(service) < ends_in_s
        assert "Traceback" not in service.log


@pytest.mark.alone
def test_the_exit_does_not_wait_for_a_thread_that_nobody_waits_for() -> None:
    """A text whose client has gone is still being tokenized: no reason to stay."""
    with serve(drain_timeout_s=1, max_body_bytes=2**24) as service:
        with service.connect() as connection:
            connection.sendall(request_bytes(body=b'{"inputs": "' + b"a " * 6_000_000 + b'"}'))
            service.wait_for_metric("headlight_requests_in_flight{}", 1)
            time.sleep(0.5)
        service.wait_for_metric('headlight_requests_total{kind="inference",route="/encode",status="499"}', 1)
        service.signal()
        assert wait_for_end(service) < 4


@pytest.mark.alone
def test_a_signal_while_loading_ends_the_start() -> None:
    """Nobody has to wait for the models to be loaded to stop the service."""
    with serve(wait=False) as service:
        service.wait_until_listening()
        service.signal()
        assert wait_for_end(service) < 5


def test_work_of_clients_that_have_gone_is_not_done() -> None:
    """Whoever closes the connection while waiting costs no more than what already runs."""
    with serve(**SLOW) as service:
        name = 'headlight_batch_inputs_sum{model="all-MiniLM-L6-v2"}'
        body = b'{"inputs": [' + b", ".join([b'"' + LONG.encode() + b'"'] * 96) + b"]}"
        with service.connect() as connection:
            connection.sendall(request_bytes(body=body))
            service.wait_for_metric(name, 1)
        service.wait_for_metric('headlight_requests_total{kind="inference",route="/encode",status="499"}', 1)
        service.encode("whoever comes next")
        assert service.metrics()[name] < 80
        assert in_flight(service) == 0


@pytest.mark.parametrize("behind", [1, 3])
def test_a_client_that_goes_with_requests_in_the_pipeline_leaves_nothing_behind(behind: int) -> None:
    """Those behind the one that is answered are forgotten, and nothing goes wrong when it is written."""
    with serve(request_timeout_s=300) as service:
        body = b'{"inputs": [' + b", ".join([b'"' + LONG.encode() + b'"'] * 40) + b"]}"
        with service.connect() as connection:
            connection.sendall(request_bytes(body=body) + behind * request_bytes(body=b'{"inputs": "a"}'))
            service.wait_for_metric('headlight_batches_total{model="all-MiniLM-L6-v2"}', 1)
        service.encode("whoever comes next")
        until = time.monotonic() + START_S
        while in_flight(service) and time.monotonic() < until:
            time.sleep(0.05)
        assert in_flight(service) == 0
        assert "Traceback" not in service.log


def test_one_connection_serves_many_requests(service: Service) -> None:
    """Keep-alive, and pipelined requests in their order."""
    body = b'{"inputs": "hello", "dimensions": 2}'
    with service.connect() as connection:
        for _ in range(3):
            connection.sendall(request_bytes(body=body))
            assert read_answer(connection).status_code == 200
        connection.sendall(request_bytes(body=body) + request_bytes("/nothing") + request_bytes(body=b"{"))
        answers: list[Any] = []
        buffered = connection.makefile("rb")
        for _ in range(3):
            answers.append(int(buffered.readline().split()[1]))
            length = 0
            while (line := buffered.readline().strip()) != b"":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            buffered.read(length)
        assert answers == [200, 404, 400]


def test_a_request_in_small_pieces_is_read(service: Service) -> None:
    """Where a packet ends means nothing."""
    whole = request_bytes(body='{"inputs": "naïve 🙂"}'.encode())
    answer = service.raw(*[whole[i : i + 7] for i in range(0, len(whole), 7)], pause=0.001)
    assert answer.status_code == 200
    assert answer.json()["data"][0]["offsets"] == [[0, 0], [0, 5], [6, 7], [0, 0]]


def test_a_client_may_ask_before_it_sends_its_body(service: Service) -> None:
    """`Expect: 100-continue` is answered, as curl wants it for large bodies."""
    body = b'{"inputs": "hello"}'
    with service.connect() as connection:
        connection.sendall(request_bytes(body=body, headers=["Expect: 100-continue"])[: -len(body)])
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert read_answer(connection).status_code == 200


def test_nothing_tells_what_serves(service: Service) -> None:
    """No Server header gives away names and versions."""
    assert "server" not in service.http.get("/livez").headers
