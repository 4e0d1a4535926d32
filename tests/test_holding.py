"""Large answers hold a bounded share of memory, and let go of it however they end."""

import json
import socket
import time
from collections.abc import Iterator

import pytest

from service.holding import SMALL_BYTES, Holding
from service.problems import Problem
from tests.client import LONG, NPZ, Json, Service, assert_problem, post, request_bytes, serve

LARGE: Json = {"inputs": [LONG] * 2, "layers": [0, 1]}
"""12.6 MB as npz."""


@pytest.fixture(scope="module")
def narrow() -> Iterator[Service]:
    """A service that may have 104 MB of answers on their way: eight of these."""
    with serve(max_response_bytes=13_000_000) as started:
        yield started


def test_what_is_held_is_given_back_once() -> None:
    """A request that holds nothing gives back nothing; small answers are not counted."""
    holding, one, other = Holding(10 * SMALL_BYTES), dict[str, object](), dict[str, object]()
    holding.take(one, SMALL_BYTES)
    assert holding.bytes == 0
    holding.take(one, 20 * SMALL_BYTES)  # alone, any answer has room
    with pytest.raises(Problem) as refused:
        holding.take(other, SMALL_BYTES + 1)
    assert refused.value.headers["Retry-After"] == "1"
    holding.give_back(other)
    assert holding.bytes == 20 * SMALL_BYTES
    holding.give_back(one)
    holding.give_back(one)
    assert holding.bytes == 0
    holding.take(other, SMALL_BYTES + 1)


def test_readers_that_do_not_read_cannot_hold_all_memory(narrow: Service) -> None:
    """The ninth large answer is refused, a short one is not, and when the readers go there is room again."""
    readers = []
    for _ in range(8):
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        reader.settimeout(20)
        reader.connect(("127.0.0.1", narrow.port))
        reader.sendall(request_bytes("/attention", json.dumps(LARGE).encode(), [f"Accept: {NPZ}"]))
        assert reader.recv(15) == b"HTTP/1.1 200 OK"
        readers.append(reader)
    refused = post(narrow, LARGE, "/attention", Accept=NPZ)
    assert_problem(refused, 429, "overloaded")
    assert refused.headers["retry-after"] == "1"
    assert narrow.encode("short")["usage"]
    for reader in readers:
        reader.close()
    until = time.monotonic() + 20
    while (answer := post(narrow, LARGE, "/attention", Accept=NPZ)).status_code == 429:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert answer.status_code == 200
