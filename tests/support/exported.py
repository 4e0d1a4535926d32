"""Exported graphs, run by ONNX Runtime itself: nothing of the product stands between."""

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from model.onnx import names as graph

NOTHING = np.zeros(0, np.int64)


class ExportedGraph:
    """A graph of so many layers and heads, run on the CPU; `further` are its outputs by distance."""

    def __init__(
        self, path: Path, layers: int, heads: int, further: Sequence[Callable[[int], str]] = ()
    ) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.path, self.layers, self.heads, self.further = path, layers, heads, further

    def feeds(self, sequences: Sequence[Sequence[int]], *, padding: int = 0) -> dict[str, NDArray[np.int64]]:
        """Lay sequences in a rectangle, `padding` columns wider than the longest, and ask for nothing."""
        count, length = len(sequences), max(map(len, sequences)) + padding
        ids, mask = np.full((count, length), 7), np.zeros((count, length), np.int64)
        for row, sequence in enumerate(sequences):
            ids[row, : len(sequence)], mask[row, : len(sequence)] = sequence, 1
        every = np.arange(count * length).reshape(count, length)
        feeds = {
            graph.INPUT_IDS: ids,
            graph.ATTENTION_MASK: mask,
            graph.TOKEN_TYPE_IDS: np.zeros_like(ids),
            **{graph.tokens(state): NOTHING for state in range(self.layers + 1)},
        }
        for layer in range(self.layers):
            feeds |= dict.fromkeys(graph.layer_inputs(layer), NOTHING)
            feeds[graph.cells(layer)] = every
        return feeds

    def everything(self, feeds: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[np.int64]]:
        """Ask for all that there is to see."""
        count, length = feeds[graph.INPUT_IDS].shape
        every = {graph.tokens(state): np.arange(count * length) for state in range(self.layers + 1)}
        for layer in range(self.layers):
            every[graph.rows(layer)] = np.arange(length)
            for name in (graph.heads, graph.pair_heads, graph.norm_heads):
                every[name(layer)] = np.arange(self.heads)
        return {**feeds, **every}

    def __call__(self, feeds: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
        """Run; every output by its name."""
        names = graph.output_names(self.layers, self.further)
        return dict(zip(names, self.session.run(names, dict(feeds)), strict=True))
