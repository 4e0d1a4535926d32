"""Groups sequences of near-equal length: for runtimes that pad them to one length."""

from collections.abc import Iterator, Sequence

RUN_TOKENS = 24
"""What a run costs beyond its tokens, in tokens (`benchmarks/README.md` has the measurement)."""


def group_lengths(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Cut sequences into groups that are padded to their longest each, as indices, the longest first.

    A group ends when its padding has cost as much as another run does, which is never more than twice the
    least cost, or when it would have more than `most` tokens, padding included; a single sequence may.
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
    """Count the tokens that running these lengths takes, padding included."""
    return sum(lengths[group[0]] * len(group) for group in group_lengths(lengths, most))
