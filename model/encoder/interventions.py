"""What is changed in the run of one sequence: the outputs of heads, the edges of attention, hidden states.

Plain data, which every backend reads: no PyTorch. All indices are non-negative and already checked.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from model.errors import Unsupported

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

    def check_runs(self, allowed: Collection[InterventionKind]) -> None:
        """Raise Unsupported, with the way out, unless a model that runs the `allowed` kinds can run these."""
        missing = [kind for kind in self.kinds if kind not in allowed]
        if missing:
            raise Unsupported(
                f"this model runs as a graph, in which {' and '.join(missing)} cannot be changed: serve its "
                'checkpoint with PyTorch (HEADLIGHT_BACKEND="torch"), which runs every intervention.',
                field="interventions",
            )
