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
