"""Sequences of different lengths in one tensor, without padding."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from model.encoder.packing import Packing, Run

CPU = torch.device("cpu")


def test_sequences_lie_end_to_end() -> None:
    """Each sequence starts where the one before it ends, and T closes the list."""
    assert list(Packing.of([3, 1, 4]).starts) == [0, 3, 4, 8]


def test_neighbours_of_equal_length_are_one_run() -> None:
    """Equal neighbours form one rectangle; equal lengths that are apart do not."""
    runs = Packing.of([2, 2, 5, 2]).runs
    assert list(runs) == [Run(0, 2, 2), Run(4, 1, 5), Run(9, 1, 2)]
    assert [run.stop for run in runs] == [4, 9, 11]


def test_an_empty_batch_has_no_runs() -> None:
    """A batch without sequences is a legal description of nothing."""
    packing = Packing.of([])
    assert (list(packing.starts), list(packing.runs), packing.positions(CPU).tolist()) == ([0], [], [])


@given(st.lists(st.integers(0, 9), max_size=12))
def test_positions_count_from_the_start_of_each_sequence(lengths: list[int]) -> None:
    """Position i of a sequence is i, whatever lies before the sequence; runs cover every token once."""
    packing = Packing.of(lengths)
    expected = [position for length in lengths for position in range(length)]
    positions = packing.positions(CPU)
    assert (positions.tolist(), positions.dtype) == (expected, torch.int64)
    assert packing.positions(CPU, padding=3).tolist() == [*expected, 0, 0, 0]
    covered = [token for run in packing.runs for token in range(run.start, run.stop)]
    assert covered == list(range(sum(lengths)))
    assert sum(run.count for run in packing.runs) == len(lengths)


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 40))
def test_parts_are_of_whole_sequences_and_about_as_many_tokens(lengths: list[int], tokens: int) -> None:
    """Each sequence is in one part, in order; only a single one may exceed one and a half parts."""
    packing = Packing.of(lengths, (length - 1 for length in lengths))
    parts = list(packing.parts(tokens))
    assert [length for _, part in parts for length in part.lengths] == lengths
    assert [hidden for _, part in parts for hidden in part.unattended] == [*packing.unattended]
    assert [first for first, _ in parts] == [
        sum(len(part.lengths) for _, part in parts[:i]) for i in range(len(parts))
    ]
    assert all(len(part.lengths) == 1 or part.tokens <= 1.5 * tokens for _, part in parts)


def test_a_batch_is_cut_evenly() -> None:
    """What is left at the end does not run by itself, where sequences are short."""
    assert [part.tokens for _, part in Packing.of([1] * 22).parts(10)] == [11, 11]
    assert [part.tokens for _, part in Packing.of([1] * 14).parts(10)] == [14]
