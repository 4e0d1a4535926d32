"""Compares sentence vectors, as `sentence_transformers.util` does: larger is always more similar."""

from collections.abc import Callable, Iterator

import numpy as np

from model.contract import FloatArray, Similarity
from model.heads.vectors import finish

STEP_PRODUCTS = 2**23
"""Numbers that are multiplied or subtracted in one step: tens of milliseconds at most."""
# A difference of this many numbers (one megabyte) stays in the cache of a core.
_BLOCK_NUMBERS = 2**18


def similarity_blocks(function: Similarity, first: FloatArray, second: FloatArray) -> Iterator[FloatArray]:
    """Compare every row of `first` (M, E) with every row of `second` (N, E), all float32.

    Yields the rows of the result (M, N) in order, in float32 blocks (rows, N) of about STEP_PRODUCTS
    products; each is computed when it is asked for. The cosine of a zero vector is 0, and none is rounded
    beyond 1 or -1; `euclidean` and `manhattan` are negative distances.
    """
    if function == "cosine":
        first, second = finish(first, None, normalize=True), finish(second, None, normalize=True)
    rows = max(1, STEP_PRODUCTS // max(1, second.size))
    for start in range(0, len(first), rows):
        yield _compare(function, first[start : start + rows], second)


def similarities(function: Similarity, first: FloatArray, second: FloatArray) -> FloatArray:
    """Return all blocks of `similarity_blocks` as one array (M, N)."""
    return np.concatenate(list(similarity_blocks(function, first, second)))


def paired_similarities(function: Similarity, first: FloatArray, second: FloatArray) -> FloatArray:
    """Compare each row of `first` (M, E) with the same row of `second` (M, E), as `similarity_blocks` does.

    Returns float32 (M,).
    """
    match function:
        case "cosine":
            first, second = finish(first, None, normalize=True), finish(second, None, normalize=True)
            return np.clip(_products(first, second), -1, 1)
        case "dot":
            return _products(first, second)
        case "euclidean":
            return -np.sqrt(np.square(first - second).sum(1))
        case "manhattan":
            return -np.abs(first - second).sum(1)


def _products(first: FloatArray, second: FloatArray) -> FloatArray:
    return (first[:, None] @ second[..., None])[:, 0, 0]


def _compare(function: Similarity, first: FloatArray, second: FloatArray) -> FloatArray:
    match function:
        case "cosine":
            cosines = first @ second.T
            return np.clip(cosines, -1, 1, out=cosines)
        case "dot":
            return first @ second.T
        case "euclidean":
            return _distances(first, second, _square, np.sqrt)
        case "manhattan":
            return _distances(first, second, np.abs, None)


def _square(numbers: FloatArray, out: FloatArray) -> FloatArray:
    return np.multiply(numbers, numbers, out=out)


def _distances(
    first: FloatArray,
    second: FloatArray,
    of_component: Callable[..., FloatArray],
    of_sum: Callable[..., FloatArray] | None,
) -> FloatArray:
    """Sum a function of the differences of components, and negate a function of the sum.

    The differences themselves are computed: |a|² + |b|² − 2ab would lose the distance of two vectors that are
    near each other to rounding.
    """
    distances = np.empty((len(first), len(second)), np.float32)
    size = second.shape[1]
    columns = max(1, _BLOCK_NUMBERS // max(1, size))
    buffer = np.empty((min(columns, len(second)), size), np.float32)
    for row, vector in enumerate(first):
        for start in range(0, len(second), columns):
            block = second[start : start + columns]
            differences = np.subtract(block, vector, out=buffer[: len(block)])
            of_component(differences, out=differences)
            differences.sum(axis=1, out=distances[row, start : start + columns])
    if of_sum is not None:
        of_sum(distances, out=distances)
    return np.negative(distances, out=distances)
