"""Connections at their edges: late heads, still readers, pipelined rubbish, and what the drain leaves."""

import os
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract.test_processes import wait_for_end
from tests.support.serving import (
    ROOT,
    Service,
    assert_problem,
    environment,
    free_port,
    post,
    read_answer,
    serve,
)

pytestmark = pytest.mark.thorough

GET = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
TEXT = " ".join(["word"] * 250)
UNMATCHED_400 = 'headlight_requests_total{kind="other",route="unmatched",status="400"}'


def read_all(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    received = b""
    while part := connection.recv(65_536):
        received += part
    return received


def test_a_head_that_does_not_come_to_an_end_is_a_408(strict: Service) -> None:
    """A head has as much time as a request; a connection that says nothing at all is closed after it."""
    with strict.connect() as late, strict.connect() as silent:
        start = time.monotonic()
        late.sendall(b"POST /encode HTTP/1.1\r\nHos")
        assert_problem(read_answer(late), 408, "request-timeout")
        assert 1 < time.monotonic() - start < 5
        assert silent.recv(1) == b""


@pytest.mark.parametrize(
    ("asked", "left_over"),
    [(GET, b"\r\n"), (b"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n", b"x")],
    ids=["blank line", "body of an answered request"],
)
def test_left_over_bytes_do_not_keep_a_connection(hurried: Service, asked: bytes, left_over: bytes) -> None:
    """What comes after an answer and begins no request lets the connection idle, and end, as before."""
    with hurried.connect(timeout=10) as connection:
        connection.sendall(asked)
        read_answer(connection)
        connection.sendall(left_over)
        assert connection.recv(1) == b""


def test_many_pipelined_offers_to_upgrade_are_all_answered(service: Service) -> None:
    """However many there are in one piece, each is a request like others."""
    offer = GET.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
    with service.connect() as connection:
        connection.sendall(offer * 3000 + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert read_all(connection).count(b'{"status":"alive"}') == 3001


def test_rubbish_behind_a_good_request_is_refused_after_its_answer(service: Service) -> None:
    """The good request gets its answer, the rubbish its 400, which is counted, and the connection ends."""
    before = service.metrics()[UNMATCHED_400]
    body = b'{"inputs": "a text", "dimensions": 2}'
    head = b"POST /encode HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    with service.connect() as connection:
        connection.sendall(GET + head + body + b"GARBAGE\r\n\r\n")
        received = read_all(connection)
    assert received.count(b"HTTP/1.1 200 OK") == 2
    assert received.index(b'"embedding"') < received.index(b"HTTP/1.1 400 Bad Request")
    assert b"urn:headlight:malformed-request" in received
    assert service.metrics()[UNMATCHED_400] == before + 1


def test_a_reader_that_stands_still_is_cut_off() -> None:
    """An answer of megabytes that nobody reads is let go after the time of a request."""
    in_flight = "headlight_requests_in_flight{}"
    body = b'{"inputs": "%s"}' % TEXT.encode()
    head = b"POST /attention HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    with serve(request_timeout_s=2) as service, service.connect() as still:
        still.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        still.sendall(head + body)
        service.wait_for_metric(in_flight, 1)
        until = time.monotonic() + 15
        while service.metrics()[in_flight]:
            assert time.monotonic() < until, "the reader is still waited for"
            time.sleep(0.05)


@pytest.mark.alone
def test_what_the_drain_cannot_finish_is_told_to_go_elsewhere() -> None:
    """A computation that outlives the drain gets a 503 in time, and the process ends well and in time."""
    with (
        serve(drain_timeout_s=1, max_batch_tokens=1024, request_timeout_s=600) as service,
        ThreadPoolExecutor(1) as pool,
    ):
        work = pool.submit(post, service, {"inputs": [TEXT] * 256})
        service.wait_for_metric("headlight_requests_in_flight{}", 1)
        service.signal()
        assert wait_for_end(service) < 4
        response = work.result()
        assert_problem(response, 503, "not-ready")
        assert "retry-after" in response.headers
        assert "Traceback" not in service.log


@pytest.mark.skipif(not (ROOT / ".venv" / ".serve").exists(), reason="made by `make serve` or `make test`")
def test_a_signal_to_the_group_of_make_is_one_signal() -> None:
    """`make serve` passes on a signal that its child gets as well: the service still drains."""
    port = free_port()
    settings = environment(port=port)
    process = subprocess.Popen(
        ["make", "serve"],
        cwd=ROOT,
        env=settings,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "ready:" in line:
                break
        os.killpg(process.pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=20)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert "Error 143" not in output, "it ended at the second signal, without a drain"
