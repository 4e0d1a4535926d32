"""Whatever happens in the thread that runs batches, every request is answered: faults, memory, hanging."""

import asyncio
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from model.contract import Batch, Encoding, Output, Top, Want
from model.encoder.interventions import GradientPoint, HeadScale, Interventions, Side
from model.errors import InferenceError, OutOfMemory
from model.progress import Progress
from service.engine.queueing import WaitingQueue
from service.engine.runner import NOT_FINITE, STUCK, TOO_LARGE, is_finite
from service.lifecycle import STUCK_EXIT_CODE, VERSION, Phase, ServiceState
from service.protocols.endpoints import ENDPOINTS
from service.system.priority import lower_priority
from service.telemetry.metrics import Metrics
from tests.support.doubles import HANG, POISON, Hanging, Watched, engine
from tests.support.engines import SENTENCE, encode, perform, running, samples, words
from tests.support.serving import assert_problem, post, serve

pytestmark = pytest.mark.alone


class NotFinite(Watched):
    """Answers with a NaN where the others would fail."""

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        outputs = self.inner.run(batch, lanes=lanes, progress=progress)
        for start, output in zip(batch.cu_seqlens, outputs, strict=False):
            if output.sentence is not None and batch.input_ids[start + 1] == self.poison:
                output.sentence[3] = np.nan
        return outputs


class Small(Watched):
    """A device with memory for `room` tokens."""

    room = 40

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        if len(batch.input_ids) > self.room:
            self.batches.append([int(n) for n in np.diff(batch.cu_seqlens)])
            raise OutOfMemory("no memory is left")
        return super().run(batch, lanes=lanes, progress=progress)


class Dying(Watched):
    """Raises something that is no Exception, as a panic of a Rust library is none."""

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        if self.poison in batch.input_ids:
            raise SystemExit
        return self.inner.run(batch, lanes=lanes, progress=progress)


def failures(metrics: Metrics, reason: str) -> float:
    return samples(metrics)[f'headlight_inference_failures_total{{model="mini",reason="{reason}"}}']


def test_a_number_that_is_not_finite_fails_its_request_alone() -> None:
    """NaN in one output of a batch is that request's failure; the batch is not run again."""
    metrics = Metrics(VERSION, ENDPOINTS)
    backend = NotFinite()
    with running(engine(backend, metrics)) as made:

        async def work() -> list[object]:
            sent = [made.submit(encode(text), [SENTENCE]) for text in ("one", POISON, "three")]
            return await asyncio.gather(*sent, return_exceptions=True)

        first, poisoned, third = perform(work)
    assert isinstance(poisoned, InferenceError)
    assert str(poisoned) == NOT_FINITE
    assert not isinstance(first, BaseException)
    assert not isinstance(third, BaseException)
    assert failures(metrics, "not-finite") == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_each_array_of_an_output_is_looked_at(value: float) -> None:
    """One number anywhere is enough; large finite ones are fine, and in maps −inf, which is no score."""
    bad, good = np.ones((2, 3), np.float32), np.full((2, 3), 3e38, np.float32)
    bad[1, 2] = value
    keys = np.zeros((2, 3), np.int32)
    assert is_finite(Output(good, good, good, Top(keys, good, good), {"entropy": good}))
    assert not is_finite(Output(bad))
    assert not is_finite(Output(good, bad))
    of_map = value == -np.inf
    assert is_finite(Output(good, attention=bad)) == of_map
    assert is_finite(Output(good, thumbnails=bad)) == of_map
    assert is_finite(Output(good, top=Top(keys, bad, good))) == of_map
    assert is_finite(Output(good, top=Top(keys, good, bad))) == of_map
    assert not is_finite(Output(good, summary={"entropy": good, "self": bad}))
    assert not is_finite(Output(good, heads={"chunks": bad}))


def test_what_a_smaller_dtype_may_hide_is_told() -> None:
    """uint8 has no NaN: whoever rounded says whether there was one."""
    rounded = np.zeros((2, 3), np.uint8)
    assert is_finite(Output(attention=rounded))
    assert not is_finite(Output(attention=rounded, finite=False))


def test_without_memory_the_budget_is_halved_and_the_batch_run_in_parts() -> None:
    """Everybody is answered, later batches are smaller, and it is counted."""
    metrics, backend = Metrics(VERSION, ENDPOINTS), Small()
    backend.room = 1000
    with running(engine(backend, metrics, max_batch_tokens=100)) as made:
        backend.room = 40
        backend.forget()
        result = perform(lambda: made.submit([words(10)] * 10, [SENTENCE] * 10))
        assert len(result.outputs) == 10
        assert made.max_batch_tokens <= 50
        backend.forget()
        perform(lambda: made.submit([words(10)] * 10, [SENTENCE] * 10))
    assert max(sum(batch) for batch in backend.batches) <= 50
    assert failures(metrics, "out-of-memory") >= 1


def test_the_budget_counts_each_pass_of_what_was_too_large() -> None:
    """A gradient counts as three passes in a batch, and so where its batch is too large for the memory."""
    backend, gradient = Small(), replace(SENTENCE, gradient=GradientPoint((Side(5), Side(5))))
    backend.room = 1000
    with running(engine(backend, max_batch_tokens=100)) as made:
        backend.room = 20
        perform(lambda: made.submit([words(10)] * 3, [gradient] * 3))
        assert made.max_batch_tokens == 3 * 30 // 2


@pytest.mark.parametrize(
    ("want", "measured"),
    [
        (SENTENCE, True),
        (replace(SENTENCE, gradient=GradientPoint((Side(5), Side(5)))), False),
        (replace(SENTENCE, interventions=Interventions(heads=(HeadScale(0, (0,)),))), False),
    ],
)
def test_only_ordinary_passes_say_how_fast_the_model_is(want: Want, measured: bool) -> None:
    """Gradients take longer; sequences with interventions may share layers and take less."""
    backend = Small()
    backend.room = 1000
    with running(engine(backend, max_batch_tokens=1000)) as made:
        made._throughput.tokens_per_s = 1.0
        perform(lambda: made.submit([words(40)] * 20, [want] * 20))
        assert (made._throughput.tokens_per_s > 1) == measured


class Sharing(Watched):
    """Runs a quarter of the tokens of a batch, in `took` seconds at least."""

    took = 0.3

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        if progress is not None:
            progress.shared_tokens = len(batch.input_ids) * 3 // 4
            time.sleep(self.took)
        return super().run(batch, lanes=lanes, progress=progress)


def test_tokens_that_others_begin_with_make_the_model_no_faster() -> None:
    """What is measured is what all tokens would have taken: the next texts may share nothing."""
    backend = Sharing()
    with running(engine(backend, max_batch_tokens=1000)) as made:
        made._throughput.tokens_per_s = 0.0
        perform(lambda: made.submit([words(40)] * 20, [SENTENCE] * 20))
        tokens = sum(backend.batches[-1])
        assert 0 < made._throughput.tokens_per_s <= tokens * backend.inner.lanes / (4 * backend.took)


def test_a_text_too_long_for_the_memory_fails_alone() -> None:
    """A single sequence that does not fit is told so, and does not shrink the batches of others."""
    metrics, backend = Metrics(VERSION, ENDPOINTS), Small()
    backend.room = 1000
    with running(engine(backend, metrics, max_batch_tokens=100)) as made:
        backend.room = 40
        with pytest.raises(InferenceError, match=TOO_LARGE):
            perform(lambda: made.submit([words(60)], [SENTENCE]))
        assert made.max_batch_tokens == 100
        perform(lambda: made.submit([words(10)], [SENTENCE]))


def test_a_pass_that_hangs_fails_its_requests() -> None:
    """It is told once, its batch is not run again, late outputs change nothing, and the thread goes on."""
    metrics, backend = Metrics(VERSION, ENDPOINTS), Hanging()
    with running(engine(backend, metrics, stall_s=0.2)) as made:

        async def work() -> None:
            hung = asyncio.ensure_future(made.submit(encode(HANG), [SENTENCE]))
            await asyncio.sleep(0.05)
            waiting = asyncio.ensure_future(made.submit(encode("next"), [SENTENCE]))
            assert not made.supervise(), "not stuck yet"
            await asyncio.sleep(0.3)
            assert [made.supervise(), made.supervise()] == [True, False]
            with pytest.raises(InferenceError, match=STUCK):
                await hung
            backend.freed.set()
            assert len((await waiting).outputs) == 1
            assert len((await made.submit(encode("last"), [SENTENCE])).outputs) == 1

        perform(work)
    assert failures(metrics, "stuck") == 1


def test_a_text_without_tokens_fails_alone() -> None:
    """Some tokenizers make none of an empty text: the thread lives on, and counts nothing twice."""
    empty = Encoding([], [], [], [], [], [], truncated=False, original_length=0)
    with running(engine(Watched())) as made:

        async def work() -> None:
            with pytest.raises(InferenceError):
                await made.submit([empty, empty], [SENTENCE] * 2)
            await asyncio.sleep(0.05)
            assert not made.supervise()
            assert len((await made.submit(encode("next"), [SENTENCE])).outputs) == 1

        perform(work)


def test_a_heavy_batch_that_hangs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in a thread of lower priority, and the thread that waits for it hangs with it."""
    monkeypatch.setattr(WaitingQueue, "_yields", lambda *_: True)
    backend = Hanging()
    with running(engine(backend, stall_s=0.2)) as made:

        async def work() -> None:
            hung = asyncio.ensure_future(made.submit(encode(HANG), [SENTENCE]))
            await asyncio.sleep(0.3)
            assert made.supervise()
            with pytest.raises(InferenceError, match=STUCK):
                await hung
            backend.freed.set()
            async with asyncio.timeout(5):
                assert len((await made.submit(encode("next"), [SENTENCE])).outputs) == 1

        try:
            perform(work)
        finally:
            backend.freed.set()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a priority is that of a whole process")
@pytest.mark.parametrize("started_with", [0, 10, 18])
def test_a_heavy_batch_steps_back_from_where_the_process_is(started_with: int) -> None:
    """Also under `nice`: its priority is lowered and never raised, which only root may."""
    with ThreadPoolExecutor(1) as pool:

        def priority() -> int:
            return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

        def step_back() -> tuple[int, int]:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), max(started_with, priority()))
            before = priority()
            lower_priority(5)
            return before, priority()

        before, after = pool.submit(step_back).result()
    assert after == min(before + 5, 19)


def test_where_no_priority_may_be_changed_heavy_batches_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox may forbid it: then they run like all others, and do not fail."""

    def forbidden(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(WaitingQueue, "_yields", lambda *_: True)
    monkeypatch.setattr(os, "setpriority", forbidden)
    with running(engine(Watched())) as made:
        assert len(perform(lambda: made.submit(encode("a text"), [SENTENCE])).outputs) == 1


def test_nothing_that_a_pass_raises_ends_its_thread() -> None:
    """Whatever it raises, its batch is answered and the next one runs."""
    with running(engine(Dying())) as made:

        async def work() -> None:
            with pytest.raises(InferenceError):
                await made.submit(encode(POISON), [SENTENCE])
            await made.submit(encode("next"), [SENTENCE])

        perform(work)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_ended_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault outside of any pass may end it: a service that runs nothing must not seem ready."""
    with running(engine(Watched())) as made:

        async def work() -> None:
            assert not made.supervise()
            monkeypatch.delattr(WaitingQueue, "take")
            lost = asyncio.ensure_future(made.submit(encode("lost"), [SENTENCE]))
            await asyncio.sleep(0.2)
            assert made.supervise()
            assert not lost.done()
            lost.cancel()

        perform(work)
        made.close()
        assert not made.supervise(), "it was to end"


def test_a_thread_that_hangs_ends_the_process() -> None:
    """It cannot be stopped: the process takes no more work, and ends with a code of its own."""
    from service.settings import read_settings

    backend = Hanging()
    made = engine(backend, stall_s=0.05)
    state = ServiceState(
        read_settings(["mini=anywhere"]), ENDPOINTS, lambda _settings, _metrics: {"mini": made}
    )
    state.load()

    async def work() -> None:
        hung = asyncio.ensure_future(made.submit(encode(HANG), [SENTENCE]))
        await asyncio.sleep(0.02)
        state.supervise()
        phases = [state.phase]
        await asyncio.sleep(0.2)
        state.supervise()
        with pytest.raises(InferenceError):
            await hung
        assert [*phases, state.phase] == [Phase.READY, Phase.FAILED]

    perform(work)
    assert state.exit_code == STUCK_EXIT_CODE
    assert state.failure is not None
    backend.freed.set()
    state.close()


def test_a_service_that_hangs_ends_by_itself() -> None:
    """Over HTTP: the process ends with a code of its own, and says why."""
    with serve(module="tests.support.doubles", exit_code=STUCK_EXIT_CODE, request_timeout_s=0.5) as service:
        assert_problem(post(service, {"inputs": HANG}), 504, "deadline-exceeded")
        assert service.wait() == STUCK_EXIT_CODE
        assert "hung in a computation that cannot be stopped" in service.log
