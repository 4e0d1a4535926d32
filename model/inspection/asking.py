"""What a sequence needs of a graph, so that those that need the same run together."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from model.contract import AttentionWant, Axis, Want

_ROOM = 2**25
"""Softmax weights of one sequence that a graph may hand out at once: 128 MiB."""


class Maps(NamedTuple):
    """Softmax weights of one layer: sorted, distinct heads, and query positions (None: all)."""

    layer: int
    heads: tuple[int, ...]
    rows: tuple[int, ...] | None


class Heads(NamedTuple):
    """Sorted, distinct heads of one layer."""

    layer: int
    heads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """What the graph computes for a sequence beside its hidden states.

    `depth` layers run whole; of the one after them, only what is looked at. `maps` are softmax weights,
    `pairs` queries and keys, from which everything else is computed, `norms` those of the values.
    """

    depth: int
    maps: tuple[Maps, ...] = ()
    pairs: tuple[Heads, ...] = ()
    norms: tuple[Heads, ...] = ()


def ask(want: Want, length: int) -> Ask:
    """Translate what a sequence of `length` tokens must return."""
    attention, summary = want.attention, want.summary
    states = (*want.token_layers, *(want.sentence.layers if want.sentence is not None else ()))
    looked = max((*(attention.layers if attention else ()), *(summary.layers if summary else ())), default=0)
    depth = max((*states, looked), default=0)
    maps: tuple[Maps, ...] = ()
    norms: tuple[Heads, ...] = ()
    pairs: dict[int, set[int]] = {}
    if attention is not None:
        heads = _sorted(attention.heads)
        layers = _sorted(attention.layers)
        if attention.weights == "value_norm":
            norms = tuple(Heads(layer, heads) for layer in layers)
        rows = _rows(attention.queries)
        numbers = len(layers) * len(heads) * (length if rows is None else len(rows)) * length
        if _as_they_are(attention) and numbers <= _ROOM:
            maps = tuple(Maps(layer, heads, rows) for layer in layers)
        else:
            through = range(layers[-1] + 1) if attention.aggregate == "rollout" else layers
            pairs = {layer: set(heads) for layer in through}
    if summary is not None:
        for layer in summary.layers:
            pairs.setdefault(layer, set()).update(summary.heads)
    listed = tuple(Heads(layer, _sorted(heads)) for layer, heads in sorted(pairs.items()))
    return Ask(depth, maps, listed, norms)


def _as_they_are(want: AttentionWant) -> bool:
    """Whether the graph's own softmax weights are what is wanted.

    Scores, and what is aggregated over heads, are computed from queries and keys block by block: maps of all
    heads would need more memory than their result.
    """
    return want.weights != "score" and want.aggregate == "none"


def _rows(axis: Axis | None) -> tuple[int, ...] | None:
    # The words of each text are other tokens: asked for one by one, no two texts would run together.
    return None if axis is None or axis.tokens is not None else _sorted(axis.positions)


def _sorted(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(numbers)))
