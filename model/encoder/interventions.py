"""What is changed in the run of one sequence: the outputs of heads, the edges of attention, hidden states.

Plain data, which every backend reads: no PyTorch. All indices are non-negative and already checked.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from model.errors import Unsupported

Indices = slice | NDArray[np.int64]
InterventionKind = Literal["heads", "edges", "states"]
INTERVENTION_KINDS: tuple[InterventionKind, ...] = get_args(InterventionKind)


@dataclass(frozen=True, slots=True)
class HeadScale:
    """Multiplies outputs of heads of a layer (from 0), before W_O, for every token (Michel et al. 2019).

    With `mean`, `scale` is not used: each output is replaced by its mean over the tokens of the sequence.
    """

    layer: int
    heads: tuple[int, ...]
    scale: float = 0.0
    mean: bool = False


@dataclass(frozen=True, slots=True)
class BlockedEdges:
    """Hides `keys` from `queries` in some heads of some layers (from 0): their scores are −∞.

    "Attention knockout" (Geva et al. 2023). The other weights of a row grow. A row without keys gives 0, and
    its weights and its terms in statistics are 0.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    queries: tuple[int, ...]
    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class StateChange:
    """Replaces the hidden states of some tokens by `vector`, float32 (C,), or adds it to them.

    `layer` is the number of the hidden state, as in `Want.token_layers`: 0 is the embedding output as the
    first block reads it, l what block l hands to block l + 1, and L the last one as it is returned, after
    the final norm of models that have one. Each is equal only to itself.
    """

    layer: int
    tokens: tuple[int, ...]
    vector: NDArray[np.float32]
    add: bool = False


@dataclass(frozen=True, slots=True)
class Interventions:
    """All that is changed in the run of one sequence, together.

    If several change one head, its scales are multiplied, after the mean if any asks for it. Blocked edges
    add up. Several changes of one hidden state are made in their order.
    """

    heads: tuple[HeadScale, ...] = ()
    edges: tuple[BlockedEdges, ...] = ()
    states: tuple[StateChange, ...] = ()

    @property
    def kinds(self) -> tuple[InterventionKind, ...]:
        """The kinds of which there is one at least, in the order of `INTERVENTION_KINDS`."""
        return tuple(kind for kind in INTERVENTION_KINDS if getattr(self, kind))

    @property
    def first(self) -> int | None:
        """The first hidden state that is changed, or the one before the first layer that is; None if none."""
        layers = [one.layer for one in self.heads] + [one.layer for one in self.states]
        return min((*layers, *(layer for one in self.edges for layer in one.layers)), default=None)

    def check_runs(self, allowed: Collection[InterventionKind]) -> None:
        """Raise Unsupported, with the way out, unless a model that runs the `allowed` kinds can run these."""
        missing = [kind for kind in self.kinds if kind not in allowed]
        if missing:
            raise Unsupported(
                f"this model runs as a graph, in which {' and '.join(missing)} cannot be changed: serve its "
                'checkpoint with PyTorch (HEADLIGHT_BACKEND="torch"), which runs every intervention.',
                field="interventions",
            )


class LayerEdges:
    """The edges that are blocked in one layer of one sequence of N tokens."""

    def __init__(self, edges: Sequence[BlockedEdges], layer: int, length: int) -> None:
        """Select the `edges` of a layer."""
        self.blocked = [one for one in edges if layer in one.layers]
        self.length = length

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.blocked)

    @property
    def heads(self) -> NDArray[np.int64]:
        """The heads with blocked edges, int64, sorted."""
        return np.unique([head for one in self.blocked for head in one.heads]).astype(np.int64)

    @property
    def queries(self) -> NDArray[np.int64]:
        """The queries with blocked edges in some head, int64, sorted."""
        return np.unique([query for one in self.blocked for query in one.queries]).astype(np.int64)

    def mask(self, heads: NDArray[np.int64], rows: Indices) -> NDArray[np.bool_]:
        """Say which keys are blocked from the queries `rows` in each of the heads: (heads, rows, N)."""
        queries = np.arange(self.length)[rows]
        blocked = np.zeros((len(heads), len(queries), self.length), bool)
        for one in self.blocked:
            here = np.isin(heads, one.heads)[:, None] & np.isin(queries, one.queries)  # (heads, rows)
            blocked[..., list(one.keys)] |= here[..., None]
        return blocked


def join_heads(changes: Sequence[HeadScale], scales: NDArray[Any], means: NDArray[Any]) -> None:
    """Write the changes of a layer to `scales` (H,), of ones, and `means` (H,), of zeros: 1 is averaged."""
    for one in changes:
        index = list(one.heads)
        if one.mean:
            means[index] = 1
        else:
            scales[index] *= np.float32(one.scale)
