"""Slow readers are served, readers that stand still are cut off, and both are told apart in the metrics."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.client import Json, Service, request_bytes, serve

TEXT = " ".join(["word"] * 250)
MAPS = json.dumps({"inputs": TEXT, "layers": [0, 1]}).encode()
"""Its answer has ten megabytes: more than the kernel takes of it."""
CUT = 'headlight_rejected_total{reason="slow-reader"}'
GONE = 'headlight_requests_total{route="/attention",status="499"}'
WHOLE = 'headlight_requests_total{route="/attention",status="200"}'
IN_FLIGHT = "headlight_requests_in_flight{}"


def connect(service: Service, window: int = 65_536) -> socket.socket:
    """A connection whose client's side holds little."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    connection.settimeout(10)
    connection.connect(("127.0.0.1", service.port))
    return connection


def idle(service: Service) -> None:
    until = time.monotonic() + 20
    while service.metrics()[IN_FLIGHT]:
        assert time.monotonic() < until
        time.sleep(0.05)


def logged(service: Service) -> Json:
    """What the access log says of the last request to /attention."""
    lines = [json.loads(line) for line in service.log.splitlines() if '"POST /attention' in line]
    last: Json = lines[-1]
    return last


def test_a_slow_reader_that_goes_on_is_served(hurried: Service) -> None:
    """Three times as long as a still reader is waited for: all comes, and counts as 200."""
    idle(hurried)
    before = hurried.metrics()
    with connect(hurried) as connection:
        connection.sendall(request_bytes("/attention", MAPS, ["Connection: close"]))
        start, received = time.monotonic(), 0
        while part := connection.recv(32_768):
            received += len(part)
            # By bits for longer than three times the patience; the rest in one go.
            if time.monotonic() - start < 6.5:
                time.sleep(0.3)
        assert time.monotonic() - start > 6.5
    assert received > 8_000_000
    idle(hurried)
    after = hurried.metrics()
    assert after[WHOLE] == before[WHOLE] + 1
    assert after[CUT] == before[CUT]
    assert logged(hurried)["status"] == 200


def test_a_reader_that_stands_still_is_cut_off_and_counts_as_that(hurried: Service) -> None:
    """Not as a 200: it is a 499, a slow reader, and a sentence in the log."""
    idle(hurried)
    before = hurried.metrics()
    with connect(hurried) as connection:
        connection.sendall(request_bytes("/attention", MAPS))
        assert connection.recv(1000)
        hurried.wait_for_metric(CUT, before[CUT] + 1)
        idle(hurried)
        after = hurried.metrics()
    assert after[GONE] == before[GONE] + 1
    assert after[WHOLE] == before[WHOLE]
    assert logged(hurried)["status"] == 499
    assert "a reader is cut off: it has taken nothing for 2 s" in hurried.log


def test_a_small_answer_of_a_still_reader_counts_as_cut_off(hurried: Service) -> None:
    """Also where the whole of it is written in one go: behind others, it finds no room."""
    idle(hurried)
    before = hurried.metrics()
    name = 'headlight_requests_total{route="/attention",status="%d"}'
    body = json.dumps({"inputs": TEXT, "layers": [0], "heads": [0]}).encode()
    with connect(hurried, 4096) as connection:
        connection.sendall(request_bytes("/attention", body) * 12)
        hurried.wait_for_metric(CUT, before[CUT] + 1)
        idle(hurried)
        after = hurried.metrics()
    assert after[name % 499] == before[name % 499] + 1
    assert after[CUT] == before[CUT] + 1


@pytest.fixture(scope="module")
def narrow() -> Iterator[Service]:
    """A service with room for few large answers."""
    with serve(request_timeout_s=4, max_response_bytes=20_000_000) as started:
        yield started


def read_some(readers: list[socket.socket]) -> set[int]:
    """Have each reader take something, the fourth less than others; gives those that were cut off."""
    ended = set()
    for i, connection in enumerate(readers):
        connection.settimeout(0.05)
        try:
            ended |= set() if connection.recv(4_000 if i == 3 else 24_000) else {i}
        except TimeoutError:
            continue
        except ConnectionError:
            ended.add(i)
    return ended


def ask_for_maps(service: Service, stack: ExitStack) -> tuple[socket.socket, bytes]:
    """Ask for a large answer; the connection, and how its answer begins."""
    connection = stack.enter_context(connect(service))
    connection.sendall(request_bytes("/attention", MAPS))
    return connection, connection.recv(12).removeprefix(b"HTTP/1.1 ")


def test_the_slowest_reader_makes_room_for_others(narrow: Service) -> None:
    """Where the memory for answers is used up, the slowest of those that take long is cut off."""
    before = narrow.metrics()[CUT]
    readers = list[socket.socket]()
    with ExitStack() as stack:
        status = b"200"
        while status != b"429":
            connection, status = ask_for_maps(narrow, stack)
            readers += [connection] if status == b"200" else []
            assert len(readers) < 12, "there is room for all"
            assert not read_some(readers)
        ended, until = set[int](), time.monotonic() + 20
        while not ended:
            assert time.monotonic() < until, "no one made room"
            ended = read_some(readers)
            if status == b"429":
                _, status = ask_for_maps(narrow, stack)
        assert ended == {3}
        _, status = ask_for_maps(narrow, stack) if status == b"429" else (None, status)
        assert status in (b"200", b"504"), "what it held is there for others"
        assert narrow.metrics()[CUT] == before + 1
