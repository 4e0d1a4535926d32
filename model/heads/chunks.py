"""Late chunking: vectors of parts of a text, pooled after the whole text has run (Günther et al. 2024)."""

from collections.abc import Callable, Sequence

import numpy as np

from model.contract import ChunksWant, FloatArray
from model.heads.vectors import finish


def chunk_vectors(
    hidden: FloatArray, want: ChunksWant, dense: Sequence[Callable[[FloatArray], FloatArray]]
) -> FloatArray:
    """Compute the vector of each span of a text's last hidden state (N, C): float32 (spans, E).

    A vector is the mean over its span, followed by `dense` and the want's `dimensions` and `normalize`: the
    steps of a sentence vector that is pooled by the mean. Raises ValueError for a span without tokens.
    """
    means = _means(hidden, want.spans)
    return means if want.means else finish_means(means, want, dense)


def finish_means(
    means: FloatArray, want: ChunksWant, dense: Sequence[Callable[[FloatArray], FloatArray]]
) -> FloatArray:
    """Apply the steps that follow the means (spans, C) of a want: float32 (spans, E)."""
    for layer in dense:
        means = layer(means)
    return finish(means, want.dimensions, normalize=want.normalize)


def _means(hidden: FloatArray, spans: Sequence[tuple[int, int]]) -> FloatArray:
    """Average each span, as a difference of running sums: where spans overlap, no token is added twice.

    In float64, running sums over a text of any length lose less than the float32 sums of pooling do.
    """
    first, after = np.array(spans, np.int64).reshape(-1, 2).T
    if (first >= after).any():
        raise ValueError("a chunk has no tokens to pool")
    sums = np.zeros((len(hidden) + 1, hidden.shape[1]))
    np.cumsum(hidden, axis=0, out=sums[1:])
    means = sums[after]
    means -= sums[first]
    means /= (after - first)[:, None]
    return means.astype(np.float32)
