"""Groups sequences of similar length, for runtimes that pad them to one length."""

from collections.abc import Iterator, Sequence

RUN_TOKENS = 24
"""The fixed cost of one run, in tokens (measured by `benchmarks/passes/graphs.py`)."""


def group_lengths(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Split sequences into groups, each padded to its longest; yields indices, the longest first.

    A group ends when its padding costs as much as another run, which at most doubles the optimal cost, or
    when it would exceed `most` tokens, padding included. A single sequence may exceed `most`.
    """
    group: list[int] = []
    longest = padding = 0
    for i in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        padding += longest - lengths[i]
        if group and (padding > RUN_TOKENS or (len(group) + 1) * longest > most):
            yield group
            group = []
        if not group:
            longest, padding = lengths[i], 0
        group.append(i)
    if group:
        yield group


def padded_tokens(lengths: Sequence[int], most: int) -> int:
    """Return the tokens, padding included, of running sequences of these lengths."""
    return sum(lengths[group[0]] * len(group) for group in group_lengths(lengths, most))
