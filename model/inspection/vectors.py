"""Observes the queries, keys and output norms of heads, and makes the observers that a want needs."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.arrays import Operations
from model.choices import VECTOR_NAMES, HeadVector
from model.contract import AttentionWant, Output
from model.inspection.layer import LayerAttention
from model.inspection.maps import MapObserver
from model.inspection.rollout import RolloutObserver
from model.inspection.selection import AxisSelection, HeadSelection, in_blocks


class VectorsObserver:
    """The `vectors` that `count` consecutive sequences of `length` tokens return, all with the same want.

    Layers, heads, rows and columns that are listed twice are computed once.
    """

    def __init__(self, want: AttentionWant, count: int, length: int, ops: Operations) -> None:
        self._want, self._count, self._length, self._ops = want, count, length, ops
        self.layers = sorted({*want.layers})
        self._heads = HeadSelection(want.heads)
        queries, keys = (AxisSelection(axis, length) for axis in (want.queries, want.keys))
        self._tokens = {"query": queries, "key": keys, "output_norm": queries}
        self._found: dict[HeadVector, dict[int, NDArray[Any]]] = {name: {} for name in want.vectors}
        """For each name and layer, an array (b, heads, tokens, …)."""

    def observe(self, number: int, layer: LayerAttention) -> None:
        """Read the wanted vectors of one layer."""
        for name, found in self._found.items():
            if name == "output_norm":
                found[number] = self._norms(layer)
                continue
            tokens = self._tokens[name]
            every = tokens.tokens(slice(0, len(tokens)))
            heads = self._heads.some(slice(0, len(self._heads)))
            found[number] = self._ops.numpy(layer.compared(name, slice(0, self._count), heads, every))

    def _norms(self, layer: LayerAttention) -> NDArray[np.float32]:
        """Compute the norms of outputs block by block, as each takes a row of weights: (b, heads, rows)."""
        tokens = self._tokens["output_norm"]
        norms = np.empty((self._count, len(self._heads), len(tokens)), np.float32)
        for sequences, rows, parts in in_blocks(*norms.shape, self._length, together=layer.together):
            for part in parts:
                some = layer.output_norms(sequences, self._heads.some(part), tokens.tokens(rows))
                norms[sequences, part, rows] = self._ops.numpy(some)
        return norms

    def output(self, index: int) -> Output:
        """Return the output of one sequence, each axis in the requested order."""
        arrays = {}
        for name, found in self._found.items():
            places = self._tokens[name].places
            each = (found[layer][index].take(self._heads.places, 0) for layer in self._want.layers)
            arrays[VECTOR_NAMES[name]] = np.stack(
                [one if places is None else one.take(places, 1) for one in each]
            )
        return Output(heads={name: array.astype(np.float32, copy=False) for name, array in arrays.items()})


AttentionObserver = MapObserver | RolloutObserver | VectorsObserver


def observers(want: AttentionWant, count: int, length: int, ops: Operations) -> Iterator[AttentionObserver]:
    """Make the observers of the attention that `count` sequences of `length` tokens want."""
    if want.maps:
        yield (RolloutObserver if want.aggregate == "rollout" else MapObserver)(want, count, length, ops)
    if want.vectors:
        yield VectorsObserver(want, count, length, ops)


def joined(output: Output, observed: Output) -> Output:
    """Join the output of a sequence with what was observed of it; each array is in only one of them."""
    return replace(
        output,
        attention=output.attention if observed.attention is None else observed.attention,
        top=observed.top or output.top,
        thumbnails=output.thumbnails if observed.thumbnails is None else observed.thumbnails,
        summary=observed.summary or output.summary,
        heads=output.heads | observed.heads,
        finite=output.finite and observed.finite,
    )
