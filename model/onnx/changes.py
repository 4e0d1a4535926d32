"""Builds the inputs of a graph that make the interventions of padded sequences."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.encoder.interventions import BlockedEdges, HeadScale, Interventions, join_heads
from model.onnx import names as graph

Array = NDArray[Any]


def feed_changes(
    interventions: Sequence[Interventions | None],
    real: NDArray[np.bool_],
    depth: int,
    *,
    layers: Sequence[int],
    heads: int,
) -> dict[str, Array]:
    """Return the inputs `names.layer_changes` of `layers`, for sequences of the tokens `real` (B, N).

    `layers` are those of the graph that attend, with `heads` heads each. A pass ends after `depth` layers and
    the attention of the next one; later layers run a single token.
    """
    known = [one or Interventions() for one in interventions]
    feed: dict[str, Array] = {}
    for layer in layers:
        runs = layer <= depth
        edges = [[x for x in one.edges if runs and layer in x.layers] for one in known]
        scaled = [[x for x in one.heads if runs and x.layer == layer] for one in known]
        arrays = (
            *_rectangles(edges, real.shape[1], heads),
            *_factors(scaled, real if runs else real[:1, :1], heads),
        )
        feed |= zip(graph.layer_changes(layer), arrays, strict=True)
    return feed


def _rectangles(edges: Sequence[Sequence[BlockedEdges]], length: int, heads: int) -> tuple[Array, Array]:
    """Return the queries (B, H, N, R) and keys (B, 1, R, N) of R blocked rectangles in each sequence."""
    most = max(map(len, edges))
    if not most:
        return (np.zeros((1, 1, 1, 1), np.float32),) * 2
    queries = np.zeros((len(edges), heads, length, most), np.float32)
    keys = np.zeros((len(edges), 1, most, length), np.float32)
    for i, some in enumerate(edges):
        for number, edge in enumerate(some):
            queries[i, ..., number][np.ix_(edge.heads, edge.queries)] = 1
            keys[i, 0, number, list(edge.keys)] = 1
    return queries, keys


def _factors(
    scaled: Sequence[Sequence[HeadScale]], real: NDArray[np.bool_], heads: int
) -> tuple[Array, Array]:
    """Return the factors of heads (B, H, 1, 1), and the shares of tokens in means of outputs (B, H, 1, N)."""
    if not any(scaled):
        return np.ones((1, 1, 1, 1), np.float32), np.zeros((1, 1, 1, real.shape[1]), np.float32)
    scales, means = np.ones((len(scaled), heads), np.float32), np.zeros((len(scaled), heads), np.float32)
    for changes, *arrays in zip(scaled, scales, means, strict=True):
        join_heads(changes, *arrays)
    shares = (real / real.sum(1, keepdims=True)).astype(np.float32)  # (B, N)
    return (scales * (1 - means))[..., None, None], (scales * means)[..., None, None] * shares[:, None, None]
