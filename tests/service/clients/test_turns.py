"""Who has the event loop next, and for how long."""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable

import pytest

from service.clients.turns import TURN_S, Turns
from service.engine.permit import Permit
from tests.support.engines import perform


def busy(seconds: float) -> None:
    """Keep the event loop busy."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def step(log: list[str], name: str, seconds: float = 0.0002) -> Callable[[], None]:
    def run() -> None:
        log.append(name)
        busy(seconds)

    return run


async def drained(turns: Turns) -> None:
    while turns.waiting:
        await asyncio.sleep(0)


def test_what_finds_nothing_waiting_is_done_at_once() -> None:
    """A lone request costs no turn."""

    async def work() -> None:
        turns, log = Turns(), list[str]()
        turns.read("a", step(log, "read"))
        turns.begin("a", step(log, "begin"))
        assert log == ["read", "begin"]
        assert not turns.waiting

    perform(work)


def test_a_turn_is_short_however_much_waits() -> None:
    """Ten thousand steps at once leave the event loop to its timers between any few of them."""

    async def work() -> float:
        turns, log, late = Turns(), list[str](), list[float]()
        for i in range(2000):
            turns.read(f"client {i % 50}", step(log, "read"))
            turns.begin(f"client {i % 50}", step(log, "begin", 0.0))
        while turns.waiting:
            start = time.perf_counter()
            await asyncio.sleep(0)
            late.append(time.perf_counter() - start)
        assert len(log) == 4000
        return sorted(late)[len(late) // 2]

    assert perform(work) < 3 * TURN_S


def test_reading_and_beginning_share_the_turns() -> None:
    """A flood that is refused while it is read does not keep those that are served from being begun."""

    async def work() -> None:
        turns, log = Turns(), list[str]()
        for _ in range(500):
            turns.read("flood", step(log, "read"))
        for _ in range(20):
            turns.begin("served", step(log, "begin", 0.0))
        while log.count("begin") < 20:
            await asyncio.sleep(0)
        assert log.count("read") < 200
        await drained(turns)

    perform(work)


@pytest.mark.parametrize(("takes_s", "most"), [(None, 17), (0.002, 3), (0.1, 1)])
def test_no_more_requests_are_begun_in_a_turn_than_take_five_milliseconds(
    takes_s: float | None, most: int
) -> None:
    """As long as others took, or a third of a millisecond if none has ended; but one in any case."""

    async def work() -> None:
        turns, log = Turns(), list[str]()
        if takes_s is not None:
            turns.ended(Permit("a", queued=True), takes_s)
        for i in range(100):
            turns.begin(f"client {i}", step(log, "begin", 0.0))
        assert len(log) == most
        await asyncio.sleep(0)
        assert len(log) == 2 * most

    perform(work)


def test_the_client_that_has_used_the_loop_least_goes_first() -> None:
    """One with a single request does not wait behind the hundreds of another."""

    async def work() -> None:
        turns, log = Turns(), list[str]()
        for _ in range(300):
            turns.read("flood", step(log, "flood"))
        await asyncio.sleep(0)
        turns.read("polite", step(log, "polite"))
        before = len(log)
        await drained(turns)
        assert log.index("polite") - before <= 6

    perform(work)


def test_what_tasks_use_is_charged_too() -> None:
    """A client whose requests take long on the event loop waits for one whose requests take none."""

    async def costly() -> None:
        for _ in range(10):
            busy(0.02)
            await asyncio.sleep(0)

    async def work() -> None:
        turns, log = Turns(), list[str]()
        for _ in range(100):
            turns.read("other", step(log, "other"))
        await asyncio.ensure_future(turns.timed(Permit("costly", queued=True), costly()))
        for _ in range(10):
            turns.read("costly", step(log, "costly"))
        for _ in range(10):
            turns.read("cheap", step(log, "cheap"))
        await drained(turns)
        ends = Counter({name: i for i, name in enumerate(log)})
        assert ends["cheap"] < ends["costly"]

    perform(work)


def test_a_probe_goes_first_and_no_flood_of_probes_keeps_others_out() -> None:
    """One in each turn."""

    async def work() -> None:
        turns, log = Turns(), list[str]()
        for _ in range(100):
            turns.read("a", step(log, "read"))
        for _ in range(50):
            turns.probe("b", step(log, "probe"))
        await asyncio.sleep(0)
        first = log.index("probe")
        assert first < 10
        await drained(turns)
        assert log[: first + 10].count("probe") < 8

    perform(work)


def test_probes_are_fair_too() -> None:
    """One that sends thousands of probes does not hold up another's."""

    async def work() -> None:
        turns, log = Turns(), list[str]()
        for _ in range(1000):
            turns.probe("flood", step(log, "flood"))
        turns.charge("flood", 0.001)
        turns.probe("kubelet", step(log, "kubelet"))
        await drained(turns)
        assert log.index("kubelet") < 5

    perform(work)


def test_no_debt_outlives_an_idle_event_loop() -> None:
    """Once nothing waits, all are equal again, whichever was served last."""

    async def work() -> None:
        turns, log = Turns(), list[str]()
        turns.charge("heavy", 5.0)
        turns.charge("light", 0.001)
        for i in range(1000):
            turns.begin("heavy" if i % 2 else "newcomer", step(log, "heavy" if i % 2 else "newcomer"))
        await drained(turns)
        assert 4 <= log[:10].count("heavy") <= 6

    perform(work)


def test_a_step_that_fails_does_not_stop_the_turns() -> None:
    """Those that wait behind it have theirs."""

    async def work() -> None:
        turns, log, failed = Turns(), list[str](), list[object]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))

        def fail() -> None:
            raise ZeroDivisionError

        for _ in range(20):
            turns.read("a", step(log, "a", TURN_S))
        turns.read("a", fail)
        for _ in range(20):
            turns.read("a", step(log, "a"))
        await drained(turns)
        assert len(log) == 40
        assert len(failed) == 1

    perform(work)


def test_a_task_returns_and_raises_what_it_did() -> None:
    """To measure a coroutine changes nothing of it, its cancellation included."""

    async def answer() -> str:
        await asyncio.sleep(0)
        return "answer"

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("what happened")

    async def wait() -> None:
        await asyncio.sleep(10)

    async def work() -> None:
        turns = Turns()
        assert await asyncio.ensure_future(turns.timed(Permit("a", queued=True), answer())) == "answer"
        with pytest.raises(ValueError, match="what happened"):
            await asyncio.ensure_future(turns.timed(Permit("a", queued=True), fail()))
        task = asyncio.ensure_future(turns.timed(Permit("a", queued=True), wait()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    perform(work)


def test_the_wait_is_known_before_it_is_over() -> None:
    """By what requests have taken, and in equal shares: a client without any waits for one of each other."""

    async def costly() -> None:
        busy(0.004)

    async def work() -> None:
        turns = Turns()
        for _ in range(5):
            await asyncio.ensure_future(turns.timed(Permit("a", queued=True), costly()))
        assert turns.wait_s("a") == 0.0
        for _ in range(102):
            turns.begin("flood", lambda: None)
        assert turns.wait_s("flood") > 0.3
        assert turns.wait_s("polite") == pytest.approx(turns.wait_s("flood") / 100, rel=0.02)
        await drained(turns)

    perform(work)


def test_a_flood_of_addresses_is_forgotten() -> None:
    """Memory for clients is bounded by those that wait."""

    async def work() -> None:
        turns = Turns()
        for i in range(20_000):
            turns.charge(f"address {i}", 1e-6)
        assert len(turns._clients) <= 4096

    perform(work)


@pytest.mark.parametrize("yields", [True, False])
def test_a_crowded_loop_gives_way_to_threads_while_requests_are_served(yields: bool) -> None:
    """A thread that waits for the interpreter has it soon; later the interval is its own again."""

    async def work() -> None:
        turns, ended = Turns(yields=yields), asyncio.get_running_loop().create_future()
        usual = sys.getswitchinterval()
        served = asyncio.create_task(turns.timed(Permit("a", queued=True), asyncio.wait_for(ended, 20)))
        await asyncio.sleep(0)
        for _ in range(20):
            turns.read("b", step([], "read"))
        await asyncio.sleep(0)
        assert (sys.getswitchinterval() < usual) == yields
        await drained(turns)
        assert sys.getswitchinterval() == usual
        ended.set_result(None)
        await served
        for _ in range(20):
            turns.read("b", step([], "read"))
        await asyncio.sleep(0)
        assert turns.waiting
        assert sys.getswitchinterval() == usual
        await drained(turns)

    perform(work)
