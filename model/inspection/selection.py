"""Which heads, rows and columns are read, each once, in blocks that stay in the cache.

A map of N tokens has N² numbers a head. Where maps are collected, each block is written where it belongs;
where they are only measured, no more memory is needed than that of a block.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from model.contract import Axis

IntArray = NDArray[np.int64]
Places = slice | IntArray
"""What is chosen along an axis: neighbours, or positions."""

ROOM = 2**19
"""Weights in a block: two megabytes."""


class HeadSelection:
    """The heads that are wanted, each once: `places` and `shares` say how to give them back as listed."""

    def __init__(self, listed: Sequence[int]) -> None:
        self.numbers, self.places, counts = np.unique(listed, return_inverse=True, return_counts=True)
        self.shares = (counts / len(listed)).astype(np.float32)

    def __len__(self) -> int:
        """Count them."""
        return len(self.numbers)

    def some(self, part: slice) -> Places:
        """Choose a part of them out of all heads of the model."""
        return neighbours(self.numbers[part])


class AxisSelection:
    """What a map has rows or columns of, each once, in order: tokens, or words made of their pieces.

    `positions` are what they are called. `places` say which of them stands where it was listed, and `counts`
    how often; both are None where each is listed once and in order.
    """

    def __init__(self, axis: Axis | None, length: int) -> None:
        self.places: IntArray | None = None
        self.counts: IntArray | None = None
        self.positions = np.arange(length)
        if axis is not None:
            self.positions, places, counts = np.unique(
                np.array(axis.positions, np.int64), return_inverse=True, return_counts=True
            )
            self.places = unless_in_order(places)
            self.counts = None if self.places is None else counts
        if axis is None or axis.tokens is None or axis.starts is None:
            self.words = False
            self._tokens, self._starts = self.positions, np.arange(len(self.positions) + 1)
        else:
            self.words = True
            self._tokens = np.array(axis.tokens, np.int64)
            self._starts = np.array((*axis.starts, len(axis.tokens)), np.int64)
        self.every = axis is None

    def __len__(self) -> int:
        """Count them."""
        return len(self.positions)

    @property
    def longest(self) -> int:
        """The tokens of the longest word."""
        return int(np.diff(self._starts).max(initial=1))

    def span(self, part: slice) -> slice:
        """Say where the tokens of some of them lie among the tokens of all."""
        return slice(int(self._starts[part.start]), int(self._starts[part.stop]))

    def tokens(self, part: slice) -> Places:
        """Choose the tokens of some of them."""
        return neighbours(self._tokens[self.span(part)])

    def merged(self, part: slice) -> IntArray | None:
        """Say where, among those tokens, each begins; None where each is one token."""
        return self._starts[part] - self._starts[part.start] if self.words else None


def neighbours(positions: IntArray) -> Places:
    """Make a slice of sorted, distinct positions where they follow each other: it needs no copy."""
    if len(positions) and positions[-1] - positions[0] == len(positions) - 1:
        return slice(int(positions[0]), int(positions[-1]) + 1)
    return positions


def in_blocks(
    sequences: int, heads: int, rows: int, length: int, room: int = ROOM
) -> Iterator[tuple[slice, slice, list[slice]]]:
    """Cut sequences × heads × rows of `length` weights into blocks of at most `room`, where a row fits.

    Yields sequences, rows, and the parts that their heads are taken in. Whole sequences stay together where
    they fit, else whole heads; how one sequence is cut does not depend on how many there are.
    """
    some_rows = min(rows, max(1, room // max(1, length)))
    some_heads = min(heads, max(1, room // max(1, some_rows * length)))
    whole = some_heads == heads and some_rows == rows
    some_sequences = max(1, room // max(1, heads * rows * length)) if whole else 1
    parts = [slice(i, min(i + some_heads, heads)) for i in range(0, heads, some_heads)]
    for i in range(0, sequences, some_sequences):
        for j in range(0, rows, max(1, some_rows)):
            yield slice(i, min(i + some_sequences, sequences)), slice(j, min(j + some_rows, rows)), parts


def unless_in_order(places: IntArray) -> IntArray | None:
    """Forget places that change nothing."""
    return None if np.array_equal(places, np.arange(len(places))) else places
