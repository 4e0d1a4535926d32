"""Several clients of one service: a flood of one does not keep the others out, nor waiting."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest

from service.engine.lane_scheduler import LaneScheduler
from service.engine.permit import Permit
from tests.support.doubles import HANG, Hanging, Watched, engine
from tests.support.engines import SENTENCE, encode, hold, perform, running, submit, until, words
from tests.support.serving import LONG, Service, assert_problem, client_at, serve

pytestmark = pytest.mark.alone

LARGEST = {"inputs": [LONG] * 2}


@contextmanager
def flooded(service: Service, address: str) -> Iterator[list[httpx.Response]]:
    """Six connections send the largest legal request over and over meanwhile; gives their answers."""
    ended, answers = threading.Event(), list[httpx.Response]()

    def flood() -> None:
        with client_at(service, address) as client:
            while not ended.is_set():
                answers.append(client.post("/encode", json=LARGEST))

    with ThreadPoolExecutor(6) as pool:
        tasks = [pool.submit(flood) for _ in range(6)]
        try:
            service.wait_for_metric('headlight_rejected_total{reason="overloaded"}', 1)
            yield answers
        finally:
            ended.set()
        for task in tasks:
            task.result()


def test_a_flood_of_largest_requests_shuts_nobody_out() -> None:
    """Beside it a client with one request at a time is always answered; a 429 names what was refused."""
    with (
        serve(max_inputs=2, max_queue_tokens=2048, max_batch_tokens=256) as service,
        client_at(service, "127.0.0.2") as lone,
        flooded(service, "127.0.0.3") as answers,
    ):
        statuses = Counter(lone.post("/encode", json={"inputs": "a text"}).status_code for _ in range(20))
        large = lone.post("/encode", json=LARGEST)
    assert statuses == {200: 20}
    assert large.status_code == 200, "there is room for one largest request beside the flood"
    assert {answer.status_code for answer in answers} == {200, 429}
    refused = next(answer for answer in answers if answer.status_code == 429)
    document = assert_problem(refused, 429, "overloaded", limit=2048)
    assert 0 < document["requested"] <= 512
    assert 0 < document["actual"] <= 2048
    assert f"about {document['requested']} tokens" in document["detail"]


def test_a_lone_request_is_run_beside_the_batches_of_a_flood() -> None:
    """While every lane is at another client's long batch, a small one does not wait for its end."""
    backend = Hanging()
    with running(engine(backend, scheduler=LaneScheduler(1))) as made:

        async def work() -> None:
            encodings = [*encode(HANG), words(200)]
            flood = asyncio.ensure_future(made.submit(encodings, [SENTENCE] * 2, Permit("flood")))
            await until(lambda: made._scheduler.demand)
            await asyncio.sleep(0.05)
            more = asyncio.ensure_future(made.submit([words(20)], [SENTENCE], Permit("flood")))
            await asyncio.wait_for(made.submit(encode("a text"), [SENTENCE], Permit("lone")), 5)
            assert not flood.done()
            assert not more.done()
            backend.freed.set()
            await asyncio.gather(flood, more)

        perform(work)


def test_what_waits_of_two_clients_is_run_in_turn() -> None:
    """The second client's requests are not behind all of the first one's."""
    backend = Watched()
    with running(engine(backend, max_batch_tokens=200)) as made:

        async def work() -> None:
            holder = await hold(made, backend)
            first = [submit(made, [words(100)], client="first") for _ in range(6)]
            second = [submit(made, [words(99)], client="second") for _ in range(2)]
            await asyncio.sleep(0.05)
            backend.gate.set()
            await asyncio.gather(holder, *first, *second)

        perform(work)
    taken = [sorted(batch) for batch in backend.batches[1:]]
    assert taken == [[99, 100], [99], [100, 100], [100, 100], [100]], "light beside 500, the last goes alone"
