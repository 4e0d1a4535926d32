"""Handles outlier channels: with one scale for all channels, a few large ones cost the others precision.

There are two treatments, both exact before rounding. One scales channels to be more even, with factors that
the weights undo (Xiao et al. 2023, SmoothQuant, §4): this suits outputs of layer norms, where the same
channels are always large. The other sets the largest few channels apart and multiplies them in float32: this
suits the hidden units of feed-forward networks, where one unit is rarely, but then up to four times, larger
than all others.
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

_EXPONENT = 0.75  # the share of inputs against weights (SmoothQuant's α): over ½, since inputs share a scale
_APART = 8
_LEAST = 1e-3  # of the largest channel: a channel that was small in the sample may be larger later
_BATCH, _LENGTH, _SEED = 64, 16, 0


@dataclass(frozen=True)
class Channels:
    """Factors for the channels of an input (…, in) before rounding; 0 for channels that are set apart."""

    factors: FloatArray  # (in,)
    apart: NDArray[np.int64]  # numbers of channels, ascending


def evened(inputs: FloatArray, weights: FloatArray) -> Channels:
    """Compute factors that even out channels, from the largest magnitudes of inputs and weights, (in,)."""
    inputs, weights = (
        np.maximum(x, max(_LEAST * x.max(), np.finfo(np.float32).tiny)) for x in (inputs, weights)
    )
    sizes = inputs**_EXPONENT / weights ** (1 - _EXPONENT)  # (in,)
    return Channels((sizes.max() / sizes).astype(np.float32), np.zeros(0, np.int64))


def set_apart(inputs: FloatArray, weights: FloatArray) -> Channels:
    """Choose the few channels that contribute most, from the magnitudes that `evened` takes, (in,)."""
    count = min(_APART, len(inputs) // 4)
    apart = np.sort(np.argsort(-(inputs * weights), kind="stable")[:count]).astype(np.int64)
    factors = np.ones(len(inputs), np.float32)
    factors[apart] = 0
    return Channels(factors, apart)


def largest_inputs(model: ModelProto, values: Sequence[str], folder: Path) -> dict[str, FloatArray]:
    """Run random tokens through a graph; returns the largest magnitude per channel of `values`, (in,) each.

    Writes a copy of the graph to `folder`, and leaves it there.
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
    """Make the inputs for sequences of random tokens, without observations."""
    tables = {node.input[0] for node in model.graph.node if names.INPUT_IDS in node.input}
    vocabulary = min(tensor.dims[0] for tensor in model.graph.initializer if tensor.name in tables)
    cells = np.arange(_BATCH * _LENGTH).reshape(_BATCH, _LENGTH)
    feed = {name: cells if name.startswith("cells_") else np.zeros(0, np.int64) for name in inputs}
    return feed | {
        names.INPUT_IDS: np.random.default_rng(_SEED).integers(0, vocabulary, cells.shape),
        **{
            name: np.ones_like(cells)
            for name in (names.ATTENTION_MASK, names.SEQUENCE_MASK)
            if name in inputs
        },
        names.TOKEN_TYPE_IDS: np.zeros_like(cells),
    }
