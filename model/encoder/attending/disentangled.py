"""Disentangled attention: scores between contents and distances of positions (He et al. 2021, §3.1).

The score of a query i and a key j has, besides q_i·k_j, the terms q_i·K[r] and k_j·Q[r]: r is the row of
their distance, and K and Q are a layer's projections of a table of embeddings of distances. The projections
do not depend on the texts, so they are computed once.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from model.encoder.config import EncoderConfig
from model.encoder.linear import widened
from model.encoder.norms import make_norm
from model.encoder.parts import Disentangled
from model.encoder.positions import by_query_and_key

# How many scores, and products with vectors of positions, attention keeps in memory at a time.
_NUMBERS_AT_ONCE = 2**23


class PositionVectors(NamedTuple):
    """What contents are compared with: keys and queries of positions, (H, R, D) each, or None.

    `rows`, int64 (2·longest − 1,) on the CPU, has the row of each of the `distances` of the longest sequence.
    """

    keys: Tensor | None
    queries: Tensor | None
    rows: Tensor

    def each(self, change: Callable[[Tensor], Tensor]) -> "PositionVectors":
        """Return these with `change` applied to the keys and the queries."""
        keys, queries = (None if vectors is None else change(vectors) for vectors in self[:2])
        return PositionVectors(keys, queries, self.rows)

    def within(self, length: int) -> "PositionVectors":
        """Keep the vectors that sequences of this length need: rows are in the order of distances."""
        middle, length = len(self.rows) // 2, max(1, length)
        rows = self.rows[middle - length + 1 : middle + length]
        first, last = int(rows[-1]), int(rows[0])
        return self._replace(rows=rows - first).each(lambda vectors: vectors[:, first : last + 1])

    @property
    def number(self) -> int:
        """R, how many vectors each head has."""
        return next(vectors.shape[1] for vectors in self[:2] if vectors is not None)


class DistanceEmbeddings(nn.Module):
    """The embeddings of distances that all layers share, normalised if the config says so."""

    def __init__(self, config: EncoderConfig, disentangled: Disentangled) -> None:
        super().__init__()
        shape = (2 * disentangled.span, config.hidden_size)
        self.table = nn.Parameter(torch.empty(shape), requires_grad=False)
        self.norm = make_norm(config) if disentangled.norm else nn.Identity()

    def forward(self) -> Tensor:
        """Return the embeddings, (2·span, C)."""
        embeddings: Tensor = self.norm(self.table)
        return embeddings


def position_scores(q: Tensor, k: Tensor, vectors: PositionVectors, queries: Tensor) -> Tensor:
    """Compute the terms of the scores that depend on positions: (…, heads, rows, N).

    `q` (…, heads, rows, D) are the queries at the positions `queries`, int64 (rows,); `k` (…, heads, N, D).
    The vectors are of the same heads as q and k. A sum of two terms is rounded to the dtype of q.
    """
    rows = by_query_and_key(vectors.rows.to(q.device), k.shape[-2], queries)  # (rows, N)
    shape = (*q.shape[:-1], k.shape[-2])
    terms = []
    if vectors.keys is not None:
        by_row = q @ vectors.keys.transpose(-2, -1)  # (…, heads, rows, R)
        terms.append(by_row.gather(-1, rows.expand(shape)))
    if vectors.queries is not None:
        by_row = k @ vectors.queries.transpose(-2, -1)  # (…, heads, N, R)
        turned = rows.t().expand(*shape[:-2], shape[-1], shape[-2])
        terms.append(by_row.gather(-1, turned).transpose(-2, -1))
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


def attend_disentangled(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    vectors: PositionVectors,
    scale: float,
    visible: Callable[[Tensor], Tensor | None],
) -> Tensor:
    """Attend with q, k and v (b, H, N, D) to the same shape, block by block, so that memory is bounded.

    `visible` returns which keys some queries attend to, as `positions.visible` does. The softmax is computed
    in float32.
    """
    every, mixed = torch.arange(q.shape[2], device=q.device), torch.empty_like(q)
    count, every_head, length, _ = q.shape
    for some, heads, rows in _blocks(count, every_head, length, vectors.number):
        here, keys, queries = q[some, heads, rows] * scale, k[some, heads], every[rows]
        scores = widened(here @ keys.transpose(-2, -1))  # (sequences, heads, rows, N)
        scores += position_scores(here, keys * scale, vectors.each(itemgetter(heads)), queries)
        mask = visible(queries)
        if mask is not None:
            scores.masked_fill_(~mask, -torch.inf)
        mixed[some, heads, rows] = torch.softmax(scores, dim=-1).to(v.dtype) @ v[some, heads]
    return mixed


def _blocks(count: int, heads: int, length: int, vectors: int) -> Iterator[tuple[slice, slice, slice]]:
    """Split sequences, heads and queries into blocks: whole sequences, or else whole heads, or else rows."""
    pairs = max(1, _NUMBERS_AT_ONCE // (length * (length + 2 * vectors)))  # of a sequence and a head
    rows = length if pairs > 1 else max(1, _NUMBERS_AT_ONCE // length)
    steps = ((count, max(1, pairs // heads)), (heads, min(heads, pairs)), (length, rows))
    return product(*([slice(i, min(i + step, n)) for i in range(0, n, step)] for n, step in steps))


def distance_rows(distance: Tensor, disentangled: Disentangled) -> Tensor:
    """Return the rows in the table of embeddings for distances from query to key: int64 of any shape.

    Keys before their query have the rows from `span` on.
    """
    span = disentangled.span
    table = torch.tensor(_steps_by_distance(disentangled), device=distance.device)
    steps = table[distance.abs().clamp(max=len(table) - 1)]
    return (span - distance.sign() * steps).clamp(max=2 * span - 1)


@cache
def _steps_by_distance(disentangled: Disentangled) -> list[int]:
    """List how far from the middle of the table the row of each distance is; the last serves longer ones.

    Computed in float32, step by step as in training: rounding decides between neighbouring buckets. In numpy,
    because a tracer would trace PyTorch's operations.
    """
    span, exact = disentangled.span, disentangled.buckets // 2
    if not disentangled.buckets:
        return list(range(span + 1))
    far = np.arange(exact + 1, 2 * disentangled.max_distance + 1, dtype=np.float32)
    most = np.log(np.float32((disentangled.max_distance - 1) / exact))
    logarithmic = np.ceil(np.log(far / np.float32(exact)) / most * np.float32(exact - 1)) + exact
    return [*range(exact + 1), *np.minimum(logarithmic, span).astype(np.int64).tolist()]
