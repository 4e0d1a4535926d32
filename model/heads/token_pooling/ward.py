"""Hierarchical clustering by Ward's criterion, for the few hundred vectors of a text.

Makes the clusters of SciPy's `linkage` and `fcluster`, with its choice among equal distances, in numpy: for
these two functions alone, SciPy would add 140 megabytes to an image.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from model.contract import FloatArray

Distances = NDArray[np.float64]
Clusters = NDArray[np.int32]
Merge = tuple[int, int, float]
"""Two clusters that become one, and their distance."""


def ward_clusters(distances: FloatArray, most: int) -> Clusters:
    """Put n things into at most `most` clusters, at least 1: int32 (n,), the cluster of each, from 0.

    Only the numbers above the diagonal of `distances` (n, n) count. Merges at equal distance are all done or
    none, so there may be fewer clusters. They are numbered as SciPy's `fcluster` does with "maxclust".
    """
    count = len(distances)
    if count <= most:
        return np.arange(count, dtype=np.int32)
    upper = np.triu(distances.astype(np.float64), 1)
    merges = _tree(_merges(upper + upper.T), count)
    cut = merges[count - most - 1][2]
    return _numbered(merges, count, cut)


def _merges(distances: Distances) -> list[Merge]:
    """Merge all by chains of nearest neighbours (Murtagh 1983), in O(n²); overwrites the distances.

    A cluster has the number of one of its members. Its distances to others follow Lance and Williams (1967).
    """
    count = len(distances)
    np.fill_diagonal(distances, np.inf)
    sizes, alive = np.ones(count), np.ones(count, bool)
    chain, merges = list[int](), list[Merge]()
    while len(merges) < count - 1:
        if not chain:
            chain.append(int(alive.argmax()))
        row = distances[chain[-1]]
        nearest = int(row.argmin())
        # Among equal distances, take the one that the chain came from: it would not end otherwise.
        if len(chain) == 1 or row[nearest] < row[chain[-2]]:
            chain.append(nearest)
            continue
        gone, kept = sorted((chain.pop(), chain.pop()))
        height = float(distances[gone, kept])
        share = 1 / (sizes[gone] + sizes[kept] + sizes)
        first, second = distances[gone], distances[kept]
        merged = (sizes + sizes[gone]) * share * first * first + (
            sizes + sizes[kept]
        ) * share * second * second
        merged = np.sqrt(merged - sizes * share * height * height)
        distances[gone] = distances[:, gone] = np.inf
        distances[kept] = distances[:, kept] = merged
        distances[kept, kept] = distances[kept, gone] = distances[gone, kept] = np.inf
        sizes[kept] += sizes[gone]
        alive[gone] = False
        merges.append((gone, kept, height))
    return merges


def _tree(merges: Sequence[Merge], count: int) -> list[Merge]:
    """Sort merges by their distances; the i-th then makes the cluster `count + i`."""
    owner = list(range(2 * count - 1))

    def find(node: int) -> int:
        while owner[node] != node:
            owner[node] = node = owner[owner[node]]
        return node

    found = list[Merge]()
    for one, other, height in sorted(merges, key=lambda merge: merge[2]):
        left, right = sorted((find(one), find(other)))
        owner[left] = owner[right] = count + len(found)
        found.append((left, right, height))
    return found


def _numbered(tree: Sequence[Merge], count: int, cut: float) -> Clusters:
    """Number the clusters that are merged up to the distance `cut`, from the root down.

    Below a merge at a larger distance, its parts of several things come first, then single things.
    """
    numbers, last = np.empty(count, np.int32), -1
    waiting = [(2 * count - 2, False)]
    while waiting:
        node, inside = waiting.pop()
        below = [] if node < count else tree[node - count][:2]
        if not inside and (node < count or tree[node - count][2] <= cut):
            last, inside = last + 1, True
        if node < count:
            numbers[node] = last
        singles = [(child, inside) for child in reversed(below) if child < count]
        waiting += singles + [(child, inside) for child in reversed(below) if child >= count]
    return numbers
