"""Chooses what to fetch from a graph for a sequence; sequences with equal fetches run together."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from model.choices import Axis
from model.contract import AttentionWant, Want

_ROOM = 2**25
"""The most softmax weights of one sequence that a graph may return in one run: 128 MiB."""


class LayerHeads(NamedTuple):
    """Sorted, distinct heads of one layer, and query positions (None: all)."""

    layer: int
    heads: tuple[int, ...]
    rows: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Fetches:
    """What the graph computes for a sequence besides its hidden states.

    The first `depth` layers run completely; the layer after them only attends. `maps` are softmax weights;
    `pairs` are queries and keys, from which other weights are computed; `norms` are the norms of the values.
    `pairs` and `norms` are for every token.
    """

    depth: int
    maps: tuple[LayerHeads, ...] = ()
    pairs: tuple[LayerHeads, ...] = ()
    norms: tuple[LayerHeads, ...] = ()


def choose_fetches(want: Want, length: int, layers: int) -> Fetches:
    """Choose what to fetch for a sequence of `length` tokens from a graph of `layers`, given its want."""
    attention, summary = want.attention, want.summary
    observed = (*(attention.layers if attention else ()), *(summary.layers if summary else ()))
    depth = max((*want.states(layers), *observed), default=0)
    maps: tuple[LayerHeads, ...] = ()
    norms: tuple[LayerHeads, ...] = ()
    pairs: dict[int, set[int]] = {}
    if attention is not None and attention.maps:
        heads = _sorted(attention.heads)
        chosen = _sorted(attention.layers)
        if attention.weights == "value_norm":
            norms = tuple(LayerHeads(layer, heads) for layer in chosen)
        rows = _rows(attention.queries)
        numbers = len(chosen) * len(heads) * (length if rows is None else len(rows)) * length
        if _as_they_are(attention) and numbers <= _ROOM and not _hides_keys(want):
            maps = tuple(LayerHeads(layer, heads, rows) for layer in chosen)
        else:
            through = range(chosen[-1] + 1) if attention.aggregate == "rollout" else chosen
            pairs = {layer: set(heads) for layer in through}
    for one in (summary, attention if attention and attention.vectors else None):
        for layer in one.layers if one else ():
            pairs.setdefault(layer, set()).update(one.heads if one else ())
    listed = tuple(LayerHeads(layer, _sorted(heads)) for layer, heads in sorted(pairs.items()))
    return Fetches(depth, maps, listed, norms)


def _as_they_are(want: AttentionWant) -> bool:
    """Whether the want can use the graph's own softmax weights.

    Scores, aggregated maps, thumbnails and edges are computed from queries and keys, block by block: fetching
    the maps of all heads would need more memory than the result, and the rows of edges differ from text to
    text.
    """
    reduced = want.thumbnail is not None or want.edges is not None
    return want.weights != "score" and want.aggregate == "none" and not reduced


def is_changed(want: Want) -> bool:
    """Whether interventions change the run of a sequence."""
    return want.interventions is not None and bool(want.interventions.kinds)


def _hides_keys(want: Want) -> bool:
    """Whether interventions may leave rows without keys; maps from queries and keys have 0 there."""
    return want.interventions is not None and bool(want.interventions.edges)


def _rows(axis: Axis | None) -> tuple[int, ...] | None:
    # Each text's words are different tokens: if they were listed, no two texts would have equal fetches.
    return None if axis is None or axis.tokens is not None else _sorted(axis.positions)


def _sorted(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(numbers)))
