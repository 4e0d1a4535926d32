"""A service of several processes is one service: its limits, metrics, drain, and the end of a worker."""

import os
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.doubles import DRAG, HANG
from tests.support.serving import (
    START_S,
    Service,
    answered,
    assert_problem,
    read_answer,
    request_bytes,
    run_command,
    serve,
)

pytestmark = pytest.mark.thorough

TEXT = {"inputs": "A man is playing a guitar."}
HANGING: dict[str, Any] = {"module": "tests.support.hanging_workers", "max_batch_tokens": 16}
"""A service that is slow at a word, and runs one text of a dozen tokens at a time."""
SLOW = {"inputs": [DRAG] * 8}
"""A request that takes it two seconds, or more."""
SLOWER = {"inputs": [f"{DRAG} {'word ' * 9}"] * 6}
"""One that takes six seconds, or more, however fast or slow the machine is."""

_PAUSE_S = 0.1
"""Of a longer pause of this process, so much counts."""


def workers(service: Service) -> list[int]:
    """The ids of the worker processes."""
    pid = service.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return sorted(int(child) for child in children if is_running(int(child)))


def connections(service: Service, pid: int) -> int:
    """How many connections of clients a worker holds."""
    established = set()
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if int(fields[1].partition(":")[2], 16) == service.port and fields[3] == "01":
            established.add(f"socket:[{fields[9]}]")
    held = 0
    with suppress(OSError):  # it has just ended
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                held += str(file.readlink()) in established
    return held


@contextmanager
def clients(service: Service, number: int, body: object = TEXT) -> Iterator[Counter[str]]:
    """Clients that each send without a pause on a kept connection; counts the ends of their requests."""
    ends: Counter[str] = Counter()
    stop, lock = threading.Event(), threading.Lock()

    def run() -> None:
        with service.new_client() as client:
            while not stop.is_set():
                try:
                    end = str(client.post("/encode", json=body).status_code)
                except httpx.TransportError:
                    end = "closed"
                with lock:
                    ends[end] += 1

    threads = [threading.Thread(target=run) for _ in range(number)]
    for thread in threads:
        thread.start()
    try:
        yield ends
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)


def wait_until(happened: Callable[[], object], service: Service, seconds: float = START_S) -> float:
    """Wait until something has happened; returns the seconds it took.

    While this process gets no turn, on a busy or a suspended machine, the service may get none either: of
    each such pause only the beginning counts in what is returned.
    """
    start = last = time.monotonic()
    took = 0.0
    while not happened():
        assert last - start < seconds, service.log
        time.sleep(0.01)
        now = time.monotonic()
        took, last = took + min(now - last, _PAUSE_S), now
    return took


def wait_for_end(service: Service) -> float:
    """Wait for the end of a service; returns the seconds, counted as `wait_until` does."""
    return wait_until(lambda: service.process.poll() is not None, service)


def wait_for_workers(service: Service, without: Sequence[int], number: int = 2) -> float:
    """Wait until there are all workers, and none of these; returns the seconds."""

    def replaced() -> bool:
        now = workers(service)
        return len(now) == number and not set(now) & set(without)

    return wait_until(replaced, service)


def is_running(pid: int) -> bool:
    """Whether a process has not ended; one not yet reaped has no command line."""
    with suppress(OSError):
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    return False


def is_listening(port: int) -> bool:
    """Whether a connection is accepted."""
    with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@contextmanager
def two_workers(**settings: object) -> Iterator[Service]:
    """Start a service of two processes; the one that answers while they start has ended."""
    with serve(processes=2, **settings) as service:  # type: ignore[arg-type]
        wait_for_workers(service, [])
        yield service


def wait_until_all_serve(service: Service) -> None:
    """Wait until each worker holds connections, and for some answers on them."""
    wait_until(lambda: all(connections(service, pid) for pid in workers(service)), service)
    time.sleep(0.3)


@pytest.fixture(scope="module")
def several() -> Iterator[Service]:
    """A service of two processes."""
    with two_workers(log_format="json") as started:
        yield started


def test_connections_are_spread_over_the_workers(several: Service) -> None:
    """Busy clients that keep their connections: after some seconds no worker has more than half, and one."""
    for number in (2, 9):
        with clients(several, number):

            def spread(most: int = -(-number // 2) + 1, number: int = number) -> bool:
                held = [connections(several, pid) for pid in workers(several)]
                return sum(held) >= number and max(held) <= most

            wait_until(spread, several)


def test_metrics_are_those_of_all_processes(several: Service) -> None:
    """Whichever worker is asked, each request counts once, and gauges are sums."""
    name = 'headlight_requests_total{kind="inference",route="/encode",status="200"}'
    before = several.metrics()[name]
    with clients(several, 6) as ends:
        time.sleep(1)
        several.wait_for_metric("headlight_requests_in_flight{}", 2)
    assert set(ends) == {"200"}
    # A worker counts what it has answered after it has: at the last answer it may be about to.
    wait_until(lambda: several.metrics()[name] - before >= ends["200"], several)
    wait_until(lambda: not several.metrics()["headlight_requests_in_flight{}"], several)
    for _ in range(4):
        with several.new_client() as other:
            text = other.get("/metrics").text
            assert "headlight_worker_exits_total" in text
        samples = several.metrics()
        assert samples[name] - before == ends["200"]
        assert samples["headlight_requests_in_flight{}"] == 0
        assert samples['headlight_queue_inputs{model="all-MiniLM-L6-v2"}'] == 0
        assert samples["headlight_ready{}"] == 1
        assert samples["process_resident_memory_bytes{}"] > 50e6
        assert not any("pid=" in sample for sample in samples)


def test_each_request_has_one_line_and_an_id_of_its_own(several: Service) -> None:
    """Workers do not give out the same ids."""
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: httpx.post(f"{several.url}/encode", json=TEXT), range(40)))
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(ids)) == 40
    for request_id in ids:
        several.line(request_id)


@pytest.mark.alone
def test_a_killed_worker_is_replaced_at_once_and_its_siblings_go_on() -> None:
    """`kill -9` under load: a client sees a 200 or a closed connection; the sums stay true."""
    kills = 6
    with two_workers() as service:
        with clients(service, 6) as ends:
            first = open_files(service)
            for _ in range(kills):
                wait_until_all_serve(service)
                victim = workers(service)[0]
                os.kill(victim, signal.SIGKILL)
                assert wait_for_workers(service, [victim]) < 1
            time.sleep(1)
        assert set(ends) <= {"200", "500", "closed"}, ends
        assert ends["200"] > 20
        assert ends["closed"] <= 6 * kills
        service.wait_until_ready()
        wait_until(lambda: not service.metrics()["headlight_requests_in_flight{}"], service)
        samples = service.metrics()
        assert samples['headlight_worker_exits_total{reason="died"}'] == kills
        counted = samples['headlight_requests_total{kind="inference",route="/encode",status="200"}']
        assert abs(counted - ends["200"]) <= 6 * kills, "at most what was on its way at a kill"
        assert samples["headlight_lost_requests_total{}"] <= ends["closed"]
        wait_until(lambda: open_files(service) <= first + 4, service)
        assert service.log.count("requests lost") == kills


def open_files(service: Service) -> int:
    """The open files of the supervisor."""
    return len(list(Path(f"/proc/{service.process.pid}/fd").iterdir()))


@pytest.mark.alone
def test_a_stopped_worker_is_replaced_after_five_seconds() -> None:
    """SIGSTOP: its siblings serve, and another process takes its place."""
    with two_workers() as service:
        victim = workers(service)[0]
        os.kill(victim, signal.SIGSTOP)
        for _ in range(10):
            answered(httpx.post(f"{service.url}/encode", json=TEXT, timeout=20))
        assert wait_for_workers(service, [victim]) < 10
        assert service.metrics()['headlight_worker_exits_total{reason="unresponsive"}'] == 1


def test_a_worker_whose_batch_never_ends_is_replaced() -> None:
    """Its request times out, the sibling serves meanwhile, and another process takes its place."""
    with two_workers(**HANGING, request_timeout_s=1) as service:
        first = workers(service)
        with service.new_client() as client:
            assert_problem(client.post("/encode", json={"inputs": HANG}), 504, "deadline-exceeded")
        until = time.monotonic() + 20
        while workers(service) == first or len(workers(service)) < 2:
            assert time.monotonic() < until
            ends = [httpx.post(f"{service.url}/encode", json=TEXT).status_code for _ in range(4)]
            assert 200 in ends, "at least the sibling's clients are answered"
        assert len(set(workers(service)) & set(first)) == 1
        service.wait_until_ready()
        assert service.metrics()['headlight_worker_exits_total{reason="hung"}'] == 1
        assert answered(httpx.post(f"{service.url}/encode", json=TEXT))


def test_workers_that_never_answer_end_the_service() -> None:
    """Killed again and again before they have served anything: exit code 70 and a sentence."""
    with two_workers(exit_code=70) as service:
        while service.process.poll() is None:
            with suppress(IndexError, OSError):
                os.kill(workers(service)[0], signal.SIGKILL)
            time.sleep(0.02)
        assert "5 worker processes in a row ended, and no request was answered in between" in service.log


def test_while_loading_it_says_so_and_keeps_the_connection() -> None:
    """The 503 of the start and the 200 after it come on one connection, from different processes."""
    with serve(processes=2, wait=False) as service:
        service.wait_until_listening()
        with ExitStack() as stack:
            kept = [stack.enter_context(service.connect(timeout=START_S)) for _ in range(8)]
            assert [readiness(connection) for connection in kept] == [503] * 8
            while True:
                with service.connect() as connection:
                    if readiness(connection) == 200:
                        break
                time.sleep(0.01)
            # Ready is ready, whoever answers, on new connections and on those from before.
            for _ in range(40):
                with service.connect() as connection:
                    assert readiness(connection) == 200
            assert [readiness(connection) for connection in kept] == [200] * 8
        assert service.log.count("ready: ") <= 2
        wait_until(lambda: len(workers(service)) == 2, service)


def readiness(connection: socket.socket) -> int:
    """Ask on a connection whether the service is ready; returns the status."""
    connection.sendall(request_bytes("/readyz", method="GET"))
    return read_answer(connection, "GET").status_code


def test_the_drain_is_one() -> None:
    """SIGTERM with requests in both workers: all are answered, one line says so, exit code 0."""
    with two_workers(**HANGING) as service, ThreadPoolExecutor(4) as pool:
        pending = [pool.submit(httpx.post, f"{service.url}/encode", json=SLOW, timeout=60) for _ in range(4)]
        service.wait_for_metric("headlight_requests_in_flight{}", 4)
        service.signal()
        wait_until(lambda: httpx.get(f"{service.url}/readyz").status_code == 503, service)
        assert_problem(httpx.get(f"{service.url}/readyz"), 503, "not-ready", phase="draining")
        for answer in pending:
            assert len(answered(answer.result(60))["data"]) == 8
        assert service.wait() == 0
        assert service.log.count("SIGTERM: draining for at most 30 s, requests in flight: 4") == 1
        assert len(re.findall(r"stopped after [\d.]+ s, requests cut off: 0\n", service.log)) == 1
        assert "Traceback" not in service.log


def test_a_second_signal_ends_all_processes() -> None:
    """Exit code 143, and no process is left."""
    with two_workers(**HANGING, exit_code=143) as service, ThreadPoolExecutor(2) as pool:
        left = workers(service)
        pending = pool.submit(httpx.post, f"{service.url}/encode", json=SLOWER, timeout=60)
        service.wait_for_metric("headlight_requests_in_flight{}", 1)
        service.signal()
        wait_until(lambda: "SIGTERM: draining" in service.log, service)
        time.sleep(0.7)  # two that come together count as one
        service.signal()
        assert service.wait() == 143
        assert "SIGTERM again: stopped at once, requests cut off: 1" in service.log
        with suppress(httpx.TransportError):
            pending.result(20)
        wait_until(lambda: not any(map(is_running, left)), service)


def test_no_worker_outlives_a_killed_supervisor() -> None:
    """They would hold the port and serve unwatched."""
    with two_workers(exit_code=-9) as service:
        left = workers(service)
        os.kill(service.process.pid, signal.SIGKILL)
        service.process.wait(10)
        wait_until(lambda: not any(map(is_running, left)), service)
        wait_until(lambda: not is_listening(service.port), service)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (["--device", "cuda"], "HEADLIGHT_PROCESSES is 2, but HEADLIGHT_DEVICE is cuda, and"),
        (["--processes", "0"], "0"),
        (["--model", "/nowhere"], "/nowhere"),
    ],
)
def test_what_cannot_work_ends_the_start(settings: list[str], why: str) -> None:
    """One sentence and an exit code, as with one process."""
    code, _, errors = run_command(*settings, processes=2, port=0)
    assert code == (1 if "--model" in settings else 2)
    sentences = [line for line in errors.splitlines() if line.startswith("headlight:")]
    assert len(sentences) == 1
    assert why in sentences[0]
