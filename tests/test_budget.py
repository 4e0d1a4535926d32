"""How large a batch should be, measured on the machine."""

import logging

import pytest

from service.budget import measure_rates, smallest_near_best
from tests.doubles import Watched, engine
from tests.engines import SENTENCE, running, words


def test_the_smallest_near_the_best_is_chosen() -> None:
    """Within 5 % of the best rate, the smaller batch wins; beyond, the faster one."""
    assert smallest_near_best({256: 95.1, 512: 100, 1024: 99}) == 256
    assert smallest_near_best({256: 94, 512: 96, 1024: 100}) == 512
    assert smallest_near_best({256: 10, 512: 20, 1024: 40}) == 1024


def test_each_size_is_run_full() -> None:
    """The batches that are timed have about as many tokens as the budget they stand for."""
    backend = Watched()
    budgets = backend.budgets
    rates = measure_rates(backend, [words(8), words(24), words(40)], SENTENCE, budgets, lanes=2)
    assert list(rates) == list(budgets)
    assert all(rate > 0 for rate in rates.values())
    sizes = {sum(batch) for batch in backend.batches}
    for budget in budgets:
        assert any(0.8 * budget <= size <= 1.2 * budget for size in sizes)


def test_an_engine_measures_its_budget_unless_it_is_given(caplog: pytest.LogCaptureFixture) -> None:
    """Without one it takes one of the tried sizes and says why; its queue has 64 such batches."""
    with (
        caplog.at_level(logging.INFO),
        running(engine(Watched(), max_batch_tokens=None, max_queue_tokens=None)) as made,
    ):
        assert made.max_batch_tokens in Watched().budgets
        assert made.max_queue_tokens == 64 * made.max_batch_tokens
    assert "k/s" in caplog.text
    backend = Watched()
    given = engine(backend, max_batch_tokens=77)
    given.start()
    try:
        assert given.max_batch_tokens == 77
        assert len(backend.batches) == 4, "only the warm-up ran"
    finally:
        given.close()
