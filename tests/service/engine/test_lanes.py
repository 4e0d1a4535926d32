"""Several batches of one engine side by side, each on its share of the cores."""

import asyncio

import pytest

from model.errors import InferenceError
from model.lanes import choose_lanes
from service.engine.lane_scheduler import LaneScheduler
from service.engine.queueing import WORTH_A_LANE
from tests.support.doubles import HANG, Hanging, Watched, engine
from tests.support.engines import SENTENCE, encode, hold, perform, running, submit, until, words

pytestmark = pytest.mark.alone


@pytest.mark.parametrize(("lanes", "begun"), [(1, 1), (2, 2)])
def test_what_waits_is_run_beside_the_first_batch(lanes: int, begun: int) -> None:
    """While one batch runs, another lane takes the next; with one lane it waits."""
    backend = Watched()
    with running(engine(backend, scheduler=LaneScheduler(lanes))) as made:

        async def work() -> None:
            holder = await hold(made, backend)
            second = submit(made, [words(WORTH_A_LANE)])
            await until(lambda: len(backend.batches) == begun)
            await asyncio.sleep(0.1)
            assert len(backend.batches) == begun
            backend.gate.set()
            await asyncio.gather(holder, second)

        perform(work)


def test_what_a_full_batch_leaves_is_run_beside_it() -> None:
    """A lane that takes its batch wakes the next one for the rest."""
    backend = Watched()
    with running(engine(backend, max_batch_tokens=256, scheduler=LaneScheduler(2))) as made:

        async def work() -> None:
            backend.gate.clear()
            task = submit(made, [words(100)] * 8)
            await asyncio.wait_for(until(lambda: len(backend.batches) == 2), 5)
            backend.gate.set()
            await task

        perform(work)


def test_little_work_is_left_to_the_first_lane() -> None:
    """Small batches are slow ones: another lane joins when a batch is worth it, and then takes all."""
    backend = Watched()
    with running(engine(backend, scheduler=LaneScheduler(2))) as made:

        async def work() -> None:
            holder = await hold(made, backend)
            waiting = [submit(made, [words(20)])]
            await asyncio.sleep(0.1)
            assert len(backend.batches) == 1
            waiting.append(submit(made, [words(WORTH_A_LANE)]))
            await until(lambda: len(backend.batches) == 2)
            assert backend.batches[1] == [20, WORTH_A_LANE]
            backend.gate.set()
            await asyncio.gather(holder, *waiting)

        perform(work)


def test_a_lone_batch_has_all_cores_and_others_their_share() -> None:
    """Nobody else is there to use them; as soon as somebody is, they are shared."""
    backend = Watched()
    with running(engine(backend, scheduler=LaneScheduler(2))) as made:

        async def work() -> None:
            await made.submit(encode("alone"), [SENTENCE])
            assert backend.shared == [1]
            holder = await hold(made, backend)
            second = submit(made, [words(WORTH_A_LANE)])
            await until(lambda: len(backend.batches) == 3)
            assert backend.shared == [1, 1, 2]
            backend.gate.set()
            await asyncio.gather(holder, second)

        perform(work)


def test_a_free_lane_helps_with_little_when_the_first_one_takes_long() -> None:
    """What has waited for a while is run beside a long batch, however few tokens it has."""
    backend = Hanging()
    with running(engine(backend, scheduler=LaneScheduler(2))) as made:

        async def work() -> None:
            hung = submit(made, encode(HANG))
            await asyncio.sleep(0.05)
            waiting = [submit(made, encode("a text")) for _ in range(5)]
            await asyncio.sleep(0.2)
            assert not any(task.done() for task in waiting)
            assert not made.supervise()
            await asyncio.wait_for(asyncio.gather(*waiting), 5)
            assert not hung.done()
            backend.freed.set()
            await hung

        perform(work)


def test_a_process_that_was_stopped_has_not_hung() -> None:
    """The time in which nobody could work does not count; two lanes that hang at once are one fault."""
    backend = Hanging()
    with running(engine(backend, scheduler=LaneScheduler(2), stall_s=0.2)) as made:

        async def work() -> None:
            hung = [submit(made, encode(HANG))]
            await asyncio.sleep(0.02)
            hung.append(submit(made, [*encode(HANG), words(WORTH_A_LANE)]))
            await asyncio.sleep(0.28)
            assert not made.supervise(stopped_s=0.3)
            await asyncio.sleep(0.5)
            assert made.supervise()
            assert not made.supervise()
            results = await asyncio.gather(*hung, return_exceptions=True)
            assert all(isinstance(result, InferenceError) for result in results)
            backend.freed.set()

        perform(work)


@pytest.mark.parametrize(
    ("cores", "lanes"), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 1), (6, 3), (8, 4), (10, 2), (16, 4), (18, 3)]
)
def test_lanes_use_as_many_cores_as_they_can(cores: int, lanes: int) -> None:
    """Each has the same share of them; four at most."""
    assert choose_lanes(cores) == lanes


def test_a_lane_that_hangs_does_not_hold_up_the_other() -> None:
    """The others go on meanwhile, and it is woken like any lane when it comes back."""
    backend = Hanging()
    with running(engine(backend, scheduler=LaneScheduler(2), stall_s=0.2)) as made:

        async def work() -> None:
            hung = submit(made, encode(HANG))
            await asyncio.sleep(0.05)
            await asyncio.wait_for(made.submit([words(WORTH_A_LANE)], [SENTENCE]), 5)
            await asyncio.sleep(0.3)
            assert made.supervise()
            backend.freed.set()
            await asyncio.gather(hung, return_exceptions=True)
            for _ in range(20):
                await asyncio.wait_for(made.submit(encode("a text"), [SENTENCE]), 5)

        perform(work)
