"""What HTTP asks of a head: one host, a version and a transfer coding that are known. Over a real socket."""

import pytest

from tests.support.serving import Service, assert_problem, read_answer, request_bytes

BODY = b'{"inputs": "hello", "dimensions": 2}'
GET = b"GET /livez HTTP/1.1\r\n"


@pytest.mark.parametrize(
    "hosts",
    [
        b"",
        b"Host: a\r\nHost: a\r\n",
        b"Host: a\r\nhost: b\r\n",
        b"Host:\r\n",
        b"Host: a b\r\n",
        b"Host: a/b\r\n",
        b"Host: me@a\r\n",
        b"Host: a:http\r\n",
        b"Host: [::1\r\n",
        b"Host: \xff\r\n",
        b"Host: " + b"a" * 5000 + b"?\r\n",
    ],
    ids=range(11),
)
def test_a_request_has_one_good_host(service: Service, hosts: bytes) -> None:
    """Without a host, with two, or with one that is none, it is a 400 that says so (RFC 9112 §3.2)."""
    document = assert_problem(service.raw(GET + hosts + b"\r\n"), 400, "malformed-request", field="Host")
    assert "Host" in document["detail"]
    assert len(document["detail"]) < 300


@pytest.mark.parametrize("host", ["a", "a.example:8000", "127.0.0.1:", "[::1]:8000", "my_service", "a%20b"])
def test_every_form_of_a_host_is_taken(service: Service, host: str) -> None:
    """Names, addresses of both kinds, with and without a port."""
    assert service.raw(GET + b"Host: %b\r\n\r\n" % host.encode()).status_code == 200


def test_a_request_of_http_1_0_needs_no_host(service: Service) -> None:
    """Old health checks send none; two are too many there, too."""
    old = GET.replace(b"1.1", b"1.0")
    assert service.raw(old + b"\r\n").json() == {"status": "alive"}
    assert_problem(service.raw(old + b"Host: a\r\nHost: b\r\n\r\n"), 400, "malformed-request")


def test_an_expectation_of_http_1_0_is_ignored(service: Service) -> None:
    """A client of HTTP/1.0 knows no 100 (RFC 9110 §10.1.1): the first that it gets is its answer."""
    head = b"POST /encode HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY)
    with service.connect() as connection:
        connection.sendall(head)
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(20)
        connection.sendall(BODY)
        assert read_answer(connection).status_code == 200


@pytest.mark.parametrize("version", [b"0.9", b"2.0"])
def test_another_version_is_a_505(service: Service, version: bytes) -> None:
    """HTTP/0.9 and HTTP/2.0 in a request line are not served as if they were HTTP/1.1."""
    answer = service.raw(b"GET /livez HTTP/%b\r\nHost: a\r\n\r\n" % version)
    document = assert_problem(answer, 505, "http-version-not-supported")
    assert "HTTP/1.1" in document["detail"]


def test_the_preface_of_http_2_is_refused(service: Service) -> None:
    """A client that speaks HTTP/2 without asking gets a problem, and no 200."""
    assert_problem(service.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 400, "malformed-request")


@pytest.mark.parametrize("coding", ["gzip", "gzip, chunked", "identity", "xchunked"])
def test_an_unknown_transfer_coding_is_a_501(service: Service, coding: str) -> None:
    """What is not understood is not taken for chunks (RFC 9112 §6.1), and ends the connection."""
    head = f"POST /encode HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {coding}\r\n\r\n"
    answer = service.raw(head.encode() + b"0\r\n\r\n" + GET + b"Host: a\r\n\r\n")
    assert_problem(answer, 501, "transfer-coding-not-implemented", field="Transfer-Encoding")
    assert answer.headers["connection"] == "close"


def test_chunks_in_http_1_0_are_a_400(service: Service) -> None:
    """HTTP/1.0 has no transfer codings: another server on the way may have read it differently."""
    head = b"POST /encode HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert_problem(service.raw(head + b"0\r\n\r\n"), 400, "malformed-request", field="Transfer-Encoding")


def test_such_refusals_come_after_the_answers_before_them(service: Service) -> None:
    """A good request keeps its answer, whatever is pipelined behind it."""
    with service.connect() as connection:
        connection.sendall(GET + b"Host: a\r\n\r\n" + GET + b"\r\n")
        received = b""
        while part := connection.recv(65_536):
            received += part
    assert received.index(b"200 OK") < received.index(b"400 Bad Request")


@pytest.mark.parametrize("milliseconds", ["1000000000", "9" * 18, "0000000000000001000"[:18]])
def test_a_deadline_longer_than_the_services_own_is_that(service: Service, milliseconds: str) -> None:
    """A client may say that it has all the time in the world."""
    answer = service.raw(request_bytes(body=BODY, headers=[f"X-Request-Timeout-Ms: {milliseconds}"]))
    assert answer.status_code == 200, answer.content


def test_a_deadline_that_is_refused_is_told_what_is_taken(service: Service) -> None:
    """The sentence is true of the value that it refuses."""
    answer = service.raw(request_bytes(body=BODY, headers=["X-Request-Timeout-Ms: " + "9" * 19]))
    document = assert_problem(answer, 422, "invalid-request", field="X-Request-Timeout-Ms")
    assert "at most 18 digits" in document["detail"]


@pytest.mark.parametrize(("name", "shown"), [("", '""'), (" ", '" "'), ("body", "body")])
def test_a_field_is_named_as_it_is_called(service: Service, name: str, shown: str) -> None:
    """Also one whose name is empty: it is not the body that is unknown."""
    document = assert_problem(
        service.http.post("/encode", json={"inputs": "a", name: 1}), 422, "invalid-request", field=shown
    )
    assert document["detail"].startswith(f"{shown} is not a known field")


def test_a_host_is_logged_as_plain_characters(service: Service) -> None:
    """Those that a terminal obeys, or that end a line (C1 controls), are written as their codes."""
    answer = service.raw(GET + b"Host: a\x9b2J\x85b\r\n\r\n")
    document = assert_problem(answer, 400, "malformed-request", field="Host")
    assert r'"a\x9b2J\x85b"' in document["detail"]
    assert r'"a\x9b2J\x85b"' in service.log
