"""Selects the heads, rows and columns to read, each once, in blocks that fit into the cache.

A map of N tokens has N² numbers per head. A collector copies each block to its place; statistics need only
the memory of one block.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from model.arrays import IntArray, Places
from model.choices import Axis

ROOM = 2**19
"""Weights in a block: two megabytes."""


class HeadSelection:
    """The selected heads, each once.

    `places` restores the listed order and its repeats; `shares` is each head's share of the listed heads.
    """

    def __init__(self, listed: Sequence[int]) -> None:
        self.numbers, self.places, counts = np.unique(listed, return_inverse=True, return_counts=True)
        self.shares = (counts / len(listed)).astype(np.float32)

    def __len__(self) -> int:
        """Return the number of distinct heads."""
        return len(self.numbers)

    def some(self, part: slice) -> Places:
        """Select part of these heads from all heads of the model."""
        return neighbours(self.numbers[part])


class AxisSelection:
    """The rows or columns of a map, each once, in order: tokens, or words made of their pieces.

    `positions` are their token or word indices. `places` restores the listed order and its repeats; `counts`
    is how often each is listed. Both are None if each is listed once and in order.
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
        """Return the number of distinct rows or columns."""
        return len(self.positions)

    @property
    def longest(self) -> int:
        """The number of tokens in the longest word."""
        return int(np.diff(self._starts).max(initial=1))

    def span(self, part: slice) -> slice:
        """Return where the tokens of a part lie among the tokens of all."""
        return slice(int(self._starts[part.start]), int(self._starts[part.stop]))

    def tokens(self, part: slice) -> Places:
        """Select the tokens of a part."""
        return neighbours(self._tokens[self.span(part)])

    def merged(self, part: slice) -> IntArray | None:
        """Return where each word of a part begins among its tokens; None if each is one token."""
        return self._starts[part] - self._starts[part.start] if self.words else None


def neighbours(positions: IntArray) -> Places:
    """Turn sorted, distinct positions into a slice if they are consecutive: a slice needs no copy."""
    if len(positions) and positions[-1] - positions[0] == len(positions) - 1:
        return slice(int(positions[0]), int(positions[-1]) + 1)
    return positions


def visible_keys(rows: Places, length: int, *, causal: bool, window: int) -> slice:
    """Return which of `length` keys any of these query positions, in order, see."""
    start, stop = (rows.start, rows.stop) if isinstance(rows, slice) else (rows[0], rows[-1] + 1)
    first = max(0, int(start) - window) if window else 0
    last = min(length, int(stop) + window) if window else length
    return slice(first, min(last, int(stop)) if causal else last)


def in_blocks(
    sequences: int, heads: int, rows: int, length: int, room: int = ROOM, *, together: bool = False
) -> Iterator[tuple[slice, slice, list[slice]]]:
    """Split sequences × heads × rows of `length` weights into blocks of at most `room`, or of one row.

    Yields the sequences, the rows, and the parts of the heads of each block. A block holds whole sequences if
    they fit, else whole heads if they fit; if `together`, always all heads. How one sequence is split
    does not depend on the others, so its results do not either.
    """
    if together:
        room = max(room, heads * length)
        some_rows = min(rows, max(1, room // max(1, heads * length)))
    else:
        some_rows = min(rows, max(1, room // max(1, length)))
    some_heads = min(heads, max(1, room // max(1, some_rows * length)))
    whole = some_heads == heads and some_rows == rows
    some_sequences = max(1, room // max(1, heads * rows * length)) if whole else 1
    parts = [slice(i, min(i + some_heads, heads)) for i in range(0, heads, some_heads)]
    for i in range(0, sequences, some_sequences):
        for j in range(0, rows, max(1, some_rows)):
            yield slice(i, min(i + some_sequences, sequences)), slice(j, min(j + some_rows, rows)), parts


def unless_in_order(places: IntArray) -> IntArray | None:
    """Return None for places that are already in order."""
    return None if np.array_equal(places, np.arange(len(places))) else places
