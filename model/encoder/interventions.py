"""What is changed in the run of one sequence: the outputs of heads, the edges of attention, hidden states.

It also says at which other hidden state 0 the gradient of a score is computed. This is plain data that every
backend reads, without PyTorch. All indices are non-negative and already checked.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from model.errors import Unsupported

Indices = slice | NDArray[np.int64]
Words = NDArray[np.uint32]
InterventionKind = Literal["heads", "edges", "states"]
INTERVENTION_KINDS: tuple[InterventionKind, ...] = get_args(InterventionKind)
_WORD = 32  # bits


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
    first block reads it, l is what block l hands to block l + 1, and L is the last one as it is returned,
    after the final norm of models that have one. Each change is equal only to itself.
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

    def __add__(self, others: "Interventions") -> "Interventions":
        """Return these and others, together."""
        return Interventions(
            self.heads + others.heads, self.edges + others.edges, self.states + others.states
        )

    @property
    def kinds(self) -> tuple[InterventionKind, ...]:
        """The kinds of intervention that occur here, in the order of `INTERVENTION_KINDS`."""
        return tuple(kind for kind in INTERVENTION_KINDS if getattr(self, kind))

    @property
    def first(self) -> int | None:
        """The first hidden state that is changed or is the input of a changed layer; None if none is."""
        layers = [one.layer for one in self.heads] + [one.layer for one in self.states]
        return min((*layers, *(layer for one in self.edges for layer in one.layers)), default=None)

    def check_runs(self, allowed: Collection[InterventionKind]) -> None:
        """Raise Unsupported, with the way out, unless a model that runs the `allowed` kinds can run these."""
        missing = [kind for kind in self.kinds if kind not in allowed]
        if missing:
            way_out = (
                "serve its weights" if "states" in missing else "export its weights again, or serve them"
            )
            raise Unsupported(
                f"this model runs as a graph, in which {' and '.join(missing)} cannot be changed: {way_out} "
                'with PyTorch (HEADLIGHT_BACKEND="torch"), which runs every intervention.',
                field="interventions",
            )


class EdgeWords:
    """The blocked edges of a sequence of N tokens in words of 32 bits, with one bit for each `BlockedEdges`.

    A key is hidden from a query in a head if the words of all three and of the layer have a bit in common.
    So rows of scores cost the same with 1 as with 32 blocked edges, however many keys these have.
    """

    def __init__(self, edges: Sequence[BlockedEdges], length: int) -> None:
        """Take the edges of a sequence, for all of its layers."""
        self.edges, self.length = edges, length
        self.count = -(-len(edges) // _WORD)
        """How many words each layer, head, query and key has."""
        self._layers: dict[int, LayerEdges] = {}

    @cached_property
    def queries(self) -> Words:
        """The words of the queries, uint32 (N, words)."""
        return self._words((one.queries for one in self.edges), self.length)

    @cached_property
    def keys(self) -> Words:
        """The words of the keys, uint32 (words, N)."""
        return np.ascontiguousarray(self._words((one.keys for one in self.edges), self.length).T)

    def heads(self, count: int) -> Words:
        """Return the words of `count` heads, or up to the last head with edges, uint32 (heads, words)."""
        last = max((head for one in self.edges for head in one.heads), default=-1)
        return self._words((one.heads for one in self.edges), max(count, last + 1))

    def layer(self, number: int) -> "LayerEdges":
        """Return the edges of a layer, one object for all sequences that have these edges."""
        if number not in self._layers:
            self._layers[number] = LayerEdges(self, number)
        return self._layers[number]

    def words_of_layer(self, number: int) -> Words:
        """Return the words of a layer, uint32 (words,)."""
        return self._words(((0,) if number in one.layers else () for one in self.edges), 1)[0]

    def _words(self, several: Iterable[Sequence[int]], size: int) -> Words:
        found = np.zeros((size, self.count), np.uint32)
        for number, places in enumerate(several):
            found[list(places), number // _WORD] |= np.uint32(1 << number % _WORD)
        return found


@dataclass(frozen=True, slots=True)
class Side:
    """One of the texts, end to end, from which a score is computed: its tokens, and which of them count.

    The first `skip` tokens are not pooled; `rows` are those with a vector for late interaction, counted from
    the first token of this text. No token attends to the last `unattended` ones.
    """

    length: int
    skip: int = 0
    rows: tuple[int, ...] = ()
    unattended: int = 0


@dataclass(frozen=True, slots=True)
class GradientPoint:
    """The point, between a baseline and the input, at which the gradient of a score is computed.

    There, hidden states 0 of `tokens` are b + share · (x − b), where x is their own and b that of the token
    `baseline` in their places. The output `gradient` has (x − b) · (gradient by that state) for each token,
    and `value` is the score at that point (Sundararajan et al. 2017).

    The score of the `sides` is the similarity of two sentence vectors by this `function`, MaxSim of the
    vectors of two texts (with "mean_max_sim" its mean), or the logit number `label` of a text or of its
    `token`. It is computed in float32 with the weights of the checkpoint, however the model runs otherwise.
    """

    passes: ClassVar[int] = 3
    """How many plain passes take about as long as one pass forward and back."""

    sides: tuple[Side, ...]
    function: str = "cosine"
    label: int = 0
    token: int | None = None
    tokens: tuple[int, ...] = ()
    baseline: int = 0
    share: float = 1.0


class LayerEdges:
    """The edges that are blocked in one layer of one sequence of N tokens."""

    def __init__(self, all_edges: EdgeWords, layer: int) -> None:
        """Select the edges of a layer."""
        self.all = all_edges
        self.words = all_edges.words_of_layer(layer)
        """The words of the layer, uint32 (words,)."""
        self._any = bool(self.words.any())
        self._of_heads: dict[int, Words] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return self._any

    def of_heads(self, count: int) -> Words:
        """Return the words of `count` heads, or up to the last head with edges, uint32 (heads, words)."""
        if count not in self._of_heads:
            self._of_heads[count] = self.all.heads(count) & self.words
        return self._of_heads[count]

    @property
    def heads(self) -> NDArray[np.int64]:
        """The heads with blocked edges, int64, sorted."""
        return np.flatnonzero(self.of_heads(0).any(1))

    @property
    def queries(self) -> NDArray[np.int64]:
        """The queries with blocked edges in some head, int64, sorted."""
        return np.flatnonzero((self.all.queries & self.words).any(1))

    def mask(self, heads: NDArray[np.int64], rows: Indices) -> NDArray[np.bool_]:
        """Return which keys are blocked from the queries `rows` in each head: bool (heads, rows, N)."""
        by_head = self.of_heads(1 + int(heads.max(initial=-1)))[heads]
        both = by_head[:, None] & self.all.queries[rows]  # (heads, rows, words)
        blocked = np.zeros((*both.shape[:2], self.all.length), bool)
        for number, keys in enumerate(self.all.keys):
            blocked |= (both[..., number, None] & keys) != 0
        return blocked


def join_heads(changes: Sequence[HeadScale], scales: NDArray[Any], means: NDArray[Any]) -> None:
    """Write a layer's changes to `scales` (H,), all ones, and `means` (H,), all zeros: 1 is averaged."""
    for one in changes:
        index = list(one.heads)
        if one.mean:
            means[index] = 1
        else:
            scales[index] *= np.float32(one.scale)
