"""400: what is not JSON, and what is not HTTP, over a real socket."""

import time
from contextlib import suppress

import pytest

from tests.support.serving import ROUTES, Service, answered, assert_problem, read_answer, request_bytes, send

MALFORMED = {
    "empty": b"",
    "blank": b"  \n",
    "cut": b'{"inputs": "a',
    "bare": b"inputs",
    "single quotes": b"{'inputs': 'a'}",
    "trailing comma": b'{"inputs": "a",}',
    "two documents": b'{"inputs": "a"} {}',
    "NaN": b'{"inputs": "a", "dimensions": NaN}',
    "Infinity": b'{"inputs": "a", "dimensions": -Infinity}',
    "overflow": b'{"inputs": "a", "dimensions": 1e400}',
    "invalid UTF-8": b'{"inputs": "\xff\xfe"}',
    "overlong UTF-8": b'{"inputs": "\xc0\xaf"}',
    "lone surrogate": b'{"inputs": "\\ud800"}',
    "lone low surrogate": b'{"inputs": ["fine", "a \\udc00 b"]}',
    "encoded surrogate": b'{"inputs": "\xed\xa0\x80"}',
    "control character": b'{"inputs": "a\x01b"}',
    "UTF-16": '{"inputs": "a"}'.encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf" + b'{"inputs": "a"}',
    "deep list": b'{"inputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep object": b'{"inputs": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
}


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("content", list(MALFORMED.values()), ids=list(MALFORMED))
def test_a_body_that_is_not_json_is_a_400(service: Service, path: str, content: bytes) -> None:
    """What is not JSON in UTF-8, NaN and lone surrogates included, is malformed-json."""
    assert_problem(send(service, content, path), 400, "malformed-json", instance=path)


def test_a_surrogate_pair_is_one_character(service: Service) -> None:
    """An escaped pair of surrogates is the character it stands for."""
    body = b'{"inputs": "\\ud83d\\ude42 end"}'
    (item,) = answered(send(service, body))["data"]
    assert item["offsets"] == [[0, 0], [0, 1], [2, 5], [0, 0]]


# ----------------------------------------------------------------------------------- malformed HTTP


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"POST /encode HTTP/x.y\r\n\r\n",
        b"POST /encode HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"POST /encode HTTP/1.1\r\nContent-Length: abc\r\n\r\n",
        b"POST /encode HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /encode HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
        b"POST /encode HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 60,
        b"GET /\xff\xfe\x00 HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_not_http_is_a_400_problem(service: Service, sent: bytes) -> None:
    """Malformed HTTP gets a problem document as well, and its connection is closed."""
    with service.connect() as connection:
        connection.sendall(sent)
        answer = read_answer(connection)
        assert_problem(answer, 400, "malformed-request")
        assert answer.headers["connection"] == "close"
        assert connection.recv(1) == b""
    assert service.http.get("/livez").status_code == 200


def test_a_head_that_is_too_large_is_a_400(service: Service) -> None:
    """A head of more than 64 KiB is refused before it is all read, and one of 60 KiB is not."""
    line = b"X-Filler: " + b"a" * 990 + b"\r\n"
    assert service.raw(b"GET /livez HTTP/1.1\r\nHost: a\r\n" + line * 60 + b"\r\n").status_code == 200
    answer = service.raw(b"GET /livez HTTP/1.1\r\n" + line * 70)
    document = assert_problem(answer, 400, "malformed-request")
    assert "65536" in document["detail"]


def test_a_header_that_never_ends_is_stopped(service: Service) -> None:
    """A single header of a megabyte ends the connection, whatever else the client sends."""
    with service.connect() as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nX-Filler: ")
        with suppress(ConnectionError):
            for _ in range(64):
                connection.sendall(b"a" * 16_384)
                time.sleep(0.005)
            pytest.fail("a megabyte of one header was taken")


def test_a_body_with_broken_chunks_is_a_400(service: Service) -> None:
    """A chunk without a size is malformed HTTP, also after good headers."""
    head = b"POST /encode HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert_problem(service.raw(head + b"not a size\r\n"), 400, "malformed-request")


def test_a_client_that_goes_in_the_middle_of_its_body_harms_nobody(service: Service) -> None:
    """Half a body and a closed connection leave nothing behind."""
    with service.connect() as connection:
        connection.sendall(b'POST /encode HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"inputs": ')
    service.encode("still there")
    until = time.monotonic() + 5
    while service.metrics()["headlight_requests_in_flight{}"] and time.monotonic() < until:
        time.sleep(0.02)
    assert service.metrics()["headlight_requests_in_flight{}"] == 0


OFFERS = ["Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQAAP__"]


@pytest.mark.parametrize("offer", ["h2c", "websocket", "TLS/1.0"])
def test_an_offer_to_upgrade_is_ignored(service: Service, offer: str) -> None:
    """Who offers another protocol with a request is answered in HTTP/1.1 (RFC 9110 §7.8)."""
    body = b'{"inputs": "hello", "dimensions": 2}'
    headers = [f"Upgrade: {offer}", *OFFERS[1:]]
    whole = request_bytes(body=body, headers=headers)
    for parts in (
        (whole,),
        (whole[:-20], whole[-20:]),
        (whole[: -len(body)], body),
        (whole[:30], whole[30:]),
    ):
        answer = service.raw(*parts, pause=0.05)
        assert answer.status_code == 200, answer.content
        assert len(answer.json()["data"][0]["embedding"]) == 2
    assert service.raw(request_bytes("/livez", headers=headers, method="GET")).status_code == 200


def test_after_an_offer_to_upgrade_the_connection_goes_on(service: Service) -> None:
    """The request after one that offered an upgrade is read as if nothing had been offered."""
    body = b'{"inputs": "hello", "dimensions": 2}'
    with service.connect() as connection:
        for headers in (OFFERS, [], OFFERS):
            connection.sendall(request_bytes(body=body, headers=headers))
            assert read_answer(connection).status_code == 200


def test_a_chunked_body_with_an_offer_to_upgrade_is_read(service: Service) -> None:
    """An offer changes nothing about how the body is sent."""
    body = b'{"inputs": "hello", "dimensions": 2}'
    head = "\r\n".join(["POST /encode HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", *OFFERS, "", ""])
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    assert service.raw(head.encode() + chunks).status_code == 200
    assert service.raw(head.encode(), chunks[:20], chunks[20:], pause=0.05).status_code == 200
