"""From the hidden states of a sequence to one vector, in numpy: for a runtime that hands out arrays.

`pooling.py` does the same where the states are tensors on a device; what follows the pooling is here for
both.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from model.contract import FloatArray, PoolingMode, SentenceWant


def pool(
    hidden: FloatArray, lengths: NDArray[np.int64], skip: int, modes: Sequence[PoolingMode]
) -> FloatArray:
    """Pool each of B sequences that lie end to end in `hidden` (T, C): float32 (B, len(modes)·C).

    The first `skip` tokens of each are left out, but still counted by "weighted_mean". The modes are those of
    `model.heads.pooling.Bags`. Raises ValueError for a sequence of which nothing is left.
    """
    if (lengths <= skip).any():
        raise ValueError("a sequence has no tokens to pool")
    ends = np.cumsum(lengths)
    position = np.arange(len(hidden)) - np.repeat(ends - lengths, lengths)
    kept = position >= skip
    if skip:
        hidden, position = hidden[kept], position[kept]
    counts = lengths - skip
    ends = np.cumsum(counts)
    bags = _Bags(hidden, position, ends - counts, ends, counts)
    return np.concatenate([bags.pool(mode) for mode in modes], axis=-1)


class _Bags:
    """Tokens of several sequences, end to end, each (T, C) with its `position` in its own sequence (T,)."""

    def __init__(
        self,
        hidden: FloatArray,
        position: NDArray[np.int64],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        counts: NDArray[np.int64],
    ) -> None:
        self._hidden, self._position = hidden, position
        self._starts, self._ends = starts, ends
        self._counts = counts[:, None].astype(np.float32)

    def pool(self, mode: PoolingMode) -> FloatArray:
        """Pool every sequence: (B, C)."""
        match mode:
            case "cls":
                return self._hidden[self._starts]
            case "last":
                return self._hidden[self._ends - 1]
            case "max":
                return np.asarray(np.maximum.reduceat(self._hidden, self._starts, axis=0))
            case "mean":
                return self._sums(self._hidden) / self._counts
            case "mean_sqrt_len":
                roots: FloatArray = np.sqrt(self._counts)
                return self._sums(self._hidden) / roots
            case "weighted_mean":
                weights = (self._position + 1)[:, None].astype(np.float32)
                return self._sums(self._hidden * weights) / self._sums(weights)

    def _sums(self, rows: FloatArray) -> FloatArray:
        return np.asarray(np.add.reduceat(rows, self._starts, axis=0))


def sentences(
    wants: Sequence[SentenceWant | None],
    pool_members: Callable[[SentenceWant, list[int]], FloatArray],
    dense: Sequence[Callable[[FloatArray], FloatArray]],
) -> dict[int, FloatArray]:
    """Make the sentence vectors of a batch: which sequence -> float32 (E,), for those that want one.

    Sequences that want the same are pooled together: `pool_members(want, which)` gives (len(which), C′) of
    them. `dense` are the layers that follow.
    """
    members: dict[SentenceWant, list[int]] = defaultdict(list)
    for i, want in enumerate(wants):
        if want is not None:
            members[want].append(i)
    vectors: dict[int, FloatArray] = {}
    for want, which in members.items():
        pooled = pool_members(want, which)
        for layer in dense:
            pooled = layer(pooled)
        finished = finish(pooled, want.dimensions, normalize=want.normalize)
        vectors.update(zip(which, finished, strict=True))
    return vectors


def finish(vectors: FloatArray, dimensions: int | None, *, normalize: bool) -> FloatArray:
    """Cut vectors (B, E) to their first `dimensions`, then give them unit L2 norm where asked; zeros stay.

    The order is that of Matryoshka embeddings (Kusupati et al. 2022): cut first, then normalise.
    """
    vectors = vectors[:, :dimensions]
    if normalize:
        norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
        vectors = vectors / np.maximum(norms, np.float32(1e-12))
    return np.ascontiguousarray(vectors, dtype=np.float32)
