"""Pools the hidden states of a sequence into one vector, in numpy, for a runtime that returns arrays.

`pooling.py` does the same for tensors on a device. The steps after pooling are here for both.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from model.contract import FloatArray, PoolingMode, SentenceWant


def pool(
    hidden: FloatArray, lengths: NDArray[np.int64], skip: int, modes: Sequence[PoolingMode]
) -> FloatArray:
    """Pool each of B sequences, packed end to end in `hidden` (T, C): float32 (B, len(modes)·C).

    The first `skip` tokens of each are left out, but "weighted_mean" still counts them. The modes are those
    of `model.heads.pooling.Bags`. Raises ValueError if a sequence has no tokens left.
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
    """Tokens (T, C) of several sequences, end to end; `position` (T,) counts within each sequence."""

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
    """Compute the sentence vectors of a batch: index of a sequence that wants one -> float32 (E,).

    Sequences with the same want are pooled together: `pool_members(want, which)` returns
    (len(which), C′). `dense` are the layers applied after pooling.
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
    """Truncate vectors (B, E) to `dimensions`, then scale them to unit L2 norm if `normalize`.

    Zero vectors stay zero. The order is that of Matryoshka embeddings (Kusupati et al. 2022): truncate
    first, then normalise.
    """
    vectors = vectors[:, :dimensions]
    if normalize:
        norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
        vectors = vectors / np.maximum(norms, np.float32(1e-12))
    return np.ascontiguousarray(vectors, dtype=np.float32)
