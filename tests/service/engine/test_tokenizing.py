"""Requests take turns at being tokenized: a long text holds nobody up, and stops when nobody waits for it."""

import asyncio
import json
import socket
import statistics
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pytest

from model.errors import InferenceError
from service.engine.tokenizing import TURN_S, Tokenizing
from tests.support.serving import Service, assert_problem, post, request_bytes

pytestmark = pytest.mark.alone

SLOW = ("z" * 99 + "q ") * 19_000
"""Ten seconds of work for the tokenizer."""
ORDINARY = {"inputs": ["An ordinary text. " * 6] * 18}


def seconds(service: Service, times: int) -> list[float]:
    """How long an ordinary request of two kilobytes takes."""
    taken = []
    with service.new_client() as client:
        for _ in range(times):
            start = time.perf_counter()
            assert client.post("/encode", json=ORDINARY).status_code == 200
            taken.append(time.perf_counter() - start)
    return taken


def test_a_text_that_takes_ten_seconds_holds_nobody_up(plain: Service) -> None:
    """Beside it an ordinary request takes little longer; and when its client goes, the work ends."""
    alone = statistics.median(seconds(plain, 10))
    with plain.connect() as connection:
        connection.sendall(request_bytes(body=json.dumps({"inputs": SLOW}).encode()))
        time.sleep(0.3)
        beside = seconds(plain, 10)
        assert statistics.median(beside) < 3 * alone + 0.05
        connection.setblocking(False)  # noqa: FBT003
        with pytest.raises(BlockingIOError):
            connection.recv(1)  # it is not answered yet
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    # The client has gone: what is left of its text is not tokenized.
    used = cpu_seconds(plain)
    time.sleep(1)
    assert cpu_seconds(plain) - used < 0.5


def test_a_text_whose_time_is_over_is_not_tokenized_to_its_end(plain: Service) -> None:
    """The 504 comes in time, and the work ends."""
    start = time.perf_counter()
    assert_problem(post(plain, {"inputs": SLOW}, X_Request_Timeout_Ms="500"), 504, "deadline-exceeded")
    assert time.perf_counter() - start < 3
    used = cpu_seconds(plain)
    time.sleep(1)
    assert cpu_seconds(plain) - used < 0.5


def cpu_seconds(service: Service) -> float:
    return service.metrics()["process_cpu_seconds_total{}"]


def steps(count: int, order: list[str], name: str) -> Generator[None, None, str]:
    for _ in range(count):
        time.sleep(TURN_S)
        order.append(name)
        yield
    return name


def test_what_has_just_come_goes_first() -> None:
    """A short request is done before a long one goes on; every second turn goes on with a long one."""

    async def run() -> None:
        tokenizing, order = Tokenizing("test"), list[str]()
        try:
            long = asyncio.create_task(tokenizing.run(steps(30, order, "long")))
            other = asyncio.create_task(tokenizing.run(steps(30, order, "other")))
            await asyncio.sleep(10 * TURN_S)
            assert await tokenizing.run(steps(1, order, "short")) == "short"
            assert {"long", "other"} <= set(order[:6])
            other.cancel()
            assert await long == "long"
            assert order.count("other") < 30
        finally:
            tokenizing.close()

    asyncio.run(run())


def test_first_come_is_first_finished() -> None:
    """Of a client's long texts one after the other is finished, so that those that can be in time are."""

    async def run() -> None:
        tokenizing, order, ends = Tokenizing("test"), list[str](), list[str]()

        async def one(name: str) -> None:
            ends.append(await tokenizing.run(steps(60, order, name), "client"))

        try:
            await asyncio.gather(*(one(f"text {i}") for i in range(6)))
            assert ends == [f"text {i}" for i in range(6)]
            assert order.index("text 5") < 12, "each began at once"
        finally:
            tokenizing.close()

    asyncio.run(run())


def test_the_clients_share_the_time() -> None:
    """One with a single long text does not wait for the ten of another that came before it."""

    async def run() -> None:
        tokenizing, order = Tokenizing("test"), list[str]()
        try:
            flood = [
                asyncio.create_task(tokenizing.run(steps(20, order, "flood"), "flood")) for _ in range(10)
            ]
            await asyncio.sleep(12 * TURN_S)
            await tokenizing.run(steps(20, order, "other"), "other")
            assert order.count("flood") < 80
            for task in flood:
                task.cancel()
        finally:
            tokenizing.close()

    asyncio.run(run())


def test_the_wait_is_known_from_the_bytes_that_are_left() -> None:
    """Nothing is known at first, and nothing is in the way of a lone request."""

    async def run() -> None:
        tokenizing, order = Tokenizing("test"), list[str]()
        try:
            assert tokenizing.wait_s("a", 10**9) == 0.0
            await tokenizing.run(steps(10, order, "measured"), "a", 10_000)
            assert tokenizing.wait_s("a", 10**9) == 0.0
            long = [asyncio.create_task(tokenizing.run(steps(40, order, "x"), "a", 40_000)) for _ in range(3)]
            await asyncio.sleep(0)
            each = 40 * TURN_S
            assert tokenizing.wait_s("a", 40_000) > 3 * each
            assert each < tokenizing.wait_s("b", 40_000) < 3.5 * tokenizing.wait_s("b", 10_000) + 2 * each
            for task in long:
                task.cancel()
        finally:
            tokenizing.close()

    asyncio.run(run())


def test_the_request_of_a_step_that_hangs_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told once, and should the step end after all, the thread goes on with the others."""
    later, real = 0.0, time.perf_counter
    monkeypatch.setattr("service.engine.tokenizing._STALL_S", 20.0)
    monkeypatch.setattr(time, "perf_counter", lambda: real() + later)
    freed = threading.Event()

    def hang() -> Generator[None, None, None]:
        freed.wait(20)
        yield

    async def run() -> None:
        nonlocal later
        tokenizing, order = Tokenizing("test"), list[str]()
        try:
            hung = asyncio.create_task(tokenizing.run(hang()))
            await asyncio.sleep(0.02)
            next_one = asyncio.create_task(tokenizing.run(steps(2, order, "next")))
            await asyncio.sleep(0.02)
            assert not tokenizing.supervise()
            assert not tokenizing.supervise(stopped_s=5.0), "the whole process was stopped"
            later = 22.0
            assert not tokenizing.supervise()
            later = 50.0
            assert [tokenizing.supervise(), tokenizing.supervise()] == [True, False]
            with pytest.raises(InferenceError, match="tokenized in time"):
                await hung
            freed.set()
            assert await next_one == "next"
            assert await tokenizing.run(steps(1, order, "last")) == "last"
        finally:
            freed.set()
            tokenizing.close()

    asyncio.run(run())


def test_many_texts_of_many_clients_are_all_answered(plain: Service) -> None:
    """Turns lose and mix nothing."""
    bodies = [{"inputs": [f"text {i} " * (10 + 700 * (i % 3)), f"{i}"]} for i in range(24)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda body: post(plain, body).json(), bodies))
    for i, answer in enumerate(answers):
        lengths = [item["original_length"] for item in answer["data"]]
        assert lengths[0] == 2 + (2 if i < 1000 else 3) * (10 + 700 * (i % 3))
        assert answer["data"][1]["tokens"] == ["[CLS]", str(i), "[SEP]"]
