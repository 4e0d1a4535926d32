"""What is known of a model's speed and of the bodies that come."""

import pytest

from service.engine.throughput import Pace


def test_the_rate_counts_every_lane() -> None:
    """Two lanes that run a thousand tokens a second each are two thousand together."""
    pace = Pace(512)
    assert pace.tokens_per_s == 0
    pace.ran(100, 0.1, lanes=2)
    assert pace.tokens_per_s == pytest.approx(2000)
    for _ in range(50):
        pace.ran(100, 0.1, lanes=1)
    assert pace.tokens_per_s == pytest.approx(1000, rel=0.01)


def test_a_lack_of_memory_halves_the_budget() -> None:
    """Of what was run or of the budget, whichever is smaller; never below one token."""
    pace = Pace(512)
    pace.halve(300)
    assert pace.budget == 150
    pace.halve(1000)
    assert pace.budget == 75
    pace.halve(1)
    pace.halve(1)
    assert pace.budget == 1


def test_the_tokens_of_a_body_are_learned_from_those_before() -> None:
    """Carefully at first, then as the texts of late were; a small body tells nothing and is told nothing."""
    pace = Pace(512)
    assert pace.expected_tokens(8000) == 1000
    for _ in range(50):
        pace.tokenized(tokens=2000, body_bytes=8000)
        pace.tokenized(tokens=2, body_bytes=800)
    assert pace.expected_tokens(8000) == pytest.approx(2000, rel=0.01)
    assert pace.expected_tokens(800) == 0


@pytest.mark.parametrize(("tokens", "expected"), [(1, 1000), (60_000, 4000)])
def test_strange_bodies_do_not_teach_strange_numbers(tokens: int, expected: int) -> None:
    """Neither an enormous text that is cut nor a prompt before every letter changes much for the others."""
    pace = Pace(512)
    for _ in range(50):
        pace.tokenized(tokens, body_bytes=2000)
    assert pace.expected_tokens(8000) == pytest.approx(expected, rel=0.01)
