"""A fault stays with its request, over HTTP and under load."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.doubles import POISON
from tests.support.serving import Service, answered, assert_problem, post, serve

pytestmark = pytest.mark.thorough

REASON = 'headlight_inference_failures_total{model="all-MiniLM-L6-v2",reason="exception"}'


@pytest.fixture(scope="module")
def faulty() -> Iterator[Service]:
    """A service whose backend fails on a word; many requests share a batch."""
    with serve(module="tests.support.doubles", max_batch_tokens=512) as started:
        yield started


def test_one_poisonous_text_among_a_thousand_fails_alone(faulty: Service) -> None:
    """Two hundred and fifty requests of four texts in flight, and one that cannot be computed."""
    texts = [f"good text number {i} {'word ' * (i % 23)}" for i in range(1000)]
    requests = [texts[i : i + 4] for i in range(0, 1000, 4)]
    requests.insert(137, ["good", f"some {POISON} here"])

    def send(inputs: list[str]) -> httpx.Response:
        return post(faulty, {"inputs": inputs, "dimensions": 2})

    with ThreadPoolExecutor(32) as pool:
        responses = list(pool.map(send, requests))
    for i, response in enumerate(responses):
        if i == 137:
            assert_problem(response, 500, "inference-failed")
        else:
            assert len(answered(response)["data"]) == 4
    assert faulty.metrics()[REASON] == 1
    assert faulty.http.get("/readyz").status_code == 200
