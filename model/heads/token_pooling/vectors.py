"""Pools token vectors as `HierarchicalTokenPooling` of sentence-transformers 6 does."""

import numpy as np
from numpy.typing import NDArray

from model.choices import TokenPooling
from model.contract import FloatArray
from model.heads.token_pooling.ward import ward_clusters
from model.heads.vectors import finish


def pool_tokens(vectors: FloatArray, pooling: TokenPooling) -> tuple[FloatArray, NDArray[np.int32]]:
    """Replace unit vectors (N, E) by the means of clusters of similar ones: float32 (M, E), int32 (N,).

    The integers say which of the M rows each token's vector is in. The first `protected` vectors stay as they
    are; the others become one for every `factor` of them, by Ward's criterion over 1 − cosine.
    """
    first, rest = vectors[: pooling.protected], vectors[pooling.protected :]
    most = max(int(len(rest) // pooling.factor), 1)
    clusters = np.arange(len(vectors), dtype=np.int32)
    if len(rest) > most:
        found = ward_clusters(np.clip(1 - rest @ rest.T, 0, 2), most)
        means = np.zeros((found.max() + 1, vectors.shape[1]), np.float32)
        np.add.at(means, found, rest)
        means /= np.bincount(found).astype(np.float32)[:, None]
        vectors = np.concatenate([first, means])
        clusters[len(first) :] = len(first) + found
    return finish(vectors, None, normalize=pooling.normalize), clusters
