"""Makes the interventions of packed sequences while PyTorch's modules run them, layer by layer.

Interventions in one sequence leave the numbers of the others in the batch as they are, to the bit: all are
computed together first, and then what is changed is computed again or changed in place.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.encoder.interventions import (
    EdgeWords,
    HeadScale,
    Interventions,
    LayerEdges,
    StateChange,
    join_heads,
)
from model.encoder.linear import widened
from model.encoder.packing import Packing
from model.encoder.sharing import Start

LOWEST = torch.finfo(torch.float32).min
"""The score of a key that is hidden from a query, in place of −∞."""
_NUMBERS_AT_ONCE = 2**23
"""How many scores are kept in memory at a time."""

Scores = Callable[[Tensor, Tensor, NDArray[np.int64], NDArray[np.int64]], Tensor]
"""Computes the scores of some heads and rows from q and k (1, N, H, D): (1, heads, rows, N)."""


def weigh(scores: Tensor) -> Tensor:
    """Compute the softmax over the keys, (…, rows, N); a row whose keys are all hidden has weights of 0."""
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
        """Change the outputs of heads, `mixed` (T, H, D), in place; q, k and v are of all T tokens."""
        rows = slice(self.start, self.stop)
        if self.edges:
            self._attend(q[rows], k[rows], v[rows], mixed[rows], scores)
        if self.scales:
            factors, means = np.ones(q.shape[1], np.float32), np.zeros(q.shape[1], bool)
            join_heads(self.scales, factors, means)
            outputs, averaged = widened(mixed[rows]), torch.from_numpy(means).to(q.device)  # (N, H, D)
            outputs = torch.where(averaged[:, None], outputs.mean(0, keepdim=True), outputs)
            mixed[rows] = (outputs * torch.from_numpy(factors).to(q.device)[:, None]).to(mixed.dtype)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mixed: Tensor, scores: Scores) -> None:
        """Attend again in the rows and heads with blocked edges; all arrays are (N, H, D)."""
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


class _Copy(NamedTuple):
    """The packed tokens of consecutive sequences, and the tokens whose states they copy, int64 (rows,)."""

    rows: slice
    carriers: Tensor


def _copies(starts: Sequence[Start | None], packing: Packing) -> dict[int, _Copy]:
    """Map each hidden state with which sequences begin to what is copied there."""
    copies, offsets, first = {}, packing.offsets, 0
    for state, members in groupby(starts, lambda start: start.state if start else 0):
        carriers = [start.carrier if start else 0 for start in members]
        last = first + len(carriers)
        if state:
            rows = slice(packing.starts[first], packing.starts[last])
            shifts = (offsets[carriers] - offsets[first:last]).repeat(packing.lengths[first:last])
            copies[state] = _Copy(rows, torch.from_numpy(shifts + np.arange(rows.start, rows.stop)))
        first = last
    return copies


class Edits:
    """What is changed in a pass of packed sequences; `interventions` has an entry for each sequence.

    `starts` says where each begins, in the order of states; it is empty if all begin with embeddings.
    """

    def __init__(
        self,
        interventions: Sequence[Interventions | None],
        packing: Packing,
        starts: Sequence[Start | None] = (),
    ) -> None:
        self._packing = packing
        self._states: dict[int, list[tuple[int, StateChange]]] = defaultdict(list)
        """Hidden state -> its changes, each with the first token of its sequence."""
        self._layers: dict[int, list[Edit]] = defaultdict(list)
        self._edges: dict[tuple[int, int], EdgeWords] = {}
        """(id of the edges, length) -> their words, for all sequences that have the same."""
        self._starts = [0 if start is None else start.state for start in starts]
        self._copies = _copies(starts, packing)
        for number, one in enumerate(interventions):
            if one is not None:
                self._take(number, one)

    def _take(self, number: int, one: Interventions) -> None:
        """Sort the interventions of a sequence by layer."""
        packing = self._packing
        start, length = packing.starts[number], packing.lengths[number]
        unattended = packing.unattended[number] if packing.unattended else 0
        for change in one.states:
            self._states[change.layer].append((start, change))
        edges = self._edges.setdefault((id(one.edges), length), EdgeWords(one.edges, length))
        layers = {head.layer for head in one.heads}.union(*(edges.layers for edges in one.edges))
        for layer in layers:
            scales = [head for head in one.heads if head.layer == layer]
            edit = Edit(number, start, start + length, scales, edges.layer(layer), unattended)
            self._layers[layer].append(edit)

    def of_layer(self, layer: int) -> Sequence[Edit]:
        """Return what is changed in the attention of a layer."""
        return self._layers.get(layer, ())

    @property
    def states(self) -> frozenset[int]:
        """The numbers of the hidden states that are changed, and of those with which sequences begin."""
        return frozenset((*self._states, *self._starts)) - {0}

    def running(self, layer: int) -> int:
        """Return how many sequences run a layer: they are the first ones."""
        return bisect_right(self._starts, layer) if self._starts else len(self._packing.lengths)

    def begin(self, number: int, x: Tensor) -> None:
        """Copy a hidden state (T, C) to the sequences that begin with it."""
        if number in self._copies:
            rows, carriers = self._copies[number]
            x[rows] = x[carriers]

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
