"""Outputs one by one: as they come, each once, under the same rules as a whole request."""

import asyncio
import time
from contextlib import aclosing

import pytest

from model.contract import Batch, Output
from model.errors import InferenceError
from model.progress import Progress
from service.engine.admission import OverloadedError
from tests.service.engine.test_engine import assert_equal_outputs
from tests.support.doubles import POISON, Watched, engine
from tests.support.engines import SENTENCE, encode, hold, perform, running, samples, submit, until, words
from tests.support.product import minilm


class Paced(Watched):
    """Takes so long for a batch that whoever follows the event loop sees one after the other."""

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        time.sleep(0.02)
        return super().run(batch, lanes=lanes, progress=progress)


def test_every_output_comes_once_with_its_index() -> None:
    """Whatever the batches are, all outputs are given, and they are those of `submit`."""
    encodings = encode("one", "a longer text with more words", "", "two words", "one", "the last one")
    with running(engine(minilm(), max_batch_tokens=12)) as made:

        async def work() -> None:
            result = await submit(made, encodings)
            found = {}
            async for arrivals in made.stream(encodings, [SENTENCE] * 6):
                assert arrivals.queue_s >= 0
                for index, output in arrivals.outputs:
                    assert index not in found
                    found[index] = output
            assert sorted(found) == list(range(6))
            assert_equal_outputs([found[i] for i in range(6)], result.outputs)

        perform(work)


def test_an_output_comes_while_the_next_one_is_still_computed() -> None:
    """The first batch is given before the second one has run."""
    backend = Watched()
    with running(engine(backend, max_batch_tokens=64)) as made:

        async def work() -> None:
            async with aclosing(made.stream([words(64), words(64)], [SENTENCE] * 2)) as stream:
                backend.gate.clear()
                task = asyncio.ensure_future(anext(stream))
                await until(backend.entered.is_set)
                backend.entered.clear()
                backend.gate.set()
                first = await task
                backend.gate.clear()
                assert [index for index, _ in first.outputs] == [0]
                backend.gate.set()
                assert [index for index, _ in (await anext(stream)).outputs] == [1]

        perform(work)


def test_outputs_before_a_failure_are_given_and_what_follows_is_dropped() -> None:
    """A sequence that fails ends the stream with its error; batches that had not begun never do."""
    backend = Watched()
    with running(engine(backend, max_batch_tokens=16)) as made:

        async def work() -> None:
            encodings = [*encode("good one", "good two", POISON), *[words(16)] * 50]
            came: list[int] = []

            async def collect() -> None:
                async for arrivals in made.stream(encodings, [SENTENCE] * 53):
                    came.extend(index for index, _ in arrivals.outputs)

            with pytest.raises(InferenceError):
                await collect()
            assert set(came) >= {0, 1}
            assert 2 not in came
            await submit(made, encode("another request"))
            assert len(backend.batches) < 40

        perform(work)


def test_a_stream_that_is_closed_costs_nothing_more() -> None:
    """Whether its consumer stops or is cancelled while it waits."""
    backend = Paced()
    with running(engine(backend, max_batch_tokens=16)) as made:

        async def work() -> None:
            async with aclosing(made.stream([words(16)] * 50, [SENTENCE] * 50)) as stream:
                await anext(stream)
            await submit(made, encode("another request"))
            assert len(backend.batches) < 30
            holder = await hold(made, backend)
            other = made.stream([words(16)] * 50, [SENTENCE] * 50)
            waiting = asyncio.ensure_future(anext(other))
            await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            backend.forget()
            backend.gate.set()
            await holder
            await submit(made, encode("a third"))
            assert len(backend.batches) == 1

        perform(work)


def test_a_full_queue_refuses_a_stream_at_once() -> None:
    """The same admission as for a whole request."""
    backend = Watched()
    with running(engine(backend, max_batch_tokens=64, max_queue_tokens=64)) as made:

        async def work() -> None:
            holder = await hold(made, backend)
            waiting = submit(made, [words(60)])
            await asyncio.sleep(0.01)
            with pytest.raises(OverloadedError):
                await anext(made.stream([words(60)], [SENTENCE]))
            backend.gate.set()
            await asyncio.gather(holder, waiting)

        perform(work)


def test_stages_of_a_stream_are_counted_when_it_ends() -> None:
    """One observation of each stage, as for a whole request."""
    made = engine(minilm(), max_batch_tokens=16)
    with running(made):

        async def work() -> None:
            async for _ in made.stream([words(16)] * 5, [SENTENCE] * 5):
                pass

        perform(work)
    found = samples(made._metrics)
    for stage in ("queue", "compute"):
        assert found[f'headlight_stage_duration_seconds_count{{model="mini",stage="{stage}"}}'] == 1
    assert found['headlight_stage_duration_seconds_sum{model="mini",stage="compute"}'] > 0
