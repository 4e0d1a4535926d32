"""408, 413, 429 and 504: how long a request may take, how large it and its answer may be, what may wait."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import BadStatusLine

import httpx
import pytest

from tests.support.backends import both_backends
from tests.support.serving import (
    JSON_TYPE,
    LONG,
    Json,
    Service,
    answered,
    assert_problem,
    batches,
    post,
    read_answer,
    request_bytes,
    send,
    serve,
)

pytestmark = both_backends

# ----------------------------------------------------------------------------------------------- 408


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


@pytest.mark.parametrize(
    ("path", "body", "helps"),
    [
        ("/attention", {"inputs": " ".join(["a"] * 60)}, ["thumbnail"]),
        (
            "/encode",
            {"inputs": "a b c", "outputs": ["tokens"], "layers": list(range(7))},
            ["layers"],
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


def test_no_client_has_more_time_than_the_service_allows() -> None:
    """More time than HEADLIGHT_REQUEST_TIMEOUT_S cannot be asked for: refused ahead, or once it is over."""
    with serve(request_timeout_s=0.02, max_batch_tokens=256, threads=1) as hurried:
        response = post(hurried, {"inputs": [LONG] * 16}, X_Request_Timeout_Ms="60000")
        refused = response.status_code == 422
        kind = "deadline-too-short" if refused else "deadline-exceeded"
        assert_problem(response, 422 if refused else 504, kind, limit=0.02)


@pytest.mark.parametrize("value", ["0", "-5", "1.5", "abc", "", "1e3", "99999999999999999999"])
def test_a_deadline_that_is_no_number_of_milliseconds_is_a_422(service: Service, value: str) -> None:
    """A header that cannot be understood is not ignored."""
    response = post(service, {"inputs": "a"}, X_Request_Timeout_Ms=value)
    assert_problem(response, 422, "invalid-request", field="X-Request-Timeout-Ms")
