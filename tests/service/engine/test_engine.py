"""The engine: many clients, one queue, one worker, and every request answered once."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Sequence
from typing import Any

import numpy as np
import pytest

from model.contract import AttentionWant, Output, Want
from model.errors import InferenceError
from model.tokenization.tokenizer import Truncation
from service.engine.admission import OverloadedError
from service.engine.engine import Engine, Result
from service.engine.lane_scheduler import LaneScheduler
from service.protocols.endpoints import ENDPOINTS
from service.telemetry.metrics import Metrics
from tests.support.doubles import POISON, Exclusive, Watched, engine
from tests.support.engines import (
    SENTENCE,
    alive,
    encode,
    hold,
    perform,
    running,
    samples,
    submit,
    until,
    words,
)
from tests.support.product import minilm, run

MAPS = Want(attention=AttentionWant((0, 5), (0, 3)))


def assert_equal_outputs(some: Sequence[Output], others: Sequence[Output]) -> None:
    for one, other in zip(some, others, strict=True):
        for a, b in ((one.sentence, other.sentence), (one.attention, other.attention)):
            assert (a is None) == (b is None)
            if a is not None and b is not None:
                assert np.abs(a - b).max() <= 2e-6


def test_outputs_come_back_in_the_order_of_the_request() -> None:
    """Each sequence gets its own output, with the real backend, whatever the lengths."""
    encodings = encode("one", "a longer text with more words", "", "two words", "one")
    with running(engine(minilm(), max_batch_tokens=12)) as made:
        result = perform(lambda: made.submit(encodings, [SENTENCE, MAPS, SENTENCE, MAPS, SENTENCE]))
    expected = [
        run(minilm(), [e], [w])[0]
        for e, w in zip(encodings, [SENTENCE, MAPS, SENTENCE, MAPS, SENTENCE], strict=True)
    ]
    assert_equal_outputs(result.outputs, expected)


def test_tokenizing_happens_off_the_event_loop() -> None:
    """Other requests go on while a large one is tokenized."""
    with running(engine(minilm())) as made:

        async def work() -> int:
            turns, texts = 0, ["some words " * 500] * 100
            task = asyncio.ensure_future(made.tokenize(texts, Truncation(), ""))
            while not task.done():
                turns += 1
                await asyncio.sleep(0)
            encodings, seconds = await task
            assert len(encodings) == 100
            assert seconds > 0
            return turns

        assert perform(work) > 5


def test_what_waits_is_run_as_one_batch() -> None:
    """Requests that wait while the worker is busy share the next batch, both routes' wants in one run."""
    backend = Watched()
    with running(engine(backend)) as made:

        async def work() -> None:
            holder = await hold(made, backend)
            tasks = [submit(made, encode("for encode", "two")), submit(made, encode("for attention"), MAPS)]
            tasks += [submit(made, encode("another")), submit(made, encode("and maps again"), MAPS)]
            await asyncio.sleep(0.05)
            backend.gate.set()
            results = [await task for task in (holder, *tasks)]
            assert all(o.attention is None for r in (results[1], results[3]) for o in r.outputs)
            assert all(o.sentence is None for r in (results[2], results[4]) for o in r.outputs)
            assert results[2].outputs[0].attention is not None

        perform(work)
    assert [len(batch) for batch in backend.batches] == [1, 5]
    assert backend.wants == [0, 2]


def test_a_lone_request_does_not_wait_for_company() -> None:
    """An idle worker begins at once; there is no timer."""
    with running(engine(minilm())) as made:
        waits = [perform(lambda: made.submit(encode("alone"), [SENTENCE])).queue_s for _ in range(20)]
    assert min(waits) < 0.005


def test_a_request_may_be_spread_over_batches() -> None:
    """More texts than one batch takes are run in several, within the budget, gaps filled by later ones."""
    backend = Watched()
    with running(engine(backend, max_batch_tokens=64)) as made:
        encodings = [words(n) for n in (10, 30, 20, 30, 100, 10, 60, 3)]
        result = perform(lambda: made.submit(encodings, [SENTENCE] * len(encodings)))
    assert backend.batches == [[10, 30, 20, 3], [30, 10], [100], [60]]
    assert_equal_outputs(result.outputs, run(minilm(), encodings, [SENTENCE] * len(encodings)))


def test_a_small_request_is_not_held_up_by_what_follows_it() -> None:
    """Sequences are taken in the order they came: a flood behind a request does not delay it."""
    backend = Watched()
    with running(engine(backend, max_batch_tokens=64)) as made:

        async def work() -> None:
            await hold(made, backend)
            small = submit(made, [words(10)])
            flood = submit(made, [words(50)] * 20)
            small.add_done_callback(lambda _: ended.append("small"))
            flood.add_done_callback(lambda _: ended.append("flood"))
            await asyncio.sleep(0.02)
            backend.gate.set()
            await asyncio.gather(small, flood)

        ended = list[str]()
        perform(work)
        assert ended == ["small", "flood"]
    assert backend.batches[1] == [10, 50]


@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_poisonous_sequence_fails_its_own_request_alone(place: int) -> None:
    """A batch that fails is halved until the fault stands alone: its neighbours get their outputs."""
    backend = Watched()
    metrics = Metrics("0", ENDPOINTS)
    texts = [f"text number {i}" for i in range(7)]
    texts[place] = f"some {POISON} here"
    with running(engine(backend, metrics)) as made:

        async def work() -> list[Result | BaseException]:
            holder = await hold(made, backend)
            tasks = [submit(made, encode(text)) for text in texts]
            await asyncio.sleep(0.05)
            backend.gate.set()
            await holder
            return await asyncio.gather(*tasks, return_exceptions=True)

        results = perform(work)
    assert len(backend.batches[1]) == 7, "they were one batch"
    for i, result in enumerate(results):
        if i == place:
            assert isinstance(result, InferenceError)
        else:
            assert_equal_outputs(result.outputs, run(minilm(), encode(texts[i]), [SENTENCE]))
    assert samples(metrics)['headlight_inference_failures_total{model="mini",reason="exception"}'] == 1


def test_a_request_with_a_poisonous_sequence_gets_one_answer() -> None:
    """Its other sequences do not matter any more, and the worker goes on."""
    with running(engine(Watched(), max_batch_tokens=8)) as made:

        async def work() -> None:
            with pytest.raises(InferenceError):
                await made.submit(encode("good", POISON, "good", POISON), [SENTENCE] * 4)
            await made.submit(encode("good"), [SENTENCE])

        perform(work)


def test_an_error_between_the_batch_and_its_requests_reaches_every_waiter() -> None:
    """A backend that returns too little fails the requests of that batch; nobody waits for ever."""

    class Forgetful(Watched):
        def run(self, batch: Any, *, lanes: int = 1, progress: Any = None) -> list[Output]:
            return super().run(batch, lanes=lanes, progress=progress)[: 1 if len(batch) > 2 else None]

    with running(engine(Forgetful())) as made:

        async def work() -> None:
            with pytest.raises(InferenceError):
                await made.submit(encode("a", "b", "c"), [SENTENCE] * 3)
            await made.submit(encode("a"), [SENTENCE])

        perform(work)


def test_an_abandoned_request_costs_nothing() -> None:
    """What nobody waits for any more is not run, and does not count as waiting."""
    backend = Watched()
    metrics = Metrics("0", ENDPOINTS)
    with running(engine(backend, metrics, max_batch_tokens=64)) as made:

        async def work() -> None:
            holder = await hold(made, backend)
            abandoned = submit(made, [words(20)] * 10)
            kept = submit(made, [words(21)])
            await asyncio.sleep(0.02)
            abandoned.cancel()
            with pytest.raises(asyncio.CancelledError):
                await abandoned
            backend.gate.set()
            await holder
            await kept

        perform(work)
    assert backend.batches[1:] == [[21]]
    assert samples(metrics)['headlight_queue_tokens{model="mini"}'] == 0
    assert samples(metrics)['headlight_queue_inputs{model="mini"}'] == 0


def test_abandoned_requests_do_not_fill_the_queue() -> None:
    """What nobody waits for keeps nobody out, also while the worker is busy."""
    backend = Watched()
    with running(engine(backend, max_batch_tokens=64, max_queue_tokens=100)) as made:

        async def work() -> None:
            holder = await hold(made, backend)
            abandoned = submit(made, [words(50)] * 2)
            await asyncio.sleep(0.01)
            with pytest.raises(OverloadedError):
                await made.submit([words(30)], [SENTENCE])
            abandoned.cancel()
            await asyncio.sleep(0.01)
            kept = submit(made, [words(30)])
            await asyncio.sleep(0.01)
            backend.gate.set()
            await asyncio.gather(holder, kept)

        perform(work)
    assert backend.batches[1:] == [[30]]


def test_a_request_abandoned_half_way_runs_no_further() -> None:
    """The batches that a cancelled request still has to come are skipped."""
    backend = Watched()
    with running(engine(backend, max_batch_tokens=20)) as made:

        async def work() -> None:
            backend.gate.clear()
            task = submit(made, [words(20)] * 6)
            await until(lambda: backend.batches)
            task.cancel()
            await asyncio.sleep(0.02)
            backend.gate.set()
            await made.submit([words(7)], [SENTENCE])

        perform(work)
    assert backend.batches == [[20], [7]]


def test_a_full_queue_refuses_at_once_and_an_empty_one_takes_anything() -> None:
    """The limit is on what waits, half of it for one client; one larger than it runs when none waits."""
    backend = Watched()
    metrics = Metrics("0", ENDPOINTS)
    with running(engine(backend, metrics, max_batch_tokens=32, max_queue_tokens=100)) as made:

        async def work() -> None:
            holder = await hold(made, backend)
            first = submit(made, [words(40)])
            await until(lambda: samples(metrics)['headlight_queue_tokens{model="mini"}'] == 40)
            start = time.perf_counter()
            with pytest.raises(OverloadedError) as refused:
                await made.submit([words(11)], [SENTENCE])
            assert time.perf_counter() - start < 0.5
            assert (refused.value.requested, refused.value.waiting, refused.value.limit) == (11, 40, 100)
            assert refused.value.retry().whole >= 1
            fits = submit(made, [words(10)])
            await asyncio.sleep(0.01)
            assert samples(metrics)['headlight_queue_inputs{model="mini"}'] == 2
            backend.gate.set()
            await asyncio.gather(holder, first, fits)
            await made.submit([words(60)] * 3, [SENTENCE] * 3)

        perform(work)
    assert all(11 not in batch for batch in backend.batches), "the refused sequence was never run"


def test_several_models_share_the_device_one_run_at_a_time() -> None:
    """Engines of one device never run at once; on two they would."""
    for device, alone in ((LaneScheduler(), True), (None, False)):
        busy, overlaps = threading.Lock(), list[int]()
        first = engine(Exclusive(busy, overlaps), name="first", scheduler=device)
        second = engine(Exclusive(busy, overlaps), name="second", scheduler=device)
        with running(first), running(second):

            async def work(engines: Sequence[Engine] = (first, second)) -> None:
                waits: list[Awaitable[Result]] = []
                for _ in range(15):
                    waits += [made.submit(encode("a text"), [SENTENCE]) for made in engines]
                    await asyncio.sleep(0.004)
                await asyncio.gather(*waits)

            overlaps.clear()
            perform(work)
        assert (not overlaps) == alone


def test_many_clients_at_once_all_get_their_own_answer() -> None:
    """Two hundred requests of different texts: none lost, none mixed up."""
    texts = [f"client {i} says {'word ' * (i % 17)}" for i in range(200)]
    expected = run(minilm(), encode(*texts), [SENTENCE] * 200)
    with running(engine(minilm(), max_batch_tokens=256)) as made:

        async def work() -> list[Result]:
            return await asyncio.gather(*(made.submit(encode(text), [SENTENCE]) for text in texts))

        results = perform(work)
    assert_equal_outputs([result.outputs[0] for result in results], expected)


def test_closing_answers_what_waits() -> None:
    """The worker ends when its queue is empty, not before."""
    backend = Watched()
    made = engine(backend, max_batch_tokens=16)
    made.start()

    async def work() -> None:
        holder = await hold(made, backend)
        tasks = [submit(made, [words(12)]) for _ in range(4)]
        await asyncio.sleep(0.02)
        closing = asyncio.get_running_loop().run_in_executor(None, made.close)
        await asyncio.sleep(0.02)
        backend.gate.set()
        await asyncio.gather(holder, *tasks)
        await closing

    perform(work)
    assert not alive(made)


def test_times_of_a_request_are_those_of_its_stages() -> None:
    """A request that waited says so in its queue time, one that was computed in its compute time."""
    backend = Watched()
    metrics = Metrics("0", ENDPOINTS)
    with running(engine(backend, metrics, max_batch_tokens=16)) as made:

        async def work() -> Result:
            holder = await hold(made, backend)
            task = submit(made, [words(10)])
            await asyncio.sleep(0.1)
            backend.gate.set()
            await holder
            return await task

        result = perform(work)
    assert 0.09 <= result.queue_s < 5
    assert 0 < result.compute_s < 5
    counted = samples(metrics)
    for stage in ("queue", "compute"):
        assert counted[f'headlight_stage_duration_seconds_count{{model="mini",stage="{stage}"}}'] == 2
    assert counted['headlight_batches_total{model="mini"}'] == 2
    assert counted['headlight_batch_inputs_sum{model="mini"}'] == 2
    assert counted['headlight_batch_tokens_sum{model="mini"}'] == 13
