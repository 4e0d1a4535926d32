"""Slow readers are served, readers that stand still are cut off, and both are told apart in the metrics."""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass

import pytest
import uvloop

from service.clients.slow_readers import Reader, Readers
from tests.support.serving import Json, Service, request_bytes, serve

pytestmark = pytest.mark.alone

TEXT = " ".join(["word"] * 250)
MAPS = json.dumps({"inputs": TEXT, "layers": [0, 1]}).encode()
"""Its answer has ten megabytes: more than the kernel takes of it."""
CUT = 'headlight_rejected_total{reason="slow-reader"}'
GONE = 'headlight_requests_total{kind="inference",route="/attention",status="499"}'
WHOLE = 'headlight_requests_total{kind="inference",route="/attention",status="200"}'
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
    assert "slow reader cut off: it has read nothing for 2 s" in hurried.log


def test_a_small_answer_of_a_still_reader_counts_as_cut_off(hurried: Service) -> None:
    """Also where the whole of it is written in one go: behind others, it finds no room."""
    idle(hurried)
    before = hurried.metrics()
    name = 'headlight_requests_total{kind="inference",route="/attention",status="%d"}'
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
    with serve(request_timeout_s=4, memory_bytes=700 * 2**20) as started:
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


def test_readers_that_take_long_make_room_for_others(narrow: Service) -> None:
    """Readers that use up the memory for answers, and go on reading, do not keep others out for ever."""
    before = narrow.metrics()[CUT]
    readers = list[socket.socket]()
    with ExitStack() as stack:
        status = b"200"
        while status != b"429":
            connection, status = ask_for_maps(narrow, stack)
            readers += [connection] if status == b"200" else []
            assert len(readers) < 12, "there is room for all"
            read_some(readers)
        until = time.monotonic() + 30
        while (status := ask_for_maps(narrow, stack)[1]) != b"200":
            assert status in (b"429", b"504")
            assert time.monotonic() < until, "there is no room again"
            read_some(readers)
            time.sleep(0.1)  # as fast as they can, some would be done before one is cut off
        assert narrow.metrics()[CUT] > before


async def watched(
    readers: Readers, listener: "Listener", *, rate: float, held: int, ended: list[str], name: str
) -> tuple[asyncio.Transport, asyncio.Task[None]]:
    """A connection on which megabytes wait, and whose client takes `rate` bytes per second."""
    loop = asyncio.get_running_loop()
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(0)
    await loop.sock_connect(client, listener.address)
    transport = await listener.accepted.get()

    def cut_off(why: str) -> None:
        ended.append(f"{name}: {why}")
        transport.abort()

    reader = Reader(transport, readers, patience_s=0.4, cut_off=cut_off, held_bytes=lambda: held)
    transport.write(bytes(8_000_000))
    reader.begin()
    reader.expect()

    async def read() -> None:
        with suppress(ConnectionError), closing(client):
            while rate and await loop.sock_recv(client, int(rate / 20)):
                await asyncio.sleep(0.05)
            await asyncio.sleep(30)

    return transport, asyncio.create_task(read())


class Accepting(asyncio.Protocol):
    """Hands a connection on."""

    def __init__(self, accepted: asyncio.Queue[asyncio.Transport]) -> None:
        self._accepted = accepted

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._accepted.put_nowait(transport)


@dataclass
class Listener:
    """Where connections come from, and those that have come."""

    address: tuple[str, int]
    accepted: asyncio.Queue[asyncio.Transport]


async def _slowest_first() -> list[str]:
    """Who is cut off, in order: by standing still, then for others' sake."""
    readers, ended, accepted = Readers(), list[str](), asyncio.Queue[asyncio.Transport]()
    server = await asyncio.get_running_loop().create_server(lambda: Accepting(accepted), "127.0.0.1", 0)
    listener = Listener(server.sockets[0].getsockname(), accepted)
    speeds = {"still": 0.0, "slow": 120_000.0, "slower": 60_000.0, "slowest, which holds nothing": 30_000.0}
    made = [
        await watched(readers, listener, rate=rate, held=int(rate != 30_000), ended=ended, name=name)
        for name, rate in speeds.items()
    ]
    readers.make_room()  # nobody takes long yet
    await asyncio.sleep(1.2)
    readers.make_room()
    await asyncio.sleep(0.3)
    for transport, task in made:
        transport.abort()
        task.cancel()
    server.close()
    return ended


def test_who_stands_still_is_cut_off_and_then_the_slowest_that_holds_memory() -> None:
    """Progress counts, by what the client's side has got; then the rate, among those that hold something."""
    still, slowest = uvloop.run(_slowest_first())
    assert still.startswith("still: it has read nothing for 0.4 s")
    assert slowest.startswith("slower: it read ")
