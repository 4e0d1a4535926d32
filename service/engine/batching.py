"""Which waiting sequences run next? A pure function: no clock, no threads, no I/O."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

PATIENCE = 8
"""How often a sequence may be overtaken; then nobody passes it any more."""

_LOOK_AHEAD = 64
"""After so many neighbours that did not fit, the batch counts as full: looking on would cost more."""


class Candidate(NamedTuple):
    """A waiting sequence: its tokens, and how often later ones ran before it."""

    tokens: int
    overtaken: int = 0


def take_batch(
    waiting: Sequence[Candidate],
    budget: int,
    cost: Callable[[Sequence[int]], int],
) -> list[int]:
    """Choose the next batch among the sequences that wait, as indices in order of arrival.

    `cost(lengths)` is what the backend pays for running sequences together, in tokens. The head is always
    in, even beyond the budget; the others as long as the whole stays within it. What does not fit is
    overtaken, at most PATIENCE times: such a sequence is considered before all others, and where it does not
    fit either, nothing behind it is taken. So no sequence starves. Empty only when nothing waits.
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
