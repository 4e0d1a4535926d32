"""Finds what sequences of a batch can share: their lower layers, or the tokens that they begin with.

Two sequences of the same tokens, one of which is changed from layer l on, have the same hidden states up to
state l. One of them, the carrier, runs from the embeddings on; the other begins as a copy of its state l.

Where no token attends to those after it, sequences that begin with the same tokens have the same hidden
states there. One of them, the carrier, runs whole; of the others only the tokens after the shared ones run,
and attend to the keys and values that the carrier has of the shared ones.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FEWEST_SHARED = 16
"""The fewest first tokens that are shared: to share fewer takes more time than it saves."""


class Start(NamedTuple):
    """Where a sequence begins: as a copy of hidden state `state` of the sequence `carrier`, by its number."""

    state: int
    carrier: int


class Text(NamedTuple):
    """What decides which others a sequence can share layers with.

    Sequences with equal `tokens` have the same embeddings and weights. `changed` is the first hidden state
    that is changed or is the input of a changed layer, None if nothing is changed. `needed` is the first
    hidden state that is needed or is the input of an observed layer.
    """

    tokens: Hashable
    changed: int | None
    needed: int


def share_layers(texts: Sequence[Text]) -> list[Start | None]:
    """Return where each sequence begins; None means with its own embeddings, as all carriers do."""
    starts: list[Start | None] = [None] * len(texts)
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for number, text in enumerate(texts):
        alike[text.tokens].append(number)
    for members in alike.values():
        carrier = max(members, key=lambda number: _unchanged(texts[number]))
        for number in members:
            changed, needed = texts[number].changed, texts[number].needed
            if number != carrier and changed and changed <= needed:
                starts[number] = Start(changed, carrier)
    return starts


def _unchanged(text: Text) -> float:
    """Return the hidden state up to which a sequence depends on nothing but its tokens."""
    return float("inf") if text.changed is None else text.changed


class Prefix(NamedTuple):
    """What a sequence begins with: the first `length` tokens of the sequence `carrier`, by its number."""

    carrier: int
    length: int


def share_prefixes(texts: Sequence[NDArray[np.int64]], most: Sequence[int]) -> list[Prefix | None]:
    """Return the prefix that each sequence shares with a carrier; None if it runs whole.

    `texts` are the tokens of the sequences, int64 (N,) each. Text i may share at most `most[i]` of them, 0 if
    it has to run whole. A carrier runs whole, and may be the carrier of several.
    """
    prefixes: list[Prefix | None] = [None] * len(texts)
    alike: dict[bytes, list[int]] = defaultdict(list)
    for number, text in enumerate(texts):
        if len(text) >= FEWEST_SHARED:
            alike[text[:FEWEST_SHARED].tobytes()].append(number)
    for members in alike.values():
        carrier = max(members, key=lambda number: (most[number] == 0, len(texts[number])))
        for number in members:
            length = min(most[number], _common(texts[carrier], texts[number]))
            if number != carrier and length >= FEWEST_SHARED:
                prefixes[number] = Prefix(carrier, length)
    return prefixes


def _common(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """Count the tokens with which both begin."""
    shorter = min(len(one), len(other))
    differ = np.flatnonzero(one[:shorter] != other[:shorter])
    return int(differ[0]) if len(differ) else shorter
