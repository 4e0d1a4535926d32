"""A request of as many texts as a route takes has room beside others, and leaves room for them."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.references.checkpoints import SUITED, write_bert
from tests.support.serving import client_at, serve

TEXT = "the man beats the boy " * 20
LENGTH = 64
"""What the small model reads."""


@pytest.mark.thorough
def test_a_largest_request_to_embeddings_and_small_ones_are_answered_beside_each_other(
    tmp_path: Path,
) -> None:
    """2048 texts of the model's limit are taken while other clients' work waits, whose requests are, too."""
    write_bert(tmp_path / "small", **SUITED)
    largest = {"input": [TEXT] * 2048, "dimensions": 4}
    ended, small = list[bool](), Counter[str]()
    with serve(model=tmp_path / "small", request_timeout_s=3600) as service, ThreadPoolExecutor(2) as pool:

        def send_small(address: str) -> None:
            with client_at(service, address) as client:
                while not ended:
                    answer = client.post("/encode", json={"inputs": TEXT})
                    small[answer.text if answer.is_error else "answered"] += 1

        tasks = [pool.submit(send_small, f"127.0.0.{number}") for number in (2, 3)]
        try:
            with client_at(service, "127.0.0.4") as client:
                answers = [client.post("/v1/embeddings", json=largest) for _ in range(2)]
        finally:
            ended.append(True)
        for task in tasks:
            task.result()
        (model,) = service.http.get("/info").json()["models"]
    assert [answer.status_code for answer in answers] == [200, 200], answers[-1].text[:300]
    assert answers[0].json()["usage"]["prompt_tokens"] == 2048 * LENGTH
    assert small.keys() == {"answered"}, small
    assert small["answered"] > 20
    assert model["max_queue_tokens"] == 4 * 2048 * LENGTH


def test_the_metric_of_the_limit_is_what_can_be_run_in_time(tmp_path: Path) -> None:
    """So that a queue is seen to fill also where the time ends before the number of tokens does."""
    write_bert(tmp_path / "small", **SUITED)
    name = 'headlight_queue_tokens_limit{model="small"}'
    with serve(model=tmp_path / "small", request_timeout_s=0.2, processes=1) as service:
        (model,) = service.http.get("/info").json()["models"]
        assert 0 < service.metrics()[name] < model["max_queue_tokens"]
    with serve(model=tmp_path / "small", max_queue_tokens=512) as service:
        assert service.metrics()[name] == 512
