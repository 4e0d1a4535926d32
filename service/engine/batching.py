"""Chooses which waiting sequences run next. A pure function: no clock, no threads, no I/O."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

PATIENCE = 8
"""How often a sequence may be overtaken; after that, no other passes it."""

_LOOK_AHEAD = 64
"""After this many sequences that do not fit, the batch counts as full: searching on would cost more."""


class Candidate(NamedTuple):
    """A waiting sequence: its length in tokens, and how many batches took later ones before it."""

    tokens: int
    overtaken: int = 0


def take_batch(
    waiting: Sequence[Candidate],
    budget: int,
    cost: Callable[[Sequence[int]], int],
) -> list[int]:
    """Choose the next batch from the waiting sequences; returns indices in order of arrival.

    `cost(lengths)` is what the backend spends to run sequences together, in tokens, padding included. The
    head of the queue is always included, even if it exceeds the budget; others are added while the total
    fits. A sequence that does not fit is overtaken at most PATIENCE times; after that it is considered before
    all others, and if it still does not fit, nothing behind it is taken. So no sequence starves. The result
    is empty only when nothing is waiting.
    """
    if not waiting:
        return []
    taken, lengths = [0], [waiting[0].tokens]
    impatient = [i for i in range(1, len(waiting)) if waiting[i].overtaken >= PATIENCE]
    end = len(waiting)
    for i in impatient:
        if i < end and cost([*lengths, waiting[i].tokens]) <= budget:
            taken.append(i)
            lengths.append(waiting[i].tokens)
        else:
            end = min(end, i)
    others = [i for i in range(1, end) if waiting[i].overtaken < PATIENCE]
    misses = 0
    for i in others:
        if cost([*lengths, waiting[i].tokens]) <= budget:
            taken.append(i)
            lengths.append(waiting[i].tokens)
        elif (misses := misses + 1) >= _LOOK_AHEAD:
            break
    return sorted(taken)
