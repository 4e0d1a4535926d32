"""Health probes go first, and a flood of them does not."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.serving import Service, client_at, read_answer, serve

pytestmark = pytest.mark.alone

PROBE = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
CONNECTIONS, SECONDS = 8, 1.5


@contextmanager
def others(service: Service) -> Iterator[None]:
    """Another client, which sends one text after another inside the `with` block."""
    ended = threading.Event()

    def ask() -> None:
        with client_at(service, "127.0.0.2") as client:
            while not ended.is_set():
                assert client.post("/encode", json={"inputs": "hello"}).status_code == 200

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def flood(service: Service) -> int:
    """Ask over and over on some connections; returns how often that was answered."""
    until, answered = time.monotonic() + SECONDS, [0] * CONNECTIONS

    def ask(number: int) -> None:
        with service.connect() as connection:
            while time.monotonic() < until:
                connection.sendall(PROBE)
                assert read_answer(connection).status_code == 200
                answered[number] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(answered)


def test_a_flood_of_probes_rests_beside_other_clients() -> None:
    """As that of any request that needs no model; a probe on a new connection goes first all the same."""
    with serve(processes=1) as service:
        alone = flood(service)
        with others(service):
            beside = flood(service)
            waited = []
            for _ in range(5):
                start = time.monotonic()
                with service.connect() as connection:
                    connection.sendall(PROBE)
                    assert read_answer(connection).status_code == 200
                waited.append(time.monotonic() - start)
    assert beside < alone / 2
    assert max(waited) < 1
