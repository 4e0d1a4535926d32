"""Short texts of clients that have the service to themselves run on the event loop."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from model.choices import ContributionsWant
from model.contract import AttentionWant, Batch, Output, SparseWant, Want
from model.encoder.interventions import GradientPoint, Side
from model.errors import InferenceError
from model.progress import Progress
from service.clients.recent_connections import FEW, RecentConnections
from service.engine.engine import Engine, Result
from service.engine.lane_scheduler import LaneScheduler
from service.engine.permit import Permit
from service.lifecycle import VERSION
from service.protocols.endpoints import ENDPOINTS
from service.sharing.scoreboard import LANES, Scoreboard
from service.telemetry.metrics import Metrics
from tests.support.doubles import POISON, Watched, engine
from tests.support.engines import SENTENCE, encode, hold, perform, running, samples, words
from tests.support.kernel import needs_kernels
from tests.support.serving import START_S, serve

AMONG_FEW = Permit(only_connection=True, few_connections=True)
FAST = 20_000.0  # tokens per second: 60 in the time that others may wait


class Placed(Watched):
    """Records on which thread each batch ran."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []
        self.lanes_used: list[int] = []
        self.ended = 0

    def end_helpers(self) -> None:
        self.ended += 1
        super().end_helpers()

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        self.threads.append(threading.get_ident())
        self.lanes_used.append(lanes)
        return super().run(batch, lanes=lanes, progress=progress)


class Unfinished(Placed):
    """Answers with a NaN where the others would fail."""

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        self.poison, poison = -1, self.poison
        outputs = super().run(batch, lanes=lanes, progress=progress)
        self.poison = poison
        if poison in batch.input_ids and outputs[0].sentence is not None:
            outputs[0].sentence[3] = np.nan
        return outputs


class Unprepared(Placed):
    """Says that it prepares nothing."""

    @property
    def prepares_short(self) -> bool:
        return False


def ask(
    made: Engine, *texts: str, want: Want = SENTENCE, permit: Permit = AMONG_FEW, rate: float = FAST
) -> Result:
    """Submit one request to an engine that measured this rate, once the device is idle."""
    while made._scheduler.demand:
        time.sleep(0.001)
    made._throughput.tokens_per_s = rate
    encodings = encode(*texts)
    result: Result = perform(lambda: made.submit(encodings, [want] * len(encodings), permit))
    return result


@needs_kernels
def test_a_short_text_of_few_clients_runs_on_the_event_loop() -> None:
    """It does not change threads, its vector is the same to the last bit, and it counts like any other."""
    metrics, backend = Metrics(VERSION, ENDPOINTS), Placed()
    with running(engine(backend, metrics)) as made:
        handed = ask(made, "a short text", permit=Permit())
        before = samples(metrics)
        backend.threads.clear()
        once = ask(made, "a short text")
        after = samples(metrics)
        assert made.idle_since is not None
    assert backend.threads == [threading.get_ident()]
    for one, other in zip(once.outputs, handed.outputs, strict=True):
        assert one.sentence is not None
        assert other.sentence is not None
        assert (one.sentence == other.sentence).all()
    assert once.queue_s == 0 < once.compute_s
    for name in ("headlight_batches_total", "headlight_batch_tokens_count"):
        assert after[f'{name}{{model="mini"}}'] == before[f'{name}{{model="mini"}}'] + 1
    for stage in ("queue", "compute"):
        counted = f'headlight_stage_duration_seconds_count{{model="mini",stage="{stage}"}}'
        assert after[counted] == before[counted] + 1


@needs_kernels
@pytest.mark.parametrize("case", ["company", "long", "slow", "maps", "gradient", "over the budget"])
def test_everything_else_is_handed_to_a_runner(case: str) -> None:
    """What others would wait for, and what takes more than a pass."""
    gradient = replace(SENTENCE, gradient=GradientPoint((Side(2), Side(2))))
    wants = {"maps": Want(attention=AttentionWant((0,), (0,))), "gradient": gradient}
    backend = Placed()
    with running(engine(backend, max_batch_tokens=16 if case == "over the budget" else 1024)) as made:
        backend.threads.clear()
        ask(
            made,
            "a text " * (2000 if case == "long" else 10 if case == "over the budget" else 1),
            want=wants.get(case, SENTENCE),
            permit=Permit(few_connections=case != "company"),
            rate=100.0 if case == "slow" else FAST,
        )
    assert backend.threads
    assert threading.get_ident() not in backend.threads


@needs_kernels
def test_a_few_numbers_of_a_pass_run_on_the_event_loop_too() -> None:
    """What each token adds to the vector, as for an explanation, but not the weights of all words."""
    backend, want = Placed(), replace(SENTENCE, heads=(ContributionsWant(),))
    with running(engine(backend)) as made:
        handed = ask(made, "a short text", want=want, permit=Permit())
        backend.threads.clear()
        once = ask(made, "a short text", want=want)
        assert made._inline.run([words(5)], [Want(heads=(SparseWant(),))]) is None
    assert backend.threads == [threading.get_ident()]
    first, other = (result.outputs[0].heads["contributions"] for result in (once, handed))
    assert (first == other).all()


@needs_kernels
def test_what_is_not_prepared_is_handed_to_a_runner() -> None:
    """Not even a text without tokens runs on the event loop."""
    with running(engine(Unprepared())) as made:
        assert made._inline.run([replace(words(5), token_ids=[])], [SENTENCE]) is None


@needs_kernels
def test_a_text_waits_while_another_runs() -> None:
    """The event loop never waits for the scheduler."""
    backend = Placed()
    with running(engine(backend)) as made:

        async def work() -> None:
            holder = await hold(made, backend)
            made._throughput.tokens_per_s = FAST
            start = time.perf_counter()
            assert made._inline.run([words(5)], [SENTENCE]) is None
            assert time.perf_counter() - start < 1
            backend.gate.set()
            await holder

        perform(work)


@needs_kernels
def test_the_threads_that_help_end_when_a_runner_gets_the_work_of_others() -> None:
    """Once; with others there would be more threads than cores."""
    backend = Placed()
    with running(engine(backend)) as made:
        ask(made, "a short text", permit=Permit())
        assert backend.ended == 0
        ask(made, "a short text")
        assert backend.ended == 0
        for _ in range(2):
            ask(made, "a short text", permit=Permit())
            assert backend.ended == 1


@needs_kernels
@pytest.mark.parametrize(("kind", "reason"), [(Placed, "exception"), (Unfinished, "not-finite")])
def test_what_fails_is_left_to_a_runner(kind: type[Placed], reason: str) -> None:
    """It is run once more, fails as it would have failed there, and is counted once; the next one runs."""
    metrics, backend = Metrics(VERSION, ENDPOINTS), kind()
    with running(engine(backend, metrics)) as made:
        backend.threads.clear()
        with pytest.raises(InferenceError):
            ask(made, POISON)
        assert backend.threads[0] == threading.get_ident() != backend.threads[1]
        assert samples(metrics)[f'headlight_inference_failures_total{{model="mini",reason="{reason}"}}'] == 1
        backend.threads.clear()
        ask(made, "fine")
    assert backend.threads == [threading.get_ident()]


def no_helpers() -> None:
    """End no threads: none were started."""


def test_no_turn_at_once_beside_another_of_the_process() -> None:
    """Whatever other processes do."""
    scheduler = LaneScheduler(2)
    turn = scheduler.try_turn("a", 1, no_helpers)
    assert turn is not None
    assert scheduler.try_turn("b", 1, no_helpers) is None
    scheduler.release(turn)
    assert scheduler.demand == 0
    scoreboard = Scoreboard(2, ["mini"])
    one, other = LaneScheduler(2, scoreboard.counters(0)), scoreboard.counters(1).own
    other[LANES] = 1
    assert one.try_turn("a", 1, no_helpers) is not None
    assert scoreboard.counters(0).own[LANES] == 1


@needs_kernels
def test_a_pass_at_once_leaves_other_processes_their_cores() -> None:
    """It runs on all cores only if they do not run, and on fewer, fewer tokens are brief."""
    backend, scoreboard = Placed(), Scoreboard(2, ["mini"])
    with running(engine(backend)) as made:
        made._inline.scheduler = LaneScheduler(1, scoreboard.counters(0))
        made._throughput.tokens_per_s = FAST
        backend.lanes_used.clear()
        for tokens, others_run, taken in ((50, 0, True), (50, 1, False), (25, 1, True)):
            scoreboard.counters(1).own[LANES] = others_run
            assert (made._inline.run([words(tokens)], [SENTENCE]) is not None) == taken
    assert backend.lanes_used == [1, 2]


class Connection:
    """Anything that has an identity."""


def test_connections_are_in_use_for_a_tenth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a few are not told apart."""
    now = 50.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    company, one, two, three, four = RecentConnections(), *(Connection() for _ in range(4))
    assert [company.note(each) for each in (one, one, two, one, two)] == [1, 1, 2, 2, 2]
    now += 0.05
    assert [company.note(each) for each in (three, four, one)] == [3, 3, 3]
    now += 0.06
    assert company.note(one) == FEW + 1, "three and four are still in use"
    now += 0.05
    assert [company.note(each) for each in (one, two)] == [1, 2]


def test_connections_that_are_closed_were_in_use() -> None:
    """A client that opens one for each request may be many."""
    company = RecentConnections()
    assert [company.note(Connection()) for _ in range(4)] == [1, 2, 3, 3]


@pytest.mark.alone
@needs_kernels
def test_requests_of_one_connection_stop_waiting_in_the_queue() -> None:
    """Over HTTP, with the service's own measurements: the queue adds nothing to such a request."""
    waited = 'headlight_stage_duration_seconds_sum{model="all-MiniLM-L6-v2",stage="queue"}'
    with serve(processes=1, dtype="float32") as service:
        service.encode(["word"])
        until = time.monotonic() + START_S
        gained = 1.0
        while gained and time.monotonic() < until:
            before = service.metrics()[waited]
            service.encode(["word"])
            gained = service.metrics()[waited] - before
        assert gained == 0
