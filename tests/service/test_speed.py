"""How long sequences take: measured at the start, and corrected."""

import pytest

from service.engine.measuring import measure_speed
from service.engine.speed import Speed
from tests.support.doubles import tokenizer
from tests.support.product import minilm


def test_two_measurements_tell_products_from_attention() -> None:
    """Seconds are n · (a + b · n); where longer texts take no more for a token, attention costs nothing."""
    speed = Speed()
    speed.fit((20, 1e-3 + 20 * 1e-6), (2000, 1e-3 + 2000 * 1e-6))
    assert speed.per_token_s == pytest.approx(1e-3)
    assert speed.per_pair_s == pytest.approx(1e-6)
    assert speed.seconds(8000) == pytest.approx(8000 * (1e-3 + 8000e-6))
    speed.fit((20, 2e-3), (2000, 1e-3))
    assert (speed.per_token_s, speed.per_pair_s) == (2e-3, 0.0)


def test_batches_correct_the_lengths_that_they_have() -> None:
    """Long texts that take twice as long as expected say so of long texts, not of short ones."""
    speed = Speed(1e-3)
    for _ in range(30):
        speed.record([10] * 50, 0.5)
        speed.record([4096], 2 * 4.096)
    assert speed.seconds(10) == pytest.approx(0.01, rel=0.05)
    assert speed.seconds(5000) == pytest.approx(10.0, rel=0.05)


def test_a_batch_of_several_lengths_corrects_what_has_most_of_it() -> None:
    """The estimate of the whole becomes right, and one outlier changes little."""
    speed = Speed(1e-3)
    lengths = [10] * 10 + [1000]
    for _ in range(40):
        speed.record(lengths, 3.3)
    assert sum(map(speed.seconds, lengths)) == pytest.approx(3.3, rel=0.02)
    before = speed.seconds(1000)
    speed.record([1000], 1000.0)
    assert speed.seconds(1000) < 3 * before


def test_the_least_time_is_the_fastest_that_was_seen() -> None:
    """A start on a busy machine measures too slow: no request is refused for ever because of it."""
    speed = Speed(1e-2)
    assert speed.least_seconds([1000]) == pytest.approx(20 / 3)
    speed.record([100, 100], 0.4)
    speed.record([100, 100], 4.0)
    assert speed.least_seconds([100]) == pytest.approx(0.2, rel=0.01)
    assert speed.least_seconds([1000]) == pytest.approx(2.0, rel=0.01), "what is not known yet is as fast"


def test_nothing_is_known_without_a_measurement() -> None:
    """Then nothing takes any time, and nothing is refused for that."""
    speed = Speed()
    speed.record([10], 1.0)
    assert speed.seconds(10) == speed.least_seconds([10]) == 0.0


def test_the_model_itself_is_measured() -> None:
    """The estimate of a text is that of a machine that runs it, give or take the noise of a busy one."""
    speed = measure_speed(minilm(), tokenizer())
    assert 1e-6 < speed.per_token_s < 1e-2
    assert 1e-4 < speed.seconds(256) < 10
