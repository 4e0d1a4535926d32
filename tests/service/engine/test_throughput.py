"""What is known of a model's speed and of the bodies that come."""

import pytest

from service.engine.throughput import Throughput


def test_the_rate_counts_every_lane() -> None:
    """Two lanes that run a thousand tokens a second each are two thousand together."""
    throughput = Throughput(512)
    assert throughput.tokens_per_s == 0
    throughput.record_batch([100, 100], 0.2, lanes=2)
    assert throughput.tokens_per_s == pytest.approx(2000)
    for _ in range(50):
        throughput.record_batch([100, 100], 0.2, lanes=1)
    assert throughput.tokens_per_s == pytest.approx(1000, rel=0.01)
    throughput.record_batch([5], 0.1, lanes=1)
    assert throughput.tokens_per_s == pytest.approx(1000, rel=0.01), "a lone short text says nothing"


def test_a_lack_of_memory_halves_the_budget() -> None:
    """Of what was run or of the budget, whichever is smaller; never below one token."""
    throughput = Throughput(512)
    throughput.halve_budget(300)
    assert throughput.budget == 150
    throughput.halve_budget(1000)
    assert throughput.budget == 75
    throughput.halve_budget(1)
    throughput.halve_budget(1)
    assert throughput.budget == 1


def test_the_tokens_of_a_body_are_learned_from_those_before() -> None:
    """Of English at first, then as the texts of late were; a small body tells nothing and is told nothing."""
    throughput = Throughput(512)
    assert throughput.expected_tokens(8000) == 1600
    for _ in range(50):
        throughput.record_tokens(tokens=2000, body_bytes=8000)
        throughput.record_tokens(tokens=2, body_bytes=800)
    assert throughput.expected_tokens(8000) == pytest.approx(2000, rel=0.01)
    assert throughput.expected_tokens(800) == 0


@pytest.mark.parametrize(("tokens", "expected"), [(1, 1000), (60_000, 4000)])
def test_strange_bodies_do_not_teach_strange_numbers(tokens: int, expected: int) -> None:
    """Neither an enormous text that is cut nor a prompt before every letter changes much for the others."""
    throughput = Throughput(512)
    for _ in range(50):
        throughput.record_tokens(tokens, body_bytes=2000)
    assert throughput.expected_tokens(8000) == pytest.approx(expected, rel=0.01)
