"""Every row of the error table, over a real socket, and the order in which refusals are looked for."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import BadStatusLine
from typing import Any

import httpx
import pytest

from tests.client import Json, Service, answered, assert_problem, read_answer, request_bytes, serve
from tests.doubles import POISON

JSON_TYPE = {"Content-Type": "application/json"}
LONG = " ".join(["word"] * 300)
ROUTES = ["/encode", "/attention"]


def post(service: Service, body: object, path: str = "/encode", **headers: str) -> httpx.Response:
    return service.http.post(path, json=body, headers={k.replace("_", "-"): v for k, v in headers.items()})


def send(service: Service, content: bytes, path: str = "/encode") -> httpx.Response:
    return service.http.post(path, content=content, headers=JSON_TYPE)


# ------------------------------------------------------------------------------- 400 malformed-json


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


# ------------------------------------------------------------------------------------ 404, 405, HEAD


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/nothing"),
        ("POST", "/nothing"),
        ("POST", "/encode/"),
        ("POST", "//encode"),
        ("POST", "/Encode"),
        ("POST", "/attention/"),
        ("GET", "/metrics/"),
        ("GET", "/docs/"),
        ("GET", "/docs/nothing.js"),
        ("GET", "/docs/../encode/x"),
        ("DELETE", "/openapi.json/x"),
        ("PROPFIND", "/nothing"),
    ],
)
def test_an_unknown_route_is_a_404_without_redirects(service: Service, method: str, path: str) -> None:
    """Routes are exact: a slash too many is not found, and never redirected."""
    answer = service.raw(request_bytes(path, method=method))
    assert_problem(answer, 404, "not-found", instance=path)
    assert answer.headers["location"] is None


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        *(
            (method, path, "POST")
            for path in ROUTES
            for method in ("GET", "PUT", "DELETE", "OPTIONS", "PATCH")
        ),
        *(
            ("POST", path, "GET")
            for path in ("/livez", "/readyz", "/health", "/metrics", "/info", "/openapi.json", "/docs")
        ),
        ("PROPFIND", "/encode", "POST"),
    ],
)
def test_another_method_is_a_405_that_names_the_right_one(
    service: Service, method: str, path: str, allowed: str
) -> None:
    """A known route with a wrong method says in Allow which it takes."""
    answer = service.raw(request_bytes(path, method=method))
    assert_problem(answer, 405, "method-not-allowed", instance=path)
    assert allowed in answer.headers["allow"].split(", ")


def test_head_of_an_inference_route_is_a_405_without_a_body(service: Service) -> None:
    """HEAD is answered like GET, with nothing after the headers."""
    response = service.http.head("/encode")
    assert (response.status_code, response.headers["allow"], response.content) == (405, "POST", b"")


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
    assert service.raw(b"GET /livez HTTP/1.1\r\n" + line * 60 + b"\r\n").status_code == 200
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
        connection.sendall(b'POST /encode HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"inputs": ')
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


# ------------------------------------------------------------------------------------ 406, 408, 415


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "application/xml, text/*",
        "application/json;q=0",
        "application/json;q=0, */*",
        "*/*;q=0",
        "application/x-npz",
        "nonsense",
    ],
)
@pytest.mark.parametrize("path", ROUTES)
def test_another_accept_is_a_406_with_the_list(service: Service, accept: str, path: str) -> None:
    """A format there is none of is refused, with those there are."""
    response = post(service, {"inputs": "a"}, path, Accept=accept)
    document = assert_problem(response, 406, "not-acceptable")
    assert document["allowed"] == ["application/json"]


@pytest.mark.parametrize(
    "accept",
    [
        "application/json",
        "*/*",
        "application/*",
        "text/html, application/json;q=0.1",
        "text/html;q=0.9, */*;q=0.1",
        "application/json; charset=utf-8",
    ],
)
def test_an_accept_that_allows_json_gets_json(service: Service, accept: str) -> None:
    """q-values and wildcards are honoured."""
    answered(post(service, {"inputs": "a"}, Accept=accept))


def test_several_accept_headers_are_one_list(service: Service) -> None:
    """A list may be spread over headers (RFC 9110 §5.3)."""
    body = b'{"inputs": "a"}'
    answer = service.raw(request_bytes(body=body, headers=["Accept: text/html", "Accept: application/json"]))
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonl",
        "json",
        "application/json; charset=utf-16",
        "application/json; charset=latin-1",
    ],
)
@pytest.mark.parametrize("path", ROUTES)
def test_another_content_type_is_a_415(service: Service, content_type: str, path: str) -> None:
    """What is declared as something else is not read as JSON."""
    response = service.http.post(path, content=b'{"inputs": "a"}', headers={"Content-Type": content_type})
    document = assert_problem(response, 415, "unsupported-media-type", actual=content_type)
    assert document["allowed"] == ["application/json"]


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "application/json",
        "Application/JSON",
        "application/json;charset=UTF-8",
        'application/json; charset="utf-8"',
        "application/json; charset=utf-8; profile=a",
        "application/json; profile=a",
    ],
)
def test_json_by_any_of_its_names_is_read(service: Service, content_type: str | None) -> None:
    """Case and parameters do not matter, and a missing Content-Type is taken as JSON."""
    headers = {} if content_type is None else {"Content-Type": content_type}
    answered(service.http.post("/encode", content=b'{"inputs": "a"}', headers=headers))


def test_a_body_that_does_not_arrive_is_a_408(strict: Service) -> None:
    """After the time for a request, half a body is answered with 408 and the connection is closed."""
    before = time.monotonic()
    with strict.connect() as connection:
        connection.sendall(b'POST /encode HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"inputs": ')
        answer = read_answer(connection)
        assert_problem(answer, 408, "request-timeout", instance="/encode", limit=1.5)
        assert connection.recv(1) == b""
    assert 1.4 <= time.monotonic() - before <= 6


def test_a_body_that_trickles_is_a_408(strict: Service) -> None:
    """The time is that of the whole body: a byte now and then does not prolong it."""
    with strict.connect() as connection:
        connection.sendall(b"POST /encode HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n")
        stop = threading.Event()

        def trickle() -> None:
            while not stop.wait(0.1):
                try:
                    connection.sendall(b" ")
                except OSError:
                    return

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert_problem(read_answer(connection), 408, "request-timeout")
        finally:
            stop.set()
            thread.join()


# ----------------------------------------------------------------------------------------------- 413


def test_a_body_declared_too_large_is_refused_before_it_is_sent(strict: Service) -> None:
    """Content-Length alone is enough for the 413."""
    head = b"POST /encode HTTP/1.1\r\nHost: a\r\nContent-Length: 4001\r\n\r\n"
    assert_problem(strict.raw(head), 413, "body-too-large", instance="/encode", limit=4000, actual=4001)


def test_a_body_of_exactly_the_limit_is_read(strict: Service) -> None:
    """The limit is the largest body that is taken."""
    body = b'{"inputs": "a"}'.ljust(4000)
    answered(send(strict, body))
    assert_problem(send(strict, body + b" "), 413, "body-too-large")


def test_a_chunked_body_is_refused_when_it_grows_too_large(strict: Service) -> None:
    """Without a Content-Length the bytes are counted as they come."""

    def chunks() -> Iterator[bytes]:
        yield b'{"inputs": "'
        for _ in range(50):
            yield b"a" * 100

    response = strict.http.post("/encode", content=chunks(), headers=JSON_TYPE)
    document = assert_problem(response, 413, "body-too-large", limit=4000)
    assert document["actual"] > 4000


def test_after_a_413_the_next_request_is_read_cleanly(strict: Service) -> None:
    """The rest of a refused body is never taken for a request."""
    with strict.connect() as connection:
        body = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n" * 200
        connection.sendall(request_bytes(body=body))
        assert_problem(read_answer(connection), 413, "body-too-large")
        try:
            connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n")
            following = read_answer(connection, "GET")
        except (ConnectionError, BadStatusLine):
            return  # closed, which is just as well
        assert following.json() == {"status": "ready"}


def test_too_many_inputs_are_a_413(strict: Service) -> None:
    """More texts than one request may have are refused with the limit and their number."""
    answered(post(strict, {"inputs": ["a"] * 4}))
    response = post(strict, {"inputs": ["a"] * 5})
    assert_problem(response, 413, "too-many-inputs", limit=4, actual=5, field="inputs")


def batches(service: Service, model: str = "all-MiniLM-L6-v2") -> float:
    return service.metrics()[f'headlight_batches_total{{model="{model}"}}']


@pytest.mark.parametrize(
    ("path", "body", "helps"),
    [
        ("/attention", {"inputs": " ".join(["a"] * 60)}, ["layers", "heads", "queries", "keys", "aggregate"]),
        (
            "/encode",
            {"inputs": "a b c", "outputs": ["tokens"], "layers": list(range(7))},
            ["layers", "outputs"],
        ),
    ],
)
def test_an_answer_that_could_be_too_large_is_refused_before_anything_runs(
    strict: Service, path: str, body: Json, helps: list[str]
) -> None:
    """The 413 says how large the answer could be and which fields make it smaller; no batch has run."""
    before = batches(strict)
    document = assert_problem(post(strict, body, path), 413, "response-too-large", limit=50_000)
    assert document["actual"] > 50_000
    assert all(f"`{name}`" in document["detail"] for name in helps)
    assert batches(strict) == before
    answered(post(strict, body | {"layers": [0]} | ({"heads": [0]} if path == "/attention" else {}), path))
    assert batches(strict) == before + 1


def test_the_default_limit_of_an_answer_is_64_mib(service: Service) -> None:
    """Maps of two texts of 256 tokens, of all layers and heads, are too much."""
    before = batches(service)
    response = post(service, {"inputs": [LONG, LONG]}, "/attention")
    assert_problem(response, 413, "response-too-large", limit=64 * 2**20)
    assert batches(service) == before


# ------------------------------------------------------------------------------- 422 invalid-request


BOTH: list[tuple[Json, str]] = [
    ({}, "inputs"),
    ({"inputs": None}, "inputs"),
    ({"inputs": []}, "inputs"),
    ({"inputs": 7}, "inputs"),
    ({"inputs": True}, "inputs"),
    ({"inputs": {"text": "a"}}, "inputs"),
    ({"inputs": [7]}, "inputs.0"),
    ({"inputs": ["a", None]}, "inputs.1"),
    ({"inputs": ["a", ["a", "b"]]}, "inputs.1"),
    ({"inputs": [["a", "b"], "a"]}, "inputs.1"),
    ({"inputs": [["a"]]}, "inputs.0"),
    ({"inputs": [["a", "b", "c"]]}, "inputs.0"),
    ({"inputs": [["a", 7]]}, "inputs.0"),
    ({"inputs": [[]]}, "inputs.0"),
    ({"inputs": "a", "colour": 1}, "colour"),
    ({"inputs": "a", "Layers": [0]}, "Layers"),
    ({"inputs": "a", "model": 7}, "model"),
    ({"inputs": "a", "truncate": "true"}, "truncate"),
    ({"inputs": "a", "truncate": 1}, "truncate"),
    ({"inputs": "a", "truncation_side": "middle"}, "truncation_side"),
    ({"inputs": "a", "truncate": False, "truncation_side": "left"}, "truncation_side"),
    ({"inputs": "a", "prompt": 7}, "prompt"),
    ({"inputs": "a", "prompt": "b", "prompt_name": "query"}, "prompt"),
    ({"inputs": "a", "prompt": "", "prompt_name": "query"}, "prompt"),
    ({"inputs": "a", "prompt_name": "nobody"}, "prompt_name"),
    ({"inputs": "a", "layers": []}, "layers"),
    ({"inputs": "a", "layers": 0}, "layers"),
    ({"inputs": "a", "layers": "0"}, "layers"),
    ({"inputs": "a", "layers": [True]}, "layers.0"),
    ({"inputs": "a", "layers": ["6"]}, "layers.0"),
    ({"inputs": "a", "layers": [0, 1.5]}, "layers.1"),
    ({"inputs": "a", "layers": [0, None]}, "layers.1"),
    ({"inputs": "a", "layers": [0, 99]}, "layers.1"),
    ({"inputs": "a", "layers": [-99]}, "layers.0"),
    ({"inputs": "a", "layers": [10**30]}, "layers.0"),
]
ENCODE: list[tuple[Json, str]] = [
    ({"outputs": []}, "outputs"),
    ({"outputs": ["words"]}, "outputs.0"),
    ({"outputs": "sentence"}, "outputs"),
    ({"pooling": "median"}, "pooling"),
    ({"pooling": 1}, "pooling"),
    ({"pooling_layers": []}, "pooling_layers"),
    ({"pooling_layers": [7]}, "pooling_layers.0"),
    ({"normalize": "yes"}, "normalize"),
    ({"normalize": 1}, "normalize"),
    ({"dimensions": 0}, "dimensions"),
    ({"dimensions": -1}, "dimensions"),
    ({"dimensions": 385}, "dimensions"),
    ({"dimensions": True}, "dimensions"),
    ({"dimensions": "6"}, "dimensions"),
    ({"dimensions": 6.5}, "dimensions"),
    ({"dimensions": [6]}, "dimensions"),
    ({"dimensions": 10**30}, "dimensions"),
    ({"dimensions": 1e300}, "dimensions"),
    ({"layers": [0]}, "layers"),
    ({"outputs": ["tokens"], "pooling": "cls"}, "pooling"),
    ({"outputs": ["tokens"], "pooling_layers": [0]}, "pooling_layers"),
    ({"outputs": ["tokens"], "normalize": True}, "normalize"),
    ({"outputs": ["tokens"], "dimensions": 6}, "dimensions"),
    ({"heads": [0]}, "heads"),
    ({"decimals": 3}, "decimals"),
]
ATTENTION: list[tuple[Json, str]] = [
    ({"layers": [6]}, "layers.0"),
    ({"layers": "every"}, "layers"),
    ({"heads": [12]}, "heads.0"),
    ({"heads": [0, -13]}, "heads.1"),
    ({"heads": None}, "heads"),
    ({"queries": []}, "queries"),
    ({"queries": [3]}, "inputs.0"),
    ({"queries": [0, -4]}, "inputs.0"),
    ({"keys": [3]}, "inputs.0"),
    ({"keys": ["0"]}, "keys.0"),
    ({"aggregate": "median"}, "aggregate"),
    ({"decimals": 0}, "decimals"),
    ({"decimals": 10}, "decimals"),
    ({"decimals": 1e300}, "decimals"),
    ({"queries": [1e30]}, "inputs.0"),
    ({"keys": [-(10**30)]}, "inputs.0"),
    ({"decimals": "6"}, "decimals"),
    ({"decimals": True}, "decimals"),
    ({"decimals": 6.5}, "decimals"),
    ({"decimals": None}, "decimals"),
    ({"pooling_layers": [0]}, "pooling_layers"),
]


def cases() -> Iterator[Any]:
    for body, field in BOTH:
        for path in ROUTES:
            yield pytest.param(path, {"outputs": ["tokens"]} | body if path == "/encode" else body, field)
    for options, field in ENCODE:
        yield pytest.param("/encode", {"inputs": "a"} | options, field)
    for options, field in ATTENTION:
        yield pytest.param("/attention", {"inputs": "a"} | options, field)


@pytest.mark.parametrize(("path", "body", "field"), list(cases()))
def test_a_request_that_is_not_valid_names_its_field(
    service: Service, path: str, body: Json, field: str
) -> None:
    """Each rule of the contract is a 422 that names the field and says something about it."""
    document = assert_problem(post(service, body, path), 422, "invalid-request")
    assert document["field"] == field, document
    assert len(document["detail"]) > len(field) + 10


@pytest.mark.parametrize("body", [[], ["a"], "a", 7, None, True, [{"inputs": "a"}]])
def test_a_body_that_is_no_object_is_a_422(service: Service, body: object) -> None:
    """JSON that is not an object has no fields to read."""
    assert_problem(send(service, json.dumps(body).encode()), 422, "invalid-request", field="body")


@pytest.mark.parametrize(
    ("path", "options", "allowed"),
    [
        ("/encode", {"outputs": ["tokens"], "layers": [7]}, [-7, 6]),
        ("/encode", {"pooling_layers": [-8]}, [-7, 6]),
        ("/encode", {"dimensions": 385}, [1, 384]),
        ("/encode", {"dimensions": 769, "pooling": "mean_max"}, [1, 768]),
        ("/attention", {"layers": [-7]}, [-6, 5]),
        ("/attention", {"heads": [12]}, [-12, 11]),
        ("/attention", {"queries": [-6]}, [-5, 4]),
        ("/attention", {"keys": [5]}, [-5, 4]),
    ],
)
def test_what_is_out_of_range_is_told_the_range(
    service: Service, path: str, options: Json, allowed: list[int]
) -> None:
    """The range that exists is in the document and in its sentence."""
    document = assert_problem(
        post(service, {"inputs": "one two three", **options}, path), 422, "invalid-request"
    )
    assert document["allowed"] == allowed
    assert str(allowed[0]) in document["detail"]
    assert str(allowed[1]) in document["detail"]


@pytest.mark.parametrize("name", ["queries", "keys"])
def test_a_position_that_one_input_does_not_have_names_that_input(service: Service, name: str) -> None:
    """The long input has the position; the short one is named, and its range."""
    before = batches(service)
    body = {"inputs": ["one two three four", "one"], name: [4]}
    document = assert_problem(post(service, body, "/attention"), 422, "invalid-request")
    assert (document["field"], document["actual"], document["allowed"]) == ("inputs.1", 4, [-3, 2])
    assert "inputs.1" in document["detail"]
    assert name in document["detail"]
    assert batches(service) == before


def test_whole_numbers_may_be_written_with_a_point(service: Service) -> None:
    """6.0 is an integer, as in JSON Schema."""
    body = {"inputs": "a", "outputs": ["sentence", "tokens"], "dimensions": 6.0, "layers": [6.0, -1e0]}
    (item,) = answered(post(service, body))["data"]
    assert len(item["embedding"]) == 6
    assert len(item["token_embeddings"]) == 2


def test_query_parameters_are_refused(service: Service) -> None:
    """An option in the query string would have no effect, so it is refused."""
    response = service.http.post("/encode?pooling=cls", json={"inputs": "a"})
    document = assert_problem(response, 422, "invalid-request")
    assert "pooling" in document["field"]


def test_several_faults_are_told_at_once(service: Service) -> None:
    """The document lists what is wrong, the first field first."""
    document = assert_problem(
        post(service, {"inputs": "a", "normalize": 1, "colour": 2}), 422, "invalid-request"
    )
    assert {error["field"] for error in document["errors"]} == {"normalize", "colour"}


def test_an_input_too_long_is_named_with_its_length_and_the_limit(service: Service) -> None:
    """With `truncate` false the first input beyond the limit is a 422, and nothing is computed."""
    before = batches(service)
    for path in ROUTES:
        response = post(service, {"inputs": ["short", LONG, LONG], "truncate": False}, path)
        document = assert_problem(response, 422, "input-too-long", field="inputs.1", actual=302, limit=256)
        assert all(part in document["detail"] for part in ("inputs.1", "302", "256"))
    assert batches(service) == before


def test_an_unknown_model_is_a_404_with_the_names(several: Service) -> None:
    """The names of the served models are in the document."""
    for path in ROUTES:
        response = post(several, {"inputs": "a", "model": "gpt"}, path)
        document = assert_problem(
            response, 404, "model-not-found", allowed=["mini", "prompted"], actual="gpt"
        )
        assert "mini" in document["detail"]


def test_an_unknown_prompt_is_told_the_models_prompts(several: Service) -> None:
    """The names of the model's own prompts are in the document."""
    body = {"inputs": "a", "model": "prompted", "prompt_name": "nobody"}
    document = assert_problem(post(several, body), 422, "invalid-request", field="prompt_name")
    assert document["allowed"] == ["query", "passage"]


# ----------------------------------------------------------------------------------------- 429, 504


def crowd(service: Service, count: int, body: Json) -> list[httpx.Response]:
    """Send the same request from `count` clients at the same time."""
    barrier = threading.Barrier(count)

    def ask(_: int) -> httpx.Response:
        with service.new_client() as client:
            barrier.wait()
            return client.post("/encode", json=body)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(ask, range(count)))


def test_a_full_queue_is_a_429_and_nothing_of_it_is_computed(several: Service) -> None:
    """What finds the queue full is told at once when to come again; the rest is answered."""
    name = 'headlight_inputs_total{model="mini",route="/encode"}'
    before = several.metrics()
    responses = crowd(several, 24, {"inputs": [LONG, LONG]})
    statuses = [response.status_code for response in responses]
    assert set(statuses) == {200, 429}
    for response in responses:
        if response.status_code == 429:
            document = assert_problem(response, 429, "overloaded", limit=512)
            assert int(response.headers["retry-after"]) >= 1
            assert document["actual"] <= 512
    after = several.metrics()
    assert after[name] - before[name] == 2 * statuses.count(200)
    rejected = 'headlight_rejected_total{reason="overloaded"}'
    assert after[rejected] - before[rejected] == statuses.count(429)
    tokens = 'headlight_batch_tokens_sum{model="mini"}'
    assert after[tokens] - before[tokens] == 512 * statuses.count(200)


def test_an_idle_service_takes_any_legal_request(several: Service) -> None:
    """A request larger than the whole queue is run when nothing else waits."""
    answer = answered(post(several, {"inputs": [LONG] * 5}))
    assert answer["usage"]["input_tokens"] == 5 * 256 > 512


def test_the_clients_own_deadline_is_a_504(several: Service) -> None:
    """X-Request-Timeout-Ms bounds the work where it is shorter than the setting."""
    response = post(several, {"inputs": [LONG] * 12}, X_Request_Timeout_Ms="5")
    assert_problem(response, 504, "deadline-exceeded")
    answered(post(several, {"inputs": "a"}, X_Request_Timeout_Ms="20000"))


def test_the_deadline_of_the_service_is_a_504(strict: Service) -> None:
    """A client cannot ask for more time than HEADLIGHT_REQUEST_TIMEOUT_S."""
    with serve(request_timeout_s=0.02, max_batch_tokens=256, threads=1) as hurried:
        response = post(hurried, {"inputs": [LONG] * 16}, X_Request_Timeout_Ms="60000")
        assert_problem(response, 504, "deadline-exceeded")


@pytest.mark.parametrize("value", ["0", "-5", "1.5", "abc", "", "1e3", "99999999999999999999"])
def test_a_deadline_that_is_no_number_of_milliseconds_is_a_422(service: Service, value: str) -> None:
    """A header that cannot be understood is not ignored."""
    response = post(service, {"inputs": "a"}, X_Request_Timeout_Ms=value)
    assert_problem(response, 422, "invalid-request", field="X-Request-Timeout-Ms")


# ----------------------------------------------------------------------------------------------- 500


def test_a_failed_computation_is_the_500_of_its_own_request_alone() -> None:
    """One input that cannot be computed fails its request; neighbours of the same batch are answered."""
    with serve(module="tests.doubles") as service:
        bodies: list[Json] = [{"inputs": ["a good text", f"number {i}"]} for i in range(12)]
        bodies[5] = {"inputs": ["a good text", f"a drop of {POISON}", "another"]}
        with ThreadPoolExecutor(12) as pool:
            responses = list(pool.map(lambda body: post(service, body), bodies))
        for i, response in enumerate(responses):
            if i == 5:
                assert_problem(response, 500, "inference-failed")
            else:
                answered(response)
        failed = 'headlight_inference_failures_total{model="all-MiniLM-L6-v2",reason="exception"}'
        assert service.metrics()[failed] == 1
        assert POISON not in service.log, "texts of clients are never logged"
        service.encode("and it goes on")
        assert service.http.get("/readyz").status_code == 200


# ------------------------------------------------------------------------------------ 503 and before


def test_while_loading_work_is_a_503_and_only_routes_come_before_it() -> None:
    """Before its models are loaded a service lives and is not ready; 404 and 405 come first, then 503."""
    with serve(wait=False) as service:
        service.wait_until_listening()
        for path in ("/readyz", "/health"):
            response = service.http.get(path)
            assert_problem(response, 503, "not-ready")
            assert int(response.headers["retry-after"]) >= 1
        for path in ROUTES:
            response = post(service, {"inputs": "a"}, path)
            assert_problem(response, 503, "not-ready")
            assert int(response.headers["retry-after"]) >= 1
        headers = {"Content-Type": "text/plain", "Accept": "text/html"}
        assert_problem(service.http.post("/encode", content=b"x", headers=headers), 503, "not-ready")
        assert_problem(service.http.post("/nothing", content=b"x", headers=headers), 404, "not-found")
        assert_problem(service.http.put("/encode", content=b"x", headers=headers), 405, "method-not-allowed")
        assert service.http.get("/livez").status_code == 200
        assert service.metrics()["headlight_ready{}"] == 0
        assert_problem(service.http.get("/readyz"), 503, "not-ready")
        service.wait_until_ready()
        service.encode("now")
        assert service.metrics()["headlight_ready{}"] == 1


TOO_LARGE = b"x" * 4001


@pytest.mark.parametrize(
    ("earlier", "kind", "path", "content", "headers"),
    [
        (
            "415 before 406",
            "unsupported-media-type",
            "/encode",
            b"",
            {"Content-Type": "a/b", "Accept": "a/b"},
        ),
        ("406 before 413", "not-acceptable", "/encode", TOO_LARGE, {"Accept": "a/b"}),
        ("413 before 400", "body-too-large", "/encode", TOO_LARGE, {}),
        ("400 before 422", "malformed-json", "/encode?query=1", b"{", {}),
        ("422 before 404", "invalid-request", "/encode", b'{"inputs": "a", "model": "b", "c": 1}', {}),
        (
            "404 before too long",
            "model-not-found",
            "/encode",
            json.dumps({"inputs": LONG, "model": "b", "truncate": False}).encode(),
            {},
        ),
        (
            "404 before a range",
            "model-not-found",
            "/attention",
            b'{"inputs": "a", "model": "b", "layers": [99]}',
            {},
        ),
        (
            "too long before 413",
            "input-too-long",
            "/attention",
            json.dumps({"inputs": ["a " * 100, LONG], "truncate": False}).encode(),
            {},
        ),
    ],
)
def test_of_two_faults_the_earlier_is_told(
    strict: Service, earlier: str, kind: str, path: str, content: bytes, headers: dict[str, str]
) -> None:
    """Where several errors apply, the order of the contract decides."""
    response = strict.http.post(path, content=content, headers=headers)
    assert response.json()["type"] == f"urn:headlight:{kind}", earlier


def test_an_answer_too_large_is_told_before_a_full_queue(several: Service) -> None:
    """While others get a 429, what could never be answered gets its 413."""
    large = {"inputs": [LONG, LONG], "model": "mini"}
    seen = set()
    with ThreadPoolExecutor(12) as pool:
        pending = []
        for _ in range(12):
            pending.append(pool.submit(post, several, {"inputs": [LONG, LONG, LONG]}))
            pending.append(pool.submit(post, several, large, "/attention"))
        for i, future in enumerate(pending):
            response = future.result()
            if i % 2:
                assert_problem(response, 413, "response-too-large")
            else:
                seen.add(response.status_code)
    assert 429 in seen
