"""What cannot be answered in time is not begun, and what was accepted is answered in time."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from service.engine import engine as engine_module
from service.engine.admission import DeadlineTooShort, Demand, OverloadedError
from service.engine.jobs import Job, Waiting
from service.engine.permit import Permit
from service.engine.queueing import WaitingQueue
from service.engine.speed import Speed
from service.engine.throughput import Throughput
from service.lifecycle import VERSION
from service.protocols.endpoints import ENDPOINTS
from service.telemetry.metrics import Metrics
from tests.support.doubles import Watched, engine
from tests.support.engines import SENTENCE, hold, perform, running, words


def test_the_default_deadline_lets_the_longest_text_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute here; on a slow machine twice what the longest text takes, so that it is always taken."""
    with running(engine(Watched()), afresh=True) as made:
        assert made.timeout_s == 30
        assert 0 < made.longest_s < 15
    monkeypatch.setattr(engine_module, "measure_speed", lambda *_: Speed(0.1))
    with running(engine(Watched()), afresh=True) as made:
        assert made.longest_s == pytest.approx(25.6)
        assert made.timeout_s == pytest.approx(51.2)
        permit = Permit("a", within_s=made.timeout_s, until=time.perf_counter() + made.timeout_s)
        assert perform(lambda: made.submit([words(256)], [SENTENCE], permit))


def test_a_request_that_no_idle_service_could_answer_is_refused_before_it_runs() -> None:
    """With the number of its tokens, the time they take and the time there is."""
    backend = Watched()
    with running(engine(backend), afresh=True) as made:
        made._throughput.speed = Speed(0.1)

        async def work() -> None:
            permit = Permit("a", within_s=2.0, until=time.perf_counter() + 2.0)
            with pytest.raises(DeadlineTooShort) as refused:
                await made.submit([words(50)], [SENTENCE], permit)
            assert refused.value.tokens == 50
            assert refused.value.seconds == pytest.approx(10 / 3)
            assert refused.value.within_s == 2.0
            assert await made.submit([words(10)], [SENTENCE], permit)

        perform(work)
    assert [50] not in backend.batches


def test_a_request_that_would_be_late_behind_what_waits_is_refused() -> None:
    """With the time after which it should come back; a short one, which gets its share in time, is taken."""
    backend = Watched()
    with running(engine(backend), afresh=True) as made:
        made._throughput.speed = Speed(0.01)
        made._throughput.tokens_per_s = 100.0

        async def work() -> None:
            holder = await hold(made, backend)
            within = Permit("other", within_s=3.0, until=time.perf_counter() + 3.0)
            first = asyncio.ensure_future(made.submit([words(200)], [SENTENCE], Permit("first")))
            await asyncio.sleep(0.02)
            with pytest.raises(OverloadedError) as refused:
                await made.submit([words(200)], [SENTENCE], within)
            assert 0.5 < refused.value.retry().seconds < 5
            short = asyncio.ensure_future(made.submit([words(20)], [SENTENCE], within))
            await asyncio.sleep(0.02)
            assert not short.done()
            backend.gate.set()
            await asyncio.gather(holder, first, short)

        perform(work)


class Clocked:
    """A queue and a device in a time of their own, in which a token takes a millisecond."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, loop: asyncio.AbstractEventLoop) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        self.queue = WaitingQueue("mini", Metrics(VERSION, ENDPOINTS), Throughput(1024, 1000.0), 10**9)
        self.queue.timeout_s = 10.0
        self.late = list[float]()
        """By how much each request was late, negative if it was in time."""
        self.idle_s = 0.0
        self._loop = loop

    def send(self, client: str, texts: int, tokens: int) -> bool:
        """Send a request; whether it was taken."""
        done, until = self._loop.create_future(), self.now + self.queue.timeout_s
        job = Job([None] * texts, done, self.now, texts, until, client=client)
        text = words(tokens)
        try:
            self.queue.add([Waiting(job, i, text, SENTENCE, tokens, tokens / 1000) for i in range(texts)])
        except OverloadedError:
            return False
        return True

    def run(self, until: float) -> None:
        """Run batches until a time, or until nothing waits."""
        while self.now < until:
            batch, _ = self.queue.take(1024, sum)
            if not batch:
                self.idle_s += until - self.now
                self.now = until
            self.now += sum(waiting.seconds for waiting in batch)
            for waiting in batch:
                waiting.job.remaining -= 1
                if not waiting.job.remaining:
                    self.late.append(self.now - waiting.job.until)
            self.queue.finish(batch)


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clocked]:
    """A queue whose requests must be answered within ten seconds."""
    loop = asyncio.new_event_loop()
    yield Clocked(monkeypatch, loop)
    loop.close()


def test_equal_shares_make_no_client_late(clocked: Clocked) -> None:
    """Four seconds of one client's work, beside twenty clients that always have some.

    In equal shares it would need more than a minute, so it goes first when it would otherwise be late.
    """
    assert clocked.send("heavy", 20, 200)
    for second in range(60):
        for client in range(20):
            clocked.send(f"light {client}", 1, 200)
        clocked.run(1000.0 + second)
    clocked.run(clocked.now + 100)
    assert len(clocked.late) > 200
    assert max(clocked.late) <= 0


def test_light_clients_are_taken_beside_one_that_holds_all_of_the_time(clocked: Clocked) -> None:
    """An idle device took more than ten seconds of work: short texts run beside it for an eighth of these."""
    assert clocked.send("heavy", 100, 150)
    assert not clocked.send("another", 30, 100)
    taken = [clocked.send(f"light {number}", 1, 20) for number in range(100)]
    assert taken == [True] * 62 + [False] * 38
    began = clocked.now
    clocked.run(began + 4)
    assert len(clocked.late) == 62
    assert max(clocked.late) < -6


def test_whatever_is_taken_is_answered_in_time(clocked: Clocked) -> None:
    """At four times the load that can be answered, in requests of different sizes."""
    taken = refused = 0
    for quarter in range(240):
        for client, (texts, tokens) in enumerate([(1, 20), (16, 60), (4, 150), (30, 20), (4, 200)]):
            if clocked.send(f"client {client}", texts, tokens):
                taken += 1
            else:
                refused += 1
        clocked.run(1000.0 + quarter / 4)
    assert clocked.idle_s == 0
    clocked.run(clocked.now + 100)
    assert len(clocked.late) == taken
    assert max(clocked.late) <= 0
    assert refused > taken


def test_one_client_leaves_room_for_another(clocked: Clocked) -> None:
    """However much it sends, the device has work all the time, and another client's request is taken."""
    for tenth in range(300):
        while clocked.send("flood", 4, 200):
            pass
        assert clocked.queue.refusal(Demand("flood", 800, 0.8)) is not None
        assert clocked.queue.refusal(Demand("other", 800, 0.8)) is None
        clocked.run(1000.0 + tenth / 10)
    assert clocked.idle_s == 0
    assert max(clocked.late) <= 0
