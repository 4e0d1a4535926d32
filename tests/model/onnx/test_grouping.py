"""Sequences are grouped so that neither padding nor the number of runs costs much."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.onnx.grouping import RUN_TOKENS, group_lengths, padded_tokens

LENGTHS = st.lists(st.integers(1, 80), max_size=24)
MOST = st.sampled_from([1, 50, 128, 512, 10**6])


def cost(groups: Sequence[Sequence[int]]) -> int:
    """What padding and runs cost together, of groups of lengths."""
    return sum(sum(max(group) - length for length in group) + RUN_TOKENS for group in groups)


def allowed(group: Sequence[int], most: int) -> bool:
    return len(group) == 1 or max(group) * len(group) <= most


def least_cost(lengths: Sequence[int], most: int) -> int:
    """The least cost of all groupings: by lengths in order, the best end of each group in turn."""
    ordered = sorted(lengths)
    least = [0]
    for stop in range(1, len(ordered) + 1):
        ends = (ordered[start:stop] for start in range(stop))
        least.append(min(least[stop - len(group)] + cost([group]) for group in ends if allowed(group, most)))
    return least[-1]


def partitions(lengths: Sequence[int]) -> Iterator[list[list[int]]]:
    """Every way to group lengths."""
    if not lengths:
        yield []
        return
    for rest in partitions(lengths[1:]):
        yield [[lengths[0]], *rest]
        for i, group in enumerate(rest):
            yield [*rest[:i], [lengths[0], *group], *rest[i + 1 :]]


@given(LENGTHS, MOST)
def test_every_sequence_is_in_one_group(lengths: list[int], most: int) -> None:
    """Each group is named by the places of its sequences, the longest first, and none is empty."""
    groups = list(group_lengths(lengths, most))
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    for group in groups:
        assert [lengths[i] for i in group] == sorted((lengths[i] for i in group), reverse=True)
        assert group


@given(LENGTHS, MOST)
def test_a_group_has_no_more_tokens_than_it_may(lengths: list[int], most: int) -> None:
    """Padding included; only a single sequence may be longer."""
    assert all(allowed([lengths[i] for i in group], most) for group in group_lengths(lengths, most))


@given(LENGTHS, MOST)
def test_the_cost_is_at_most_twice_the_least(lengths: list[int], most: int) -> None:
    """Of padding and runs together, however lengths are spread."""
    groups = [[lengths[i] for i in group] for group in group_lengths(lengths, most)]
    assert cost(groups) <= 2 * least_cost(lengths, most)


@given(st.lists(st.integers(1, 80), max_size=6), MOST)
def test_the_least_cost_is_that_of_the_best_of_all_groupings(lengths: list[int], most: int) -> None:
    """The reference above, held to the definition: every way to group a few sequences."""
    every = (groups for groups in partitions(lengths) if all(allowed(group, most) for group in groups))
    assert least_cost(lengths, most) == min(map(cost, every))


@given(LENGTHS, MOST)
def test_padded_tokens_are_those_of_the_groups(lengths: list[int], most: int) -> None:
    """Each sequence counts as long as the longest beside it."""
    groups = [[lengths[i] for i in group] for group in group_lengths(lengths, most)]
    assert padded_tokens(lengths, most) == sum(max(group) * len(group) for group in groups)


@given(st.integers(1, 60), st.integers(0, 40), MOST)
def test_sequences_of_one_length_fill_their_groups_in_order(length: int, count: int, most: int) -> None:
    """They cost no padding, so that only the most tokens of a group divide them."""
    at_once = max(1, most // length)
    expected = [list(range(count))[i : i + at_once] for i in range(0, count, at_once)]
    assert list(group_lengths([length] * count, most)) == expected


@pytest.mark.parametrize(
    ("lengths", "groups"),
    [
        ([], []),
        ([7], [[0]]),
        ([30, 30 - RUN_TOKENS], [[0, 1]]),
        ([30, 30 - RUN_TOKENS - 1], [[0], [1]]),
        ([9, 60, 10, 58], [[1, 3], [2, 0]]),
    ],
)
def test_a_run_is_worth_its_padding(lengths: list[int], groups: list[list[int]]) -> None:
    """As much padding as another run would cost is taken, and no more."""
    assert list(group_lengths(lengths, 512)) == groups
