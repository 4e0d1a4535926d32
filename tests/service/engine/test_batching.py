"""Which waiting sequences run next."""

from collections.abc import Callable, Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.batching import PATIENCE, Candidate, take_batch

Cost = Callable[[Sequence[int]], int]


def packed(lengths: Sequence[int]) -> int:
    """What a backend pays that runs nothing but tokens."""
    return sum(lengths)


def rectangle(lengths: Sequence[int]) -> int:
    """What a backend pays that fills all up to the longest."""
    return max(lengths, default=0) * len(lengths)


KINDS = pytest.mark.parametrize("cost", [packed, rectangle])
candidates = st.lists(st.builds(Candidate, st.integers(1, 512), st.integers(0, PATIENCE)), max_size=60)
# Small ones too, so that a budget is often met exactly.
few = st.lists(st.builds(Candidate, st.integers(1, 4), st.integers(0, PATIENCE)), max_size=8)
budgets = st.integers(1, 4096) | st.integers(1, 12)


def lengths_of(waiting: Sequence[Candidate], chosen: Sequence[int]) -> list[int]:
    return [waiting[i].tokens for i in chosen]


@KINDS
@given(waiting=candidates | few, budget=budgets)
def test_the_budget_is_kept_unless_the_head_alone_breaks_it(
    cost: Cost, waiting: list[Candidate], budget: int
) -> None:
    """A batch costs no more than the budget; only a lone sequence may cost more than all of it."""
    chosen = take_batch(waiting, budget, cost)
    assert len(chosen) <= 1 or cost(lengths_of(waiting, chosen)) <= budget


@KINDS
@given(waiting=candidates | few, budget=budgets)
def test_the_head_is_always_served(cost: Cost, waiting: list[Candidate], budget: int) -> None:
    """Something runs whenever something waits, the head first, in order of arrival and nobody twice."""
    chosen = take_batch(waiting, budget, cost)
    assert chosen[:1] == [0][: len(waiting)]
    assert chosen == sorted(set(chosen))


@KINDS
@given(waiting=candidates | few, budget=budgets)
def test_nobody_passes_one_who_was_overtaken_too_often(
    cost: Cost, waiting: list[Candidate], budget: int
) -> None:
    """Behind a sequence at the end of its patience that is left out, nothing is taken."""
    chosen = take_batch(waiting, budget, cost)
    left_out = [i for i, w in enumerate(waiting) if w.overtaken >= PATIENCE and i not in chosen]
    assert not left_out or all(i < left_out[0] for i in chosen)


@given(waiting=few, budget=budgets)
def test_gaps_are_filled(waiting: list[Candidate], budget: int) -> None:
    """Of those with patience, none is left that would still have fitted beside those taken."""
    waiting = [Candidate(w.tokens) for w in waiting]
    chosen = take_batch(waiting, budget, packed)
    taken = lengths_of(waiting, chosen)
    left = [w.tokens for i, w in enumerate(waiting) if i not in chosen]
    assert all(packed([*taken, tokens]) > budget for tokens in left)


def test_a_budget_may_be_met_exactly_past_one_that_does_not_fit() -> None:
    """The budget itself is within the budget, and a shorter one fills the gap that a longer one leaves."""
    waiting = [Candidate(n) for n in (3, 4, 9, 5, 1)]
    assert take_batch(waiting, 12, packed) == [0, 1, 3]
    assert take_batch([Candidate(n) for n in (3, 4, 4, 1)], 12, rectangle) == [0, 1, 2]


@KINDS
@given(arrivals=st.lists(st.lists(st.integers(1, 100), max_size=6), max_size=40), budget=st.integers(20, 200))
def test_nobody_starves(cost: Cost, arrivals: list[list[int]], budget: int) -> None:
    """Over any arrivals everybody is served, and overtaken in at most PATIENCE batches."""
    numbers, queue = count(), list[tuple[int, Candidate]]()
    served = list[int]()
    coming = [[(next(numbers), Candidate(n)) for n in lengths] for lengths in arrivals]
    total = sum(len(group_) for group_ in coming)
    for _ in range(len(coming) + total):
        queue += coming.pop(0) if coming else []
        chosen = take_batch([w for _, w in queue], budget, cost)
        served += [queue[i][0] for i in chosen]
        last = max(chosen, default=-1)
        queue = [
            (number, Candidate(w.tokens, w.overtaken + (i < last)))
            for i, (number, w) in enumerate(queue)
            if i not in chosen
        ]
        assert all(w.overtaken <= PATIENCE for _, w in queue)
    assert sorted(served) == list(range(total))


@given(lengths=st.lists(st.integers(2, 9), min_size=1, max_size=2000))
def test_a_long_queue_is_not_walked_to_its_end(lengths: list[int]) -> None:
    """Once a batch is full, only a bounded number of neighbours is tried."""
    asked = 0

    def cost(some: Sequence[int]) -> int:
        nonlocal asked
        asked += 1
        return sum(some)

    chosen = take_batch([Candidate(n) for n in lengths], 64, cost)
    assert asked <= len(chosen) + 64
