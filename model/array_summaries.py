"""Statistics of attention from queries and keys in numpy, block by block, without building a map.

`model/measures.py` defines each statistic, and is what these are tested against; `model/summaries.py` does
the same with tensors.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from model.array_layer import ArrayLayer
from model.selection import Heads, in_blocks
from model.types import STATISTICS, FloatArray, SummaryWant

_ROOM = 2**16
"""Scores in a block: with what is computed of them they stay in a core's own cache."""


def summarize(want: SummaryWant, layers: Mapping[int, ArrayLayer], length: int) -> dict[str, FloatArray]:
    """Measure the layers of one sequence of `length` tokens: each statistic float32 (layers, heads)."""
    heads = Heads(want.heads)
    special = np.array(want.special, np.int64)
    by_layer = {number: _measure_layer(layers[number], heads, length, special) for number in set(want.layers)}
    means = np.stack([by_layer[number] for number in want.layers]) / length  # (layers, statistics, heads)
    listed = means[:, :, heads.places].astype(np.float32)
    return {name: np.ascontiguousarray(listed[:, i]) for i, name in enumerate(STATISTICS)}


def _measure_layer(
    layer: ArrayLayer, heads: Heads, length: int, special: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Sum each statistic over the rows of a layer: (statistics, heads)."""
    sums = np.zeros((len(STATISTICS), len(heads)))
    position = np.arange(length, dtype=np.float32)
    for sequences, rows, parts in in_blocks(1, len(heads), length, length, _ROOM):
        distances = np.abs(position[rows, None] - position)  # (rows, N)
        for part in parts:
            (scores,) = layer.weights("score", sequences, heads.some(part), rows)
            sums[:, part] += _measure(scores, rows.start, distances, special)
    return sums


def _measure(
    scores: FloatArray, start: int, distances: FloatArray, special: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Sum each statistic over the rows of a block: scores (heads, rows, N) to (statistics, heads).

    The rows are those from `start` on. With the largest score taken off, p = e/z for e = exp s and z = Σ e;
    the entropy is log z − Σ p s, and the largest p is 1/z.
    """
    scores -= scores.max(-1, keepdims=True)
    e = np.exp(scores)
    largest = 1 / e.sum(-1)
    entropy = np.maximum(-np.log(largest) - np.vecdot(e, scores) * largest, 0)  # rounding may fall below
    distance = np.vecdot(e, distances) * largest
    near = [_on_diagonal(e, largest, start + shift) for shift in (0, -1, 1)]
    mass = e[..., special].sum(-1) * largest
    return np.stack([rows.sum(-1, dtype=np.float64) for rows in (entropy, largest, distance, *near, mass)])


def _on_diagonal(e: FloatArray, largest: FloatArray, offset: int) -> FloatArray:
    """Take p of the entries (i, i + offset), (heads, as many as there are)."""
    on = np.diagonal(e, offset, 1, 2) if -e.shape[1] < offset < e.shape[2] else e[..., 0, :0]
    first = max(0, -offset)
    return np.asarray(on * largest[:, first : first + on.shape[-1]])
