"""Exported graphs, run by ONNX Runtime itself: nothing of the product stands between."""

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from model.encoder.config import EncoderConfig
from model.onnx import names as graph

NOTHING = np.zeros(0, np.int64)


class ExportedGraph:
    """The graph of an encoder, run on the CPU."""

    def __init__(self, path: Path, config: EncoderConfig) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.path, self.config = path, config
        self.inputs = [one.name for one in self.session.get_inputs()]
        self.outputs = [one.name for one in self.session.get_outputs()]
        self.layers, self.heads, self.attending = config.num_layers, config.num_heads, config.attending

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
            **({graph.SEQUENCE_MASK: mask.copy()} if graph.reads_sequence_mask(self.config) else {}),
            **{graph.tokens(state): NOTHING for state in range(self.layers + 1)},
        }
        feeds |= dict.fromkeys((name for i in self.attending for name in graph.layer_lists(i)), NOTHING)
        return {**feeds, **{graph.cells(layer): every for layer in range(self.layers)}}

    def everything(self, feeds: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[np.int64]]:
        """Ask for all that there is to see."""
        count, length = feeds[graph.INPUT_IDS].shape
        every = {graph.tokens(state): np.arange(count * length) for state in range(self.layers + 1)}
        for layer in self.attending:
            every[graph.rows(layer)] = np.arange(length)
            for name in (graph.heads, graph.pair_heads, graph.norm_heads):
                every[name(layer)] = np.arange(self.heads)
        return {**feeds, **every}

    def __call__(self, feeds: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
        """Run; every output by its name."""
        return dict(zip(self.outputs, self.session.run(self.outputs, dict(feeds)), strict=True))
