"""Which waiting sequences run next? A pure function: no clock, no threads, no I/O."""

from collections.abc import Callable, Sequence


def take_batch(lengths: Sequence[int], budget: int, cost: Callable[[Sequence[int]], int]) -> int:
    """Say how many of the waiting sequences, from the head of the queue, form the next batch.

    `lengths` are their tokens in order of arrival, `cost(lengths)` what the backend pays for running
    them together. The head is always in, even beyond the budget; the rest as long as the whole stays
    within it, so that nobody is overtaken and nobody starves. 0 only when nothing waits.
    """
    taken = min(1, len(lengths))
    low, high = taken, len(lengths)
    # cost grows with every sequence, so the last prefix within the budget is found by bisection.
    while low < high:
        middle = (low + high + 1) // 2
        if cost(lengths[:middle]) <= budget:
            low = middle
        else:
            high = middle - 1
    return max(taken, low)
