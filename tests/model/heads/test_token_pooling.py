"""Clusters of vectors of tokens, compared with SciPy's."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from model.choices import TokenPooling
from model.heads.token_pooling.vectors import pool_tokens
from model.heads.token_pooling.ward import ward_clusters
from tests.references.comparing import distance

Floats = NDArray[np.float32]


def unit(vectors: NDArray[np.float64]) -> Floats:
    found: Floats = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return found


def texts(kind: str, generator: np.random.Generator) -> list[Floats]:
    """Vectors of 60 texts of 2 to 40 tokens."""
    found = []
    for _ in range(60):
        count = int(generator.integers(2, 41))
        vectors = generator.standard_normal((count, int(generator.integers(2, 12))))
        if kind == "repeated":
            vectors = vectors[generator.integers(0, count, count)]
        if kind == "on a grid":
            vectors = np.round(vectors) + 0.1
        found.append(unit(vectors))
    return found


@pytest.mark.parametrize("kind", ["random", "repeated", "on a grid"])
def test_clusters_and_their_order_are_those_of_scipy(kind: str) -> None:
    """At every number of clusters, also where distances are equal."""
    fewer = 0
    for vectors in texts(kind, np.random.default_rng(0)):
        distances = np.clip(1 - vectors @ vectors.T, 0, 2)
        tree = linkage(squareform(distances, checks=False), "ward")
        for most in range(1, len(vectors)):
            expected = fcluster(tree, most, "maxclust") - 1
            found = ward_clusters(distances, most)
            assert found.tolist() == expected.tolist()
            fewer += found.max() + 1 < most
    assert bool(fewer) == (kind != "random")  # equal distances are merged together


def test_as_many_clusters_as_things_are_the_things() -> None:
    """And of none there is none."""
    assert ward_clusters(np.zeros((3, 3), np.float32), 3).tolist() == [0, 1, 2]
    assert ward_clusters(np.zeros((0, 0), np.float32), 1).tolist() == []


def test_a_text_of_thousands_of_tokens_is_pooled() -> None:
    """Each of which is nearest to the one before it."""
    angles = np.cumsum(np.linspace(1e-4, 1e-3, 3000)) / 3
    vectors = unit(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    tree = linkage(squareform(np.clip(1 - vectors @ vectors.T, 0, 2), checks=False), "ward")
    _, clusters = pool_tokens(vectors, TokenPooling(3.0, 0))
    assert clusters.tolist() == (fcluster(tree, 1000, "maxclust") - 1).tolist()


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("protected", [0, 1, 5, 40])
def test_pooled_vectors_are_means_after_those_that_are_protected(protected: int, *, normalize: bool) -> None:
    """A text that has no others is left as it is."""
    (vectors, *_) = texts("random", np.random.default_rng(1))
    pooled, clusters = pool_tokens(vectors, TokenPooling(2.0, protected, normalize))
    first, rest = min(protected, len(vectors)), max(0, len(vectors) - protected)
    assert (len(vectors), len(pooled)) == (20, first + (max(1, rest // 2) if rest else 0))
    for number, found in enumerate(pooled):
        mean = vectors[clusters == number].astype(np.float64).mean(0)
        assert distance(found, mean / np.linalg.norm(mean) if normalize else mean) <= 1e-6
    assert clusters[:first].tolist() == [*range(first)]
