"""Which sequences of a batch share the layers below their first change: texts that differ in interventions.

Two sequences of the same tokens, of which one is changed from layer l on, have the same hidden states up to
state l. One of them, the carrier, runs from the embeddings on; the other begins as a copy of its state l.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple


class Start(NamedTuple):
    """Where a sequence begins: as a copy of hidden state `state` of the sequence `carrier`, by its number."""

    state: int
    carrier: int


class Text(NamedTuple):
    """What decides with which others a sequence can share layers.

    Sequences with equal `tokens` have the same embeddings and weights. `changed` is the first hidden state
    that is changed, or the state before the first layer that is, and None if nothing is changed. `needed` is
    the first hidden state that is needed of it, or that before the first layer that is observed.
    """

    tokens: Hashable
    changed: int | None
    needed: int


def share_layers(texts: Sequence[Text]) -> list[Start | None]:
    """Say where each sequence begins: None is with its own embeddings, as all carriers do."""
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
    """Up to which hidden state a sequence is that of its tokens alone."""
    return float("inf") if text.changed is None else text.changed
