"""A pass that goes on is left to go on, and one that no client waits for ends."""

import asyncio
import time

from model.contract import Batch, Output
from model.progress import Progress
from service.lifecycle import VERSION
from service.protocols.endpoints import ENDPOINTS
from service.telemetry.metrics import Metrics
from tests.support.doubles import Watched, engine
from tests.support.engines import encode, perform, running, samples, submit, until

STEP_S = 0.02


class Slow(Watched):
    """Takes many steps for a batch, reports each of them, and ends between two when it is told to."""

    steps_to_take = steps_taken = 0

    @property
    def prepares_short(self) -> bool:
        return False

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        if progress is None:
            return super().run(batch, lanes=lanes)
        self.entered.set()
        for _ in range(self.steps_to_take):
            time.sleep(STEP_S)
            self.steps_taken += 1
            progress.step()
        return super().run(batch, lanes=lanes)


def test_a_slow_pass_is_not_taken_for_a_hung_one() -> None:
    """It takes three times as long as a pass may stand still, and its request is answered."""
    backend = Slow()
    with running(engine(backend, stall_s=0.4), afresh=True) as made:
        backend.steps_to_take = 60

        async def work() -> None:
            request = submit(made, encode("slow"))
            while not request.done():
                assert not made.supervise()
                await asyncio.sleep(0.01)
            assert len(request.result().outputs) == 1

        perform(work)


def test_a_pass_ends_when_its_client_has_gone() -> None:
    """Within a step or two; the device is free for others, and nothing counts as failed."""
    backend, metrics = Slow(), Metrics(VERSION, ENDPOINTS)
    with running(engine(backend, metrics), afresh=True) as made:
        backend.steps_to_take = 250

        async def work() -> None:
            gone = submit(made, encode("gone"))
            await until(lambda: backend.steps_taken > 2)
            gone.cancel()
            start = time.perf_counter()
            backend.steps_to_take = 0
            assert len((await submit(made, encode("next"))).outputs) == 1
            assert time.perf_counter() - start < 2

        perform(work)
        assert backend.steps_taken < 100
    failed = [value for name, value in samples(metrics).items() if "inference_failures_total" in name]
    assert not any(failed)


def test_a_pass_goes_on_as_long_as_somebody_waits_for_it() -> None:
    """One of two clients whose texts share the batch has gone."""
    backend = Slow()
    with running(engine(backend), afresh=True) as made:
        backend.steps_to_take = 30

        async def work() -> None:
            backend.gate.clear()
            first = submit(made, encode("first"), client="first")
            await until(backend.entered.is_set)
            gone, waits = submit(made, encode("gone")), submit(made, encode("waits"))
            backend.gate.set()
            await first
            await until(lambda: backend.steps_taken > 35)
            gone.cancel()
            assert len((await waits).outputs) == 1

        perform(work)
        assert [len(batch) for batch in backend.batches][-1] == 2
