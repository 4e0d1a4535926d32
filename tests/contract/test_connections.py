"""What one connection may hold, and how many there may be."""

import resource
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from starlette.requests import Request

from service.http.negotiation import _best, choose_format
from service.problems import Problem
from tests.contract.test_hostile import SLACK_S, watched
from tests.storm.siege import vitals
from tests.support.serving import (
    LONG,
    Service,
    assert_problem,
    read_answer,
    request_bytes,
    serve,
    status_mib,
)

pytestmark = pytest.mark.thorough

BODY = b'{"inputs": "hello", "dimensions": 2}'
CHUNKED = b"POST /encode HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n"
GET = b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


def files(service: Service) -> int:
    return len(list(Path(f"/proc/{service.process.pid}/fd").iterdir()))


def sent_until_closed(connection: socket.socket, piece: bytes, most: int) -> int:
    """Send a piece over and over until the other side has had enough; how many bytes it took."""
    sent = 0
    with suppress(ConnectionError):
        while sent < most:
            connection.sendall(piece)
            sent += len(piece)
            time.sleep(0.002)
    return sent


def test_pipelined_requests_wait_as_the_bytes_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of requests behind one that takes long cost their bytes, not a request's memory each."""
    # Otherwise glibc keeps what passes freed, up to some 100 MB under load, as the service asks it to.
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(64 * 1024))
    work = request_bytes(body=b'{"inputs": ["%b"]}' % b'", "'.join([LONG.encode()] * 4))
    flood = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 9_000
    with (
        serve(max_queue_tokens=1_000_000, drain_timeout_s=1, processes=1) as service,
        ExitStack() as stack,
    ):
        service.encode([LONG] * 4)
        before = status_mib(service, "RssAnon")
        for _ in range(24):
            connection = stack.enter_context(service.connect(timeout=0.2))
            with suppress(TimeoutError):
                connection.sendall(work + flood)
        grown = 0.0
        for _ in range(8):
            time.sleep(0.5)
            grown = max(grown, status_mib(service, "RssAnon") - before)
        assert grown < 70


def test_a_body_that_is_refused_unread_is_read_to_its_end(service: Service) -> None:
    """Its answer comes while much of it waits to be parsed; the next request on the connection is served."""
    chunks = b"%x\r\n%b\r\n" % (2**17, b"a" * 2**17) + b"1\r\na\r\n" * 300_000 + b"0\r\n\r\n"
    with service.connect(timeout=10) as connection:
        connection.sendall(CHUNKED.replace(b"encode", b"nothing").partition(b"%x")[0] + chunks)
        assert_problem(read_answer(connection), 404, "not-found")
        connection.sendall(GET)
        assert read_answer(connection, "GET").status_code == 200


@pytest.mark.parametrize("header", [b"x: ", b"x: a\r\n"], ids=["one that never ends", "many"])
def test_headers_behind_a_body_are_bounded(service: Service, header: bytes) -> None:
    """A megabyte of trailers is refused like a megabyte of headers."""
    with service.connect() as connection:
        connection.sendall(CHUNKED % (len(BODY), BODY) + header)
        piece = b"a" * 16_384 if header == b"x: " else header * 2000
        assert sent_until_closed(connection, piece, 2**20) < 2**20


def test_headers_behind_a_body_mean_nothing(service: Service) -> None:
    """What would be refused as a header is left out as a trailer, and the connection goes on."""
    with service.connect() as connection:
        trailer = b"X-Request-Timeout-Ms: none\r\nContent-Encoding: gzip\r\nAccept: a/b\r\n\r\n"
        for _ in range(2):
            connection.sendall(CHUNKED % (len(BODY), BODY) + trailer)
            assert read_answer(connection).status_code == 200


def test_a_head_has_no_more_than_256_headers(service: Service) -> None:
    """However small they are; one less is fine."""
    line = b"a:\r\n"
    assert service.raw(b"GET /livez HTTP/1.1\r\nHost: a\r\n" + line * 255 + b"\r\n").status_code == 200
    document = assert_problem(
        service.raw(b"GET /livez HTTP/1.1\r\n" + line * 257 + b"\r\n"), 400, "malformed-request"
    )
    assert "256 headers" in document["detail"]


@pytest.mark.alone
@pytest.mark.parametrize("name", ["Content-Type", "Accept", "Accept-Encoding"])
def test_no_header_holds_up_others(service: Service, name: str) -> None:
    """A quote that is never closed, and sixty thousand semicolons, are read in one go."""
    header = f'{name}: application/json; x="' + ";" * 60_000
    with watched(service) as longest:
        assert service.raw(request_bytes(body=BODY, headers=[header])).status_code in (200, 406, 415)
        assert longest() < SLACK_S


def test_long_headers_are_not_remembered() -> None:
    """What is sent once to fill the memory is neither read nor kept."""
    before = _best.cache_info().currsize
    accept = "a/b, " * 1000 + "application/json"
    scope = {"type": "http", "headers": [(b"accept", accept.encode())]}
    with pytest.raises(Problem):
        choose_format(Request(scope))
    assert _best.cache_info().currsize == before


def test_a_body_that_goes_on_after_its_answer_comes_to_an_end() -> None:
    """A body in chunks that is refused is read a while longer for the sake of the answer, not for ever."""
    with serve(max_body_bytes=10_000) as service, service.connect() as connection:
        connection.sendall(CHUNKED.partition(b"%x")[0])
        piece = b"2000\r\n" + b" " * 0x2000 + b"\r\n"
        connection.sendall(piece * 2)
        assert_problem(read_answer(connection), 413, "body-too-large")
        assert 5 * len(piece) < sent_until_closed(connection, piece, 2**22) < 2**22


def settled(service: Service) -> int:
    """How many schemas have been answered, once it becomes no more."""
    name, before = 'headlight_requests_total{kind="other",route="/openapi.json",status="200"}', -1.0
    while (count := service.metrics()[name]) != before:
        before = count
        time.sleep(1)
    return int(count)


def test_who_never_reads_the_last_answer_is_let_go() -> None:
    """Also where what is left of it is so little that the service has written it all."""
    with serve(request_timeout_s=2) as service, ExitStack() as stack:

        def ask_deaf(count: int) -> None:
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", service.port))
            connection.sendall(GET * (count - 1) + LAST)

        before, begun = vitals(service).files, settled(service)
        ask_deaf(400)
        taken = settled(service) - begun  # so many answers fit into what the system holds of a connection
        for count in range(taken - 8, taken + 4):
            ask_deaf(count)
        until = time.monotonic() + 30
        while (kept := vitals(service).files - before) > 0:
            assert time.monotonic() < until, f"{kept} connections are kept"
            time.sleep(0.5)


def test_idle_connections_do_not_use_up_the_files() -> None:
    """Where a system begins with few open files, the service allows itself as many as it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("this system allows fewer open files than the test holds")
    with ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        try:
            service = stack.enter_context(serve())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
        try:
            for _ in range(2000):
                stack.enter_context(service.connect())
            assert service.encode("still there")
            until = time.monotonic() + 20
            while files(service) < 2000:
                assert time.monotonic() < until, f"{files(service)} files are open"
                time.sleep(0.1)
        finally:
            stack.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_head_arrives_with_the_body(service: Service) -> None:
    """One packet each: a client that reads once has the whole of a short answer, and is woken once."""
    request = request_bytes(body=b'{"inputs": "hello"}')
    with service.connect() as connection:
        for _ in range(50):
            connection.sendall(request)
            head, _, body = connection.recv(65_536).partition(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            assert len(body) == int(length.partition(b":")[2])


def test_a_refusal_follows_a_response_without_a_body(service: Service) -> None:
    """The head of the response waits for no body, and comes before the refusal of what follows it."""
    with service.connect() as connection:
        connection.sendall(b"HEAD /livez HTTP/1.1\r\nHost: a\r\n\r\n" + b"nonsense\r\n\r\n")
        received = b""
        while piece := connection.recv(65_536):
            received += piece
    statuses = [line.split()[1] for line in received.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    assert statuses == [b"200", b"400"]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request_bytes(body=BODY), 200),
        (request_bytes(body=b'{"inputs": "a", "outputs": ["x"]}'), 422),
        (b"no HTTP\r\n\r\n", 400),
        (b"", None),
    ],
    ids=["answered", "refused", "malformed", "nothing sent"],
)
def test_a_closed_connection_leaves_nothing_to_the_garbage_collector(sent: bytes, status: int | None) -> None:
    """It runs rarely, so what many connections at once leave to it would be memory lost for minutes."""
    with serve(module="tests.support.timed") as service:
        service.encode("a")
        service.http.get("/garbage")
        for _ in range(20):
            with service.connect() as connection:
                connection.sendall(sent)
                if status is not None:
                    assert read_answer(connection).status_code == status
        time.sleep(0.2)
        assert service.http.get("/garbage").json() < 20
