"""How large a batch should be, measured on the machine."""

import logging

import pytest

from service.engine.measuring import measure_rates, steady_budget
from service.loading import largest_request
from service.settings import Settings
from tests.support.doubles import Watched, engine
from tests.support.engines import SENTENCE, running, words


def test_the_usual_size_is_taken_unless_it_is_clearly_worse() -> None:
    """Noise does not change it from one start to the next; a device for which it is wrong has another."""
    assert steady_budget({256: 99, 512: 90, 1024: 100}) == 512
    assert steady_budget({256: 100, 512: 86, 1024: 91}) == 512
    assert steady_budget({256: 95.1, 512: 80, 1024: 100}) == 256
    assert steady_budget({256: 10, 512: 20, 1024: 40}) == 1024


def test_each_size_is_run_full() -> None:
    """The batches that are timed have about as many tokens as the budget they stand for."""
    backend = Watched()
    budgets = (256, 512, 1024)
    rates = measure_rates(backend, [words(8), words(24), words(40)], SENTENCE, budgets, lanes=2)
    assert list(rates) == list(budgets)
    assert all(rate > 0 for rate in rates.values())
    sizes = {sum(batch) for batch in backend.batches}
    for budget in budgets:
        assert any(0.8 * budget <= size <= 1.2 * budget for size in sizes)


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


def test_a_device_of_several_sizes_is_measured(caplog: pytest.LogCaptureFixture) -> None:
    """It takes one of them and says why; its queue does not depend on which."""

    class Several(Watched):
        budgets = (256, 512, 1024)

    with (
        caplog.at_level(logging.INFO),
        running(engine(Several(), max_batch_tokens=None, max_queue_tokens=None)) as made,
    ):
        assert made.max_batch_tokens in Several.budgets
        assert made.max_queue_tokens == 4 * 256 * 256
    assert "k/s" in caplog.text


def test_the_largest_request_is_one_of_texts_and_of_bytes() -> None:
    """No request has more tokens than its texts may, nor than its bytes."""
    assert largest_request(Settings(), 256) == 256 * 256
    assert largest_request(Settings(), 8192) == 2 * 2**20
    assert largest_request(Settings(max_inputs=4), 512) == 2048
