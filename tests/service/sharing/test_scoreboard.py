"""What the processes of a service share: numbers, limits, and connections that move between them."""

import os
import socket
import time
from collections.abc import Iterator

import pytest

from service.engine.admission import Demand, OverloadedError
from service.engine.lane_scheduler import LaneScheduler
from service.engine.permit import Permit
from service.engine.queueing import WaitingQueue
from service.engine.throughput import Throughput
from service.lifecycle import VERSION
from service.memory_limits import SMALL_BYTES, Memory
from service.problems import Problem
from service.protocols.endpoints import ENDPOINTS
from service.sharing.connections import Channel, Siblings
from service.sharing.metric_values import MetricValues
from service.sharing.scoreboard import CONNECTIONS, HEARTBEAT, LANES, OPENED, Scoreboard
from service.telemetry.metrics import Metrics

MODEL = "mini"


def queue(scoreboard: Scoreboard, slot: int, max_tokens: int = 1000) -> WaitingQueue:
    metrics = Metrics(VERSION, ENDPOINTS)
    return WaitingQueue(MODEL, metrics, Throughput(1024), max_tokens, counters=scoreboard.counters(slot))


def test_each_process_reads_what_the_others_wrote() -> None:
    """A counters is written by one process, also after a fork; clearing one leaves the others."""
    scoreboard = Scoreboard(3, [MODEL])
    scoreboard.counters(0).own[LANES] = 1
    if not (pid := os.fork()):
        scoreboard.counters(1).own[LANES] = 2
        scoreboard.counters(1).client_totals(MODEL).add("client", 7)
        os._exit(0)
    os.waitpid(pid, 0)
    assert scoreboard.counters(2).elsewhere(LANES) == 3
    assert scoreboard.counters(2).client_totals(MODEL).elsewhere == 7
    assert scoreboard.counters(2).client_totals(MODEL).elsewhere_of("client") == 7
    assert scoreboard.counters(2).client_totals().elsewhere == 0, "that is the totals of memory"
    scoreboard.clear(1)
    assert scoreboard.counters(2).elsewhere(LANES) == 1
    assert scoreboard.counters(2).client_totals(MODEL).elsewhere == 0


def test_a_client_has_one_share_of_the_queues_of_all_processes() -> None:
    """What a client waits for in one process counts in another; a newcomer still finds room."""
    scoreboard = Scoreboard(2, [MODEL])
    first, second = queue(scoreboard, 0), queue(scoreboard, 1)
    with first.reserve(Demand("heavy", 400, 0.0)):
        assert second.refusal(Demand("heavy", 50, 0.0)) is None
        with pytest.raises(OverloadedError) as refused, second.reserve(Demand("heavy", 200, 0.0)):
            pass
        assert refused.value.waiting == refused.value.client_tokens == 400
        assert refused.value.limit == 1000
        assert second.refusal(Demand("newcomer", 200, 0.0)) is None
    assert second.refusal(Demand("heavy", 1000, 0.0)) is None


def test_memory_is_limited_over_all_processes() -> None:
    """A large request is refused while another process holds the memory, and then admitted."""
    scoreboard = Scoreboard(2, [MODEL])
    first, second = (Memory(scoreboard.counters(slot)) for slot in range(2))
    first.plan(2**36)
    second.plan(2**38)
    assert first.limit == second.limit, "the first plan is that of all"
    permit, large = Permit(memory_client="a"), first.limit - SMALL_BYTES
    first.take(permit, large)
    with pytest.raises(Problem, match="memory"):
        second.take(Permit(memory_client="b"), 4 * SMALL_BYTES)
    second.take(Permit(memory_client="b"), 1000)
    first.release(permit)
    second.take(Permit(memory_client="b"), 4 * SMALL_BYTES)


def test_a_process_uses_the_cores_of_siblings_only_while_they_are_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own lane always; all lanes, and all cores for one batch, when no other process runs any."""
    now = time.monotonic_ns()
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)
    scoreboard = Scoreboard(2, [MODEL])
    here, there = (LaneScheduler(2, scoreboard.counters(slot)) for slot in range(2))
    assert [here.siblings_idle, here.allows(0), here.allows(1)] == [True, True, True]
    with there.turn("model"):
        assert [here.siblings_idle, here.shares] == [False, 2]
        assert here.allows(0)
        assert not here.allows(1)
    assert [here.siblings_idle] == [False], "it is likely to go on at once"
    now += 20_000_000
    assert [here.siblings_idle] == [True]
    with there.turn("model", express=True):
        assert here.siblings_idle, "express batches are short, and run beside others anyway"


@pytest.fixture
def channel() -> Iterator[Channel]:
    made = Channel()
    with made.entrance, made.exit:
        yield made


def siblings(scoreboard: Scoreboard, counts: list[int]) -> list[Siblings]:
    channels: list[Channel] = []
    values = MetricValues(len(counts))
    made = [Siblings(scoreboard.counters(slot), channels, values) for slot in range(len(counts))]
    for sibling, count in zip(made, counts, strict=True):
        sibling.counters.own[CONNECTIONS] = count
        sibling.counters.own[HEARTBEAT] = time.monotonic_ns()
    return made


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([2, 0], [1]),
        ([1, 0], []),
        ([3, 2], []),
        ([200, 0], [1] * 100),
        ([4, 0, 0], [1, 2]),
        ([0, 5], []),
        ([7, 1, 1], [1, 1, 2, 2]),
    ],
)
def test_connections_move_to_siblings_with_fewer(counts: list[int], expected: list[int]) -> None:
    """The surplus over the mean, rounded up, is spread over those below it."""
    first = siblings(Scoreboard(len(counts), [MODEL]), counts)[0]
    assert sorted(first.surplus(counts[0])) == expected


def test_nothing_moves_to_a_process_that_is_not_ready() -> None:
    """A worker that still starts, or has ended, has no heartbeat; that of one that stands still is old."""
    scoreboard = Scoreboard(2, [MODEL])
    first, second = siblings(scoreboard, [4, 0])
    for beat in (0, time.monotonic_ns() - 10**9):
        second.counters.own[HEARTBEAT] = beat
        assert first.surplus(4) == []


def test_nobody_counts_the_placeholder() -> None:
    """What it holds while the workers start is not theirs."""
    scoreboard = Scoreboard(2, [MODEL])
    spare = scoreboard.spare_counters()
    spare.own[LANES] = 5
    spare.client_totals(MODEL).add("client", 7)
    scoreboard.counters(0).own[LANES] = 1
    assert [scoreboard.counters(slot).elsewhere(LANES) for slot in range(2)] == [0, 1]
    assert scoreboard.counters(0).client_totals(MODEL).elsewhere == 0
    assert not scoreboard.counters(0).common[OPENED]


def test_a_connection_arrives_as_it_was(channel: Channel) -> None:
    """What the client sent before the move is read after it, by the new process."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"early")
        assert channel.send(ours)
    (arrived,) = channel.receive()
    with arrived:
        assert arrived.recv(10) == b"early"
    assert channel.receive() == []


def test_a_full_channel_takes_no_more(channel: Channel) -> None:
    """The connection then stays where it is."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sent = 0
        while channel.send(ours):
            sent += 1
            assert sent < 100_000
        assert sent >= 10
        received = 0
        while arrived := channel.receive():
            received += len(arrived)
            for each in arrived:
                each.close()
        assert received == sent
