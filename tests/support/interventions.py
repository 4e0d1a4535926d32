"""Random interventions, as the product takes them and as the references do."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from model.contract import Want
from model.encoder.interventions import (
    INTERVENTION_KINDS,
    BlockedEdges,
    HeadScale,
    InterventionKind,
    Interventions,
    StateChange,
)

Change = dict[str, Any]


def random_changes(
    random: np.random.Generator,
    layers: int,
    heads: int,
    width: int,
    length: int,
    kinds: Sequence[InterventionKind] = INTERVENTION_KINDS,
) -> list[Change]:
    """One to four interventions in a sequence; some leave queries without keys, or change a thing twice."""
    every = {"heads": _scale, "edges": _edges, "states": _states}
    makers = [every[kind] for kind in kinds]
    count = random.integers(1, 5)
    return [makers[random.integers(len(makers))](random, layers, heads, width, length) for _ in range(count)]


def in_layers(changes: Sequence[Change], attending: Sequence[int]) -> list[Change]:
    """The same changes, those of heads and edges in layers that attend."""

    def moved(layer: int) -> int:
        return attending[layer % len(attending)]

    return [
        {**one, "layer": moved(one["layer"])}
        if one["kind"] == "heads"
        else {**one, "layers": sorted({*map(moved, one["layers"])})}
        if one["kind"] == "edges"
        else one
        for one in changes
    ]


def interventions_of(changes: Sequence[Change]) -> Interventions:
    """The same for the product."""
    return Interventions(
        tuple(
            HeadScale(one["layer"], tuple(one["heads"]), one.get("scale", 0.0), one.get("mean", False))
            for one in changes
            if one["kind"] == "heads"
        ),
        tuple(
            BlockedEdges(*(tuple(one[name]) for name in ("layers", "heads", "queries", "keys")))
            for one in changes
            if one["kind"] == "edges"
        ),
        tuple(
            StateChange(one["layer"], tuple(one["tokens"]), one["vector"], one["add"])
            for one in changes
            if one["kind"] == "states"
        ),
    )


def with_changes(want: Want, changes: Sequence[Change]) -> Want:
    """A want of the run with interventions."""
    return Want(
        want.sentence,
        want.token_layers,
        want.attention,
        want.summary,
        want.task,
        want.heads,
        interventions_of(changes),
    )


def _some(random: np.random.Generator, count: int) -> list[int]:
    chosen = random.choice(count, random.integers(1, count + 1), replace=False)
    return [int(number) for number in chosen]


def _scale(random: np.random.Generator, layers: int, heads: int, _: int, __: int) -> Change:
    change: Change = {"kind": "heads", "layer": int(random.integers(layers)), "heads": _some(random, heads)}
    if random.integers(3) == 0:
        return {**change, "mean": True}
    return {**change, "scale": float(random.choice([0.0, 0.5, -1.0, 2.25]))}


def _edges(random: np.random.Generator, layers: int, heads: int, _: int, length: int) -> Change:
    keys = list(range(length)) if random.integers(4) == 0 else _some(random, length)
    return {
        "kind": "edges",
        "layers": _some(random, layers),
        "heads": _some(random, heads),
        "queries": _some(random, length),
        "keys": keys,
    }


def _states(random: np.random.Generator, layers: int, _: int, width: int, length: int) -> Change:
    return {
        "kind": "states",
        "layer": int(random.integers(layers + 1)),
        "tokens": _some(random, length),
        "vector": random.standard_normal(width).astype(np.float32),
        "add": bool(random.integers(2)),
    }
