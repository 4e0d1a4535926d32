"""How large batches, queues and requests may be."""

import math

import pytest

from service.engine.queueing import WaitingQueue
from service.engine.throughput import Throughput
from service.lifecycle import VERSION
from service.loading import largest_request
from service.protocols.endpoints import ENDPOINTS
from service.settings import Settings
from service.telemetry.metrics import Metrics
from tests.support.doubles import Watched, engine


def test_the_limits_are_the_same_on_every_start() -> None:
    """On a CPU neither batch nor queue depends on a measurement: replicas refuse the same load."""
    backend = Watched()
    made = engine(backend, max_batch_tokens=None, max_queue_tokens=None)
    at_once = (made.max_batch_tokens, made.max_queue_tokens)
    made.start()
    try:
        assert (made.max_batch_tokens, made.max_queue_tokens) == at_once == (1024, 4 * 256 * 256)
        two = [batch for batch in backend.batches if len(batch) == 2]
        one = [batch for batch in backend.batches if len(batch) == 1]
        assert len(two) == 4, "of several texts only the warm-up ran"
        assert {*map(tuple, one)} == {(32,), (130,)}, (
            "and two that are measured: a short one and a longer one"
        )
        assert {sum(batch) for batch in backend.batches if len(batch) > 2} == {200}, (
            "and a batch of short ones"
        )
    finally:
        made.close()


@pytest.mark.parametrize(
    ("tokens_per_s", "timeout_s", "limit"),
    [(0.0, 10.0, 50_000), (1000.0, math.inf, 50_000), (1000.0, 100.0, 50_000), (1000.0, 10.0, 10_000)],
)
def test_the_limit_of_a_queue_is_what_can_be_run_in_time(
    tokens_per_s: float, timeout_s: float, limit: int
) -> None:
    """Or its own number of tokens, if that is less; or as long as no rate is measured."""
    queue = WaitingQueue("mini", Metrics(VERSION, ENDPOINTS), Throughput(1024, tokens_per_s), 50_000)
    queue.timeout_s = timeout_s
    assert queue.limit == limit


def test_the_largest_request_is_one_of_texts_and_of_bytes() -> None:
    """No request has more tokens than its texts may, nor than its bytes."""
    assert largest_request(Settings(), 256) == 2048 * 256, "which /v1/embeddings takes"
    assert largest_request(Settings(protocols="tei"), 256) == 2048 * 256
    assert largest_request(Settings(protocols="none"), 256) == 256 * 256
    assert largest_request(Settings(), 8192) == 2 * 2**20
    assert largest_request(Settings(max_inputs=4), 512) == 2048
