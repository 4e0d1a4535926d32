"""Makes the interventions of packed sequences while PyTorch's modules run them, layer by layer.

A sequence with interventions lies among others, whose numbers stay as they are, to the bit: they are computed
first, all together, and then what is changed is computed anew or changed in place.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.encoder.interventions import (
    HeadScale,
    Interventions,
    LayerEdges,
    StateChange,
    head_changes,
)
from model.encoder.linear import widened
from model.encoder.packing import Packing
from model.encoder.sharing import Start

LOWEST = torch.finfo(torch.float32).min
"""The score of a key that is hidden from a query, in place of −∞."""
_NUMBERS_AT_ONCE = 2**23
"""Scores that are kept in memory at a time."""

Scores = Callable[[Tensor, Tensor, NDArray[np.int64], NDArray[np.int64]], Tensor]
"""Computes the scores of some heads and rows from q and k (1, N, H, D): (1, heads, rows, N)."""


def weigh(scores: Tensor) -> Tensor:
    """Softmax over the keys, (…, rows, N); a row in which all keys are hidden has the weights 0."""
    return torch.softmax(scores, dim=-1).masked_fill_(scores.amax(-1, keepdim=True) <= LOWEST, 0)


class Edit(NamedTuple):
    """What is changed in one layer's attention of sequence `number`, the packed tokens `start` to `stop`."""

    number: int
    start: int
    stop: int
    scales: Sequence[HeadScale]
    edges: LayerEdges
    unattended: int

    def make(self, q: Tensor, k: Tensor, v: Tensor, mixed: Tensor, scores: Scores) -> None:
        """Change the outputs of heads, `mixed` (T, H, D), in place; q, k and v are those of all tokens."""
        rows = slice(self.start, self.stop)
        if self.edges:
            self._attend(q[rows], k[rows], v[rows], mixed[rows], scores)
        changes = head_changes(self.scales, q.shape[1])
        if changes is not None:
            scales, means = (torch.from_numpy(one).to(q.device) for one in changes)
            outputs = widened(mixed[rows])  # (N, H, D)
            outputs = torch.where(means[:, None], outputs.mean(0, keepdim=True), outputs)
            mixed[rows] = (outputs * scales[:, None]).to(mixed.dtype)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mixed: Tensor, scores: Scores) -> None:
        """Attend anew in the rows and heads with blocked edges; all arrays (N, H, D)."""
        length, heads, queries = len(q), self.edges.heads, self.edges.queries
        step = max(1, _NUMBERS_AT_ONCE // (length * len(heads)))
        index = torch.from_numpy(heads).to(q.device)
        values = v.index_select(1, index).transpose(0, 1)  # (heads, N, D)
        for first in range(0, len(queries), step):
            rows = queries[first : first + step]
            some = scores(q[None], k[None], heads, rows)[0]  # (heads, rows, N)
            blocked = self.edges.mask(heads, rows)
            blocked[..., length - self.unattended :] = True
            weights = weigh(some.masked_fill_(torch.from_numpy(blocked).to(q.device), LOWEST))
            attended = weights.to(v.dtype) @ values  # (heads, rows, D)
            places = torch.from_numpy(rows).to(q.device)
            mixed[places[:, None], index] = attended.transpose(0, 1)


class Edits:
    """What is changed in a pass of packed sequences; `interventions` has an entry for each of them.

    `starts` says where each begins, in the order of these states; it is empty if all begin with embeddings.
    """

    def __init__(
        self,
        interventions: Sequence[Interventions | None],
        packing: Packing,
        starts: Sequence[Start | None] = (),
    ) -> None:
        self._states: dict[int, list[tuple[int, StateChange]]] = defaultdict(list)
        """Hidden state -> its changes, each with the first token of its sequence."""
        self._sequences = [(number, one) for number, one in enumerate(interventions) if one is not None]
        self._packing = packing
        self._starts = [0 if start is None else start.state for start in starts]
        self._joins = [(number, start) for number, start in enumerate(starts) if start is not None]
        for number, one in self._sequences:
            for change in one.states:
                self._states[change.layer].append((packing.starts[number], change))

    def of_layer(self, layer: int) -> list[Edit]:
        """Return what is changed in the attention of a layer."""
        edits = []
        for number, one in self._sequences:
            length = self._packing.lengths[number]
            scales = [head for head in one.heads if head.layer == layer]
            edges = LayerEdges(one.edges, layer, length)
            if scales or edges:
                start = self._packing.starts[number]
                unattended = self._packing.unattended[number] if self._packing.unattended else 0
                edits.append(Edit(number, start, start + length, scales, edges, unattended))
        return edits

    @property
    def states(self) -> frozenset[int]:
        """The numbers of the hidden states that are changed, and of those with which sequences begin."""
        return frozenset((*self._states, *self._starts)) - {0}

    def running(self, layer: int) -> int:
        """Return how many sequences, the first ones, run a layer."""
        return bisect_right(self._starts, layer) if self._starts else len(self._packing.lengths)

    def begin(self, number: int, x: Tensor) -> list[int]:
        """Copy a hidden state (T, C) to the sequences that begin with it; returns their rows."""
        begun: list[int] = []
        for sequence, start in self._joins:
            if start.state == number:
                place, length = self._packing.starts[sequence], self._packing.lengths[sequence]
                first = self._packing.starts[start.carrier]
                x[place : place + length] = x[first : first + length]
                begun += range(place, place + length)
        return begun

    def change_state(self, number: int, x: Tensor) -> list[int]:
        """Change the rows of a hidden state, (T, C), in place; returns which rows, perhaps with repeats."""
        changed: list[int] = []
        for start, change in self._states.get(number, ()):
            rows = [start + token for token in change.tokens]
            vector = torch.tensor(change.vector, dtype=x.dtype, device=x.device)
            x[rows] = x[rows] + vector if change.add else vector
            changed += rows
        return changed

    def changed(self, number: int, x: Tensor) -> Tensor:
        """Return a hidden state with its changes: a copy if there are any."""
        if number not in self._states:
            return x
        x = x.clone()
        self.change_state(number, x)
        return x
