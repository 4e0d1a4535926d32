"""Which waiting sequences run next."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.batching import take_batch

Cost = Callable[[Sequence[int]], int]


def packed(lengths: Sequence[int]) -> int:
    """What a backend pays that runs nothing but tokens."""
    return sum(lengths)


def rectangle(lengths: Sequence[int]) -> int:
    """What a backend pays that fills all up to the longest."""
    return max(lengths, default=0) * len(lengths)


COSTS = pytest.mark.parametrize("cost", [packed, rectangle])
waiting = st.lists(st.integers(1, 512), max_size=60)
# Small ones too, so that a budget is often met exactly.
budgets = st.integers(1, 4096) | st.integers(1, 12)
few = st.lists(st.integers(1, 4), max_size=8)


@COSTS
@given(lengths=waiting | few, budget=budgets)
def test_the_budget_is_kept_unless_the_head_alone_breaks_it(
    cost: Cost, lengths: list[int], budget: int
) -> None:
    """A batch costs no more than the budget; only a lone sequence may cost more than all of it."""
    count = take_batch(lengths, budget, cost)
    assert count == 1 or cost(lengths[:count]) <= budget


@COSTS
@given(lengths=waiting | few, budget=budgets)
def test_the_head_is_always_served(cost: Cost, lengths: list[int], budget: int) -> None:
    """Something runs whenever something waits, and nothing when nothing does."""
    assert (take_batch(lengths, budget, cost) >= 1) == bool(lengths)


@COSTS
@given(lengths=waiting | few, budget=budgets)
def test_as_many_as_fit_are_taken(cost: Cost, lengths: list[int], budget: int) -> None:
    """No sequence is left that would still have fitted: the batch is the longest prefix within the budget."""
    count = take_batch(lengths, budget, cost)
    fitting = [n for n in range(1, len(lengths) + 1) if cost(lengths[:n]) <= budget]
    assert count == max(fitting, default=min(1, len(lengths)))


def test_a_budget_may_be_met_exactly() -> None:
    """The budget itself is within the budget."""
    assert take_batch([3, 4, 5, 1], 12, packed) == 3
    assert take_batch([3, 4, 4, 1], 12, rectangle) == 3


@COSTS
@given(lengths=waiting | few, later=waiting, budget=budgets)
def test_nobody_starves_and_nobody_is_overtaken(
    cost: Cost, lengths: list[int], later: list[int], budget: int
) -> None:
    """Whatever comes later, everybody is served in order, after at most as many batches as are before."""
    queue = [*enumerate(lengths)]
    coming = [*enumerate(later, start=len(lengths))]
    served: list[int] = []
    for _ in range(len(lengths)):
        if coming:
            queue.append(coming.pop(0))
        count = take_batch([length for _, length in queue], budget, cost)
        served += [number for number, _ in queue[:count]]
        queue = queue[count:]
    assert served == sorted(served)
    assert set(range(len(lengths))) <= set(served)


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=2000), budget=budgets)
def test_the_cost_is_asked_a_few_times_only(lengths: list[int], budget: int) -> None:
    """A long queue is bisected, not walked."""
    asked = 0

    def cost(some: Sequence[int]) -> int:
        nonlocal asked
        asked += 1
        return sum(some)

    take_batch(lengths, budget, cost)
    assert asked <= 12
