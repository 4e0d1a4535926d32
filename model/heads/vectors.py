"""The steps after pooling, in numpy for every backend: from pooled hidden states to sentence vectors."""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from model.contract import FloatArray, SentenceWant


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
        vectors.update(zip(which, of_pooled(pool_members(want, which), want, dense), strict=True))
    return vectors


def of_pooled(
    pooled: FloatArray, want: SentenceWant, dense: Sequence[Callable[[FloatArray], FloatArray]]
) -> FloatArray:
    """Turn pooled hidden states (B, C′), all with the same want, into vectors (B, E)."""
    for layer in dense:
        pooled = layer(pooled)
    return finish(pooled, want.dimensions, normalize=want.normalize)


def finish(vectors: FloatArray, dimensions: int | None, *, normalize: bool) -> FloatArray:
    """Truncate vectors (B, E) to `dimensions`, then scale them to unit L2 norm if `normalize`.

    Zero vectors stay zero. The order is that of Matryoshka embeddings (Kusupati et al. 2022): truncate
    first, then normalise.
    """
    vectors = vectors[:, :dimensions]
    if normalize:
        norms = np.sqrt((vectors * vectors).sum(-1, keepdims=True))
        vectors = vectors / np.maximum(norms, np.float32(1e-12))
    return np.ascontiguousarray(vectors, dtype=np.float32)
