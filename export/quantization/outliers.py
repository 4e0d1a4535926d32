"""Which channels of what is multiplied are so large that a scale for all leaves the others few digits.

Two ways to deal with them, both exact before anything is rounded. Channels are made more even by factors,
which the weights take back (Xiao et al. 2023, SmoothQuant, §4): this suits what a layer norm gives, whose
channels are large always or never. Or the largest few are set apart, to be multiplied in float32: this suits
the hidden units of feed-forward networks, of which one can be four times as large as any other, and rarely.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper

from model.contract import FloatArray
from model.onnx import names
from model.onnx.session import Graph, choose_processor

_EXPONENT = 0.75  # of how large inputs are, against that of weights: more than ½, for inputs share a scale
_APART = 8
_LEAST = 1e-3  # of the largest: a channel that was never large may yet be
_BATCH, _LENGTH, _SEED = 64, 16, 0


@dataclass(frozen=True)
class Channels:
    """What an input (…, in) is multiplied with before it is rounded, and which channels are then 0."""

    factors: FloatArray  # (in,)
    apart: NDArray[np.int64]  # of 0 … in - 1, ascending


def evened(inputs: FloatArray, weights: FloatArray) -> Channels:
    """Make channels even, from the largest magnitudes of each in the input and in the weights: both (in,)."""
    inputs, weights = (
        np.maximum(x, max(_LEAST * x.max(), np.finfo(np.float32).tiny)) for x in (inputs, weights)
    )
    sizes = inputs**_EXPONENT / weights ** (1 - _EXPONENT)  # (in,)
    return Channels((sizes.max() / sizes).astype(np.float32), np.zeros(0, np.int64))


def set_apart(inputs: FloatArray, weights: FloatArray) -> Channels:
    """Choose the few channels that add most, from the same magnitudes: both (in,)."""
    count = min(_APART, len(inputs) // 4)
    apart = np.sort(np.argsort(-(inputs * weights), kind="stable")[:count]).astype(np.int64)
    factors = np.ones(len(inputs), np.float32)
    factors[apart] = 0
    return Channels(factors, apart)


def largest_inputs(model: ModelProto, values: Sequence[str], folder: Path) -> dict[str, FloatArray]:
    """Run random tokens through a graph; gives the largest magnitude of each channel of `values`: (in,) each.

    Needs room in `folder` for a copy of the graph, which stays there.
    """
    opened = ModelProto()
    opened.CopyFrom(model)
    outputs = [helper.make_tensor_value_info(value, TensorProto.FLOAT, None) for value in values]
    opened.graph.output.extend(outputs)
    path = folder / "opened.onnx"
    onnx_ir.save(onnx_ir.from_proto(opened), path, external_data=f"{path.name}.data")
    runner = Graph(path, choose_processor("cpu"), threads=1)
    results = runner.run(_random_tokens(model, list(runner.inputs)), values)
    return {name: np.abs(x).reshape(-1, x.shape[-1]).max(axis=0) for name, x in results.items()}


def _random_tokens(model: ModelProto, inputs: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Feed a rectangle of random tokens, of which nothing is observed."""
    tables = {node.input[0] for node in model.graph.node if names.INPUT_IDS in node.input}
    vocabulary = min(tensor.dims[0] for tensor in model.graph.initializer if tensor.name in tables)
    cells = np.arange(_BATCH * _LENGTH).reshape(_BATCH, _LENGTH)
    feed = {name: cells if name.startswith("cells_") else np.zeros(0, np.int64) for name in inputs}
    return feed | {
        names.INPUT_IDS: np.random.default_rng(_SEED).integers(0, vocabulary, cells.shape),
        names.ATTENTION_MASK: np.ones_like(cells),
        names.TOKEN_TYPE_IDS: np.zeros_like(cells),
    }
