"""Requests hold a bounded share of memory, and let go of it however they end."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from model.errors import ModelError
from service.engine.permit import Permit
from service.memory_limits import SMALL_BYTES, Memory, check_size, memory_given
from service.problems import Problem
from service.settings import Settings
from tests.support.control_groups import write_control_groups
from tests.support.serving import LONG, NPZ, Json, Service, assert_problem, post, request_bytes, serve

LARGE: Json = {"inputs": [LONG] * 2, "layers": [0, 1]}
"""12.6 MB as npz."""


MIB = 2**20


@pytest.fixture(scope="module")
def narrow() -> Iterator[Service]:
    """A service that has memory for some of these answers."""
    with serve(memory_bytes=800 * MIB) as started:
        yield started


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """256 MiB of a process of 16, 4 of them of files: 16 for short requests, 102.4 for all others."""
    monkeypatch.setattr("service.memory_limits.resident_bytes", lambda: 16 * MIB)
    monkeypatch.setattr("service.memory_limits.own_bytes", lambda: 12 * MIB)
    planned = Memory()
    planned.plan(256 * MIB)
    return planned


def test_models_that_do_not_fit_are_refused_by_the_limit_that_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting, or without one what the system gives; exactly as much as that is enough."""
    monkeypatch.setattr("service.memory_limits.memory_given", lambda: 512 * MIB)
    check_size(512 * MIB, Settings())
    with pytest.raises(ModelError, match=r"takes 536870913 bytes \(512 MiB\), but the memory limit"):
        check_size(512 * MIB + 1, Settings())
    check_size(1600 * MIB, Settings(memory_bytes=1600 * MIB))
    with pytest.raises(ModelError, match=r"\(1600 MiB\), but HEADLIGHT_MEMORY_BYTES is 1073741824"):
        check_size(1600 * MIB, Settings(memory_bytes=1024 * MIB))


def test_a_body_of_single_bytes_reads_the_resident_size_seldom(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a megabyte, or once in ten milliseconds; what was taken since the last reading counts."""
    readings: list[int] = []

    def read() -> int:
        readings.append(12 * MIB)
        return readings[-1]

    monkeypatch.setattr("service.memory_limits.own_bytes", read)
    monkeypatch.setattr("service.memory_limits.time.perf_counter", lambda: 1.0)
    request = Permit()
    assert memory.arrived(request, SMALL_BYTES // 2 + 1)
    for _ in range(10_000):
        assert memory.arrived(request, 1)
    assert len(readings) == 1
    assert memory.arrived(request, MIB)
    assert memory.arrived(request, 1)
    assert len(readings) == 2
    assert not memory.arrived(request, 240 * MIB), "more than the process has left"


def test_a_large_answer_counts_twice(memory: Memory) -> None:
    """Alone, any answer has room; beside others, only within the budget; what is held is given back once."""
    one, other = Permit(), Permit()
    memory.take_answer(one, memory.limit // 2)
    assert memory.bytes == 2 * (memory.limit // 2)
    with pytest.raises(Problem) as refused:
        memory.take_answer(other, SMALL_BYTES + 1)
    assert refused.value.headers["Retry-After"] == "2"
    assert 1000 <= int(refused.value.headers["retry-after-ms"]) <= 2000
    memory.take_answer(other, SMALL_BYTES)
    memory.release(other)
    memory.release(one)
    memory.release(one)
    assert memory.bytes == 0
    memory.take_answer(other, SMALL_BYTES + 1)


def test_the_budget_is_what_is_left_of_the_memory_of_the_process(memory: Memory) -> None:
    """Less a tenth, what the process has, what batches need, and the share of short requests."""
    assert memory.limit == int(0.9 * 256 * MIB) - (16 + 96 + 16) * MIB
    assert memory.largest_answer(64 * MIB) == memory.limit // 2
    assert memory.largest_answer(MIB) == MIB


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("given", [64, 256, 1000])
@pytest.mark.parametrize("size", [1, 40, 500])
def test_the_memory_that_is_missing_for_a_response_is_enough(given: int, size: int) -> None:
    """A process that is given so much more may answer with it; some megabytes less are too little."""

    def largest(more: int) -> tuple[int, int]:
        planned = Memory()
        planned.plan(given * MIB + more)
        return planned.largest_answer(size * MIB), planned.missing(size * MIB)

    found, missing = largest(0)
    assert (missing == 0) == (found == size * MIB)
    assert largest(missing)[0] >= size * MIB - 2
    if missing:
        assert largest(missing - 8 * MIB)[0] < size * MIB


def test_large_requests_share_the_budget_and_short_ones_have_more(memory: Memory) -> None:
    """The first large one is taken whatever it needs; the next when it fits; short ones long after that."""
    first, second, short = Permit(), Permit(), Permit()
    memory.take(first, 110 * MIB)
    with pytest.raises(Problem) as refused:
        memory.take(second, MIB)
    assert refused.value.kind == "overloaded"
    assert refused.value.members == {"limit": memory.limit, "actual": 111 * MIB}
    memory.take(short, SMALL_BYTES)
    with memory.tokenizing(short, 0):
        memory.release_part(first, 60 * MIB)
    memory.take(second, MIB)
    memory.release(first)
    memory.release(second)
    memory.release(short)
    assert memory.bytes == 0


def test_memory_that_no_request_holds_counts_against_large_ones(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What libraries keep is in use, too, also where no other request holds anything."""
    monkeypatch.setattr("service.memory_limits.own_bytes", lambda: 216 * MIB)
    with pytest.raises(Problem):
        memory.take(Permit(), 12 * MIB)
    memory.take(Permit(), 2 * MIB)
    with pytest.raises(Problem):
        memory.take(Permit(), 12 * MIB)
    memory.take(Permit(), SMALL_BYTES)


def test_files_that_are_read_while_serving_do_not_count(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system can take their pages back."""
    monkeypatch.setattr("service.memory_limits.resident_bytes", lambda: 1000 * MIB)
    with pytest.raises(Problem):
        memory.take(Permit(), 215 * MIB)
    memory.take(Permit(), 214 * MIB)


def test_a_text_that_no_budget_could_hold_is_refused(memory: Memory) -> None:
    """Also where nothing else is held: the largest request is always taken, but what it makes has a bound."""
    with memory.tokenizing(Permit(), memory.limit):
        pass
    with pytest.raises(Problem) as refused, memory.tokenizing(Permit(), 900 * 1_000_000):
        pass
    assert refused.value.kind == "input-too-long"
    assert refused.value.members == {
        "field": "inputs",
        "limit": memory.limit // 900,
        "actual": 1_000_000,
    }
    assert memory.bytes == 0


def test_a_body_without_room_is_dropped_and_its_request_refused(memory: Memory) -> None:
    """Every part of it after the first one that has no room, and the connection is closed."""
    held, body = Permit(), Permit()
    memory.take(held, 102 * MIB)
    assert memory.arrived(body, SMALL_BYTES // 2)
    assert not memory.arrived(body, MIB)
    memory.release(held)
    assert not memory.arrived(body, 1)
    with pytest.raises(Problem) as refused:
        memory.check_arrived(body)
    headers = dict(refused.value.headers)
    assert 1000 <= int(headers.pop("retry-after-ms")) <= 2000
    assert headers == {"Retry-After": "2", "Connection": "close"}


def test_a_client_that_holds_much_leaves_room_for_the_short_requests_of_others(memory: Memory) -> None:
    """Bodies that stand still, each a short one, fill all but the half of the share that is for others."""
    stalled: list[Permit] = []
    for size in (SMALL_BYTES // 2, 1024, 1):
        stalled.append(Permit(memory_client="10.0.0.1"))
        while memory.arrived(stalled[-1], size):
            stalled.append(Permit(memory_client="10.0.0.1"))
    other = Permit(memory_client="10.0.0.2")
    assert memory.arrived(other, 1000)
    memory.take(other, SMALL_BYTES // 2)
    for body in (*stalled, other):
        memory.release(body)
    assert memory.bytes == 0


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "1000", "memory.max": "2000"}, 1000),
        ("0::/", {"memory.max": "3000"}, 3000),
        ("0::/späti", {"späti/memory.max": "4000"}, 4000),
        ("0::/not/there", {"memory.max": "max"}, 8_000_000_000),
        ("4:memory:/pod", {"memory/pod/memory.limit_in_bytes": "500"}, 500),
        ("4:memory:/elsewhere", {"memory/memory.limit_in_bytes": "700"}, 700),
        ("4:cpu,memory:/pod\n0::/", {"memory/memory.limit_in_bytes": "9223372036854771712"}, 8_000_000_000),
    ],
)
def test_the_memory_given_is_the_smallest_limit(
    tmp_path: Path, cgroup: str, files: dict[str, str], expected: int
) -> None:
    """Of its group and those around it, in both versions of control groups, or else of the machine."""
    write_control_groups(tmp_path, cgroup, files)
    (tmp_path / "proc/meminfo").write_text("MemTotal:        7812500 kB\nMemFree: 1 kB\n")
    assert memory_given(tmp_path) == expected


def test_readers_that_do_not_read_cannot_hold_all_memory(narrow: Service) -> None:
    """At some time a large answer is refused, a short one is not; when the readers go there is room again."""
    readers = list[socket.socket]()
    status = b"200"
    while status == b"200":
        assert len(readers) < 20, "they hold more than the service may use"
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        reader.settimeout(20)
        reader.connect(("127.0.0.1", narrow.port))
        reader.sendall(request_bytes("/attention", json.dumps(LARGE).encode(), [f"Accept: {NPZ}"]))
        status = reader.recv(12).removeprefix(b"HTTP/1.1 ")
        readers.append(reader)
    assert status == b"429"
    assert len(readers) > 3, "several large answers have room"
    refused = post(narrow, LARGE, "/attention", Accept=NPZ)
    assert_problem(refused, 429, "overloaded")
    assert refused.headers["retry-after"] == "2"
    assert narrow.encode("short")["usage"]
    for reader in readers:
        reader.close()
    until = time.monotonic() + 20
    while (answer := post(narrow, LARGE, "/attention", Accept=NPZ)).status_code == 429:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert answer.status_code == 200
