"""For how long an idle connection lives, and what ends it."""

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from service.settings import Settings
from tests.support.serving import Service, read_answer

pytestmark = pytest.mark.alone

GET = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"


def ask(service: Service) -> float:
    """Ask once, and wait for the end of the connection; how long it was idle at least, in seconds."""
    with service.connect(timeout=20) as connection:
        start = time.monotonic()
        connection.sendall(GET)
        read_answer(connection, "GET")
        assert connection.recv(1) == b""
        return time.monotonic() - start


def test_it_is_75_seconds_by_default() -> None:
    """Longer than clients and balancers keep a connection, of which most have 60 s or less."""
    assert Settings().keep_alive_s == 75


def test_an_idle_connection_ends_in_its_time(hurried: Service) -> None:
    """HEADLIGHT_KEEP_ALIVE_S is when."""
    assert 0.9 < ask(hurried) < 4


def test_a_connection_that_is_used_again_after_5_seconds_is_there(service: Service) -> None:
    """Many clients come back every five seconds, and would be reset if it were closed then."""
    with httpx.Client(
        base_url=service.url, trust_env=False, limits=httpx.Limits(keepalive_expiry=60)
    ) as http:
        first = http.get("/livez").extensions["network_stream"].get_extra_info("client_addr")
        time.sleep(5.2)
        again = http.get("/livez")
        assert again.status_code == 200
        assert again.extensions["network_stream"].get_extra_info("client_addr") == first


@pytest.mark.parametrize("blank", [b"\r\n", b"\n"])
def test_blank_lines_do_not_prolong_it(hurried: Service, blank: bytes) -> None:
    """A line now and then begins no request (RFC 9112 §2.2), and keeps no connection open."""
    with hurried.connect() as connection:
        start = time.monotonic()
        connection.sendall(GET)
        read_answer(connection, "GET")
        connection.settimeout(0.2)
        while time.monotonic() - start < 6:
            try:
                connection.sendall(blank)
                if connection.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        assert 0.8 < time.monotonic() - start < 4


def test_a_request_at_the_last_moment_is_answered_or_sees_an_orderly_end(hurried: Service) -> None:
    """Whatever the client's timing, it is never left without one or the other."""

    def is_answered(late: float) -> bool:
        with hurried.connect(timeout=5) as connection:
            connection.sendall(GET)
            read_answer(connection, "GET")
            time.sleep(late)
            try:
                connection.sendall(GET)
                return read_answer(connection, "GET").status_code == 200
            except ConnectionError:
                return False

    timings = (0.1, 0.3, 0.5, 0.9, 0.97, 0.99, 0.995, 1.0, 1.005)
    with ThreadPoolExecutor(len(timings)) as pool:
        assert sum(pool.map(is_answered, timings)) >= 2


def test_a_request_that_began_before_the_last_answer_is_not_idle(hurried: Service) -> None:
    """Its head arrives in two parts, the second one after that answer; it takes longer than an idle time."""
    with hurried.connect(timeout=5) as connection:
        connection.sendall(GET + b"POST /encode HTTP/1.1\r\nHost: a\r\n")
        read_answer(connection, "GET")
        connection.sendall(b'Content-Length: 17\r\n\r\n{"inputs": ')
        time.sleep(1.5)
        connection.sendall(b'"ab"} ')
        assert read_answer(connection).status_code == 200


def test_a_request_that_waited_behind_another_has_its_own_time(hurried: Service) -> None:
    """That its body was not there yet when its turn came ends nothing once it has arrived."""
    post = b"POST /encode HTTP/1.1\r\nHost: a\r\nContent-Length: 16\r\n\r\n"
    with hurried.connect(timeout=5) as connection:
        connection.sendall(GET + GET.replace(b"\r\n\r\n", b"\r\nContent-Length: 10\r\n\r\n1"))
        received = b""
        while received.count(b"alive") < 2:
            received += (part := connection.recv(4096))
            assert part
        time.sleep(0.9)
        connection.sendall(b"234567890")
        time.sleep(0.3)
        connection.sendall(post + b'{"inputs": ')
        time.sleep(1.3)
        connection.sendall(b'"ab"}')
        assert read_answer(connection).status_code == 200
