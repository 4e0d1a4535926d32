"""Pools the hidden states of a sequence into one vector, with any array library.

Steps that read every token run on the device that holds the states; numpy does the rest, on (B, C).
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from model.arrays import NUMPY, Array, IntArray, Operations, Reduction
from model.contract import FloatArray, PoolingMode, SentenceWant

ADDITIVE: frozenset[PoolingMode] = frozenset(get_args(PoolingMode)) - {"cls", "last"}
"""Poolings to which several tokens contribute."""


def token_weights(mode: PoolingMode, count: int, skip: int) -> NDArray[np.float64] | None:
    """Return the weights by which a pooling sums `count` tokens that follow `skip` skipped ones: (count,).

    None for `max`, which is no weighted sum.
    """
    match mode:
        case "cls" | "last":
            return np.eye(1, count, 0 if mode == "cls" else count - 1)[0]
        case "mean":
            return np.ones(count) / count
        case "mean_sqrt_len":
            return np.ones(count) / np.sqrt(count)
        case "weighted_mean":
            positions = np.arange(skip + 1.0, skip + count + 1)
            return positions / positions.sum()
        case "max":
            return None


class Bags:
    """The tokens of some sequences of a packed batch, without the first `skip` of each.

    `starts` and `lengths` are the first token and the number of tokens of each of B sequences; for these few
    numbers, lists take less time than arrays. Raises ValueError if a sequence has no tokens left.
    """

    def __init__(self, starts: Sequence[int], lengths: Sequence[int], skip: int, ops: Operations) -> None:
        if min(lengths) <= skip:
            raise ValueError("a sequence has no tokens to pool")
        self._counts = [length - skip for length in lengths]
        self._first = [start + skip for start in starts]
        self._skip, self._ops = skip, ops
        *self._starts, total = accumulate(self._counts, initial=0)  # in the pooled tokens, end to end
        shift = self._first[0]
        # Without gaps between the sequences, their tokens are a slice, which needs no copy.
        whole = all(first - start == shift for first, start in zip(self._first, self._starts, strict=True))
        self._rows = slice(shift, shift + total) if whole else self._number(self._first)

    def _number(self, first: Sequence[int]) -> IntArray:
        """Number the tokens of each sequence from `first` on."""
        counts = np.array(self._counts, np.int64)
        return np.arange(counts.sum()) + np.repeat(np.subtract(first, self._starts), counts)

    def pool(self, read: Callable[[int], Array], want: SentenceWant) -> FloatArray:
        """Pool each of B sequences, in float32: (B, layers·modes·C); `read` returns a layer's states (T, C).

        `cls` takes the first token and `last` the last; `mean_sqrt_len` divides the sum by √N;
        `weighted_mean` weights token i (from 1) by i (Muennighoff 2022, SGPT, §3), where i includes the
        skipped tokens. Layers, and the modes of each, are concatenated in their order.
        """
        by_layer = {layer: self._pool_layer(read(layer), want.modes) for layer in set(want.layers)}
        return np.concatenate([x for layer in want.layers for x in by_layer[layer]], axis=-1)

    def _pool_layer(self, hidden: Array, modes: Sequence[PoolingMode]) -> list[FloatArray]:
        hidden = self._ops.float32(hidden)
        return [self._pool_one(hidden, mode) for mode in modes]

    def _pool_one(self, hidden: Array, mode: PoolingMode) -> FloatArray:
        match mode:
            case "cls":
                return self._take(hidden, self._first)
            case "last":
                return self._take(
                    hidden, [first + n - 1 for first, n in zip(self._first, self._counts, strict=True)]
                )
            case "max":
                return self._reduce(hidden, "max")
            case "mean":
                return self._reduce(hidden, "sum") / _column(self._counts)
            case "mean_sqrt_len":
                roots = self._ops.array(_column(self._counts)) ** 0.5  # the libraries round it differently
                return self._reduce(hidden, "sum") / self._ops.numpy(roots)
            case "weighted_mean":
                weights = self._number([self._skip + 1] * len(self._counts)).astype(np.float32)
                # The weights skip + 1, …, skip + n of n tokens sum to n · (2·skip + n + 1) / 2.
                totals = [n * (2 * self._skip + n + 1) // 2 for n in self._counts]
                return self._reduce(hidden, "sum", weights) / _column(totals)

    def _take(self, hidden: Array, tokens: Sequence[int]) -> FloatArray:
        return self._ops.numpy(self._ops.take(hidden, np.array(tokens, np.int64), 0))

    def _reduce(self, hidden: Array, how: Reduction, weights: FloatArray | None = None) -> FloatArray:
        return self._ops.numpy(self._ops.reduce_rows(hidden, self._rows, self._starts, how, weights))


@cache
def bag_alone(length: int, skip: int) -> Bags:
    """Return the tokens of a short sequence that runs alone, for numpy: made once for each length."""
    return Bags([0], [length], skip, NUMPY)


def _column(numbers: Sequence[int]) -> FloatArray:
    return np.array(numbers, np.float32)[:, None]
