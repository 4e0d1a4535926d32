"""Writes an encoder as `model.onnx`, with its weights in `model.onnx.data`, which a runtime memory-maps."""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import onnx_ir
import torch
from torch import Tensor
from torch.export import Dim

from export.graph import TracedEncoder
from model.encoder.encoder import Encoder
from model.errors import Unsupported
from model.onnx import names
from model.onnx.file import GRAPH

WEIGHTS = f"{GRAPH}.data"
"""The file beside the graph that holds its weights."""
OPSET = 23
"""The first opset with the operator Attention."""

# The sizes of the traced example; the tracer would treat sizes 0 and 1 as constants.
_BATCH, _LENGTH, _LISTED = 2, 7, 2


def write_graph(encoder: Encoder, folder: Path, metadata: Mapping[str, str]) -> Path:
    """Write an encoder to an existing `folder` as GRAPH and WEIGHTS; returns the path of GRAPH.

    The encoder must be on the CPU, not prepacked, and in the precision that it will run in. `metadata` is
    added to the graph's metadata. The same encoder gives the same bytes. Raises Unsupported for adapters, and
    OSError if the folder cannot be written.
    """
    if encoder.config.adapters is not None:
        raise Unsupported(
            "A graph has one set of weights, but this encoder has adapters: merge the adapter of one task "
            "first.",
            field="adapters",
        )
    model = _trace(encoder)
    _take_lists_as_they_are(model.graph)
    _strip(model)
    model.producer_name, model.producer_version = "headlight", None
    model.metadata_props.update({names.FORMAT_KEY: names.FORMAT, **metadata})
    onnx_ir.save(model, folder / GRAPH, external_data=WEIGHTS, size_threshold_bytes=256)
    return folder / GRAPH


def _trace(encoder: Encoder) -> onnx_ir.Model:
    """Trace the graph with an example; every dynamic axis has a name."""
    config, layers = encoder.config, encoder.config.num_layers
    batch, length = Dim("batch"), Dim("length")
    # Three distinct tensors: the tracer would merge inputs that are the same tensor.
    ids, mask, segments = (torch.full((_BATCH, _LENGTH), fill) for fill in (0, 1, 0))
    tokens = tuple(torch.arange(_LISTED) for _ in range(layers + 1))
    token_axes = tuple({0: Dim(names.tokens(state), min=0)} for state in range(layers + 1))
    lists: list[tuple[Tensor, ...]] = []
    list_axes: list[tuple[dict[int, Dim], ...]] = []
    for layer in range(layers):
        listed = names.layer_lists(layer) if layer in config.attending else []
        cells = torch.arange(_BATCH * _LENGTH).view(_BATCH, _LENGTH)
        lists.append((*(torch.zeros(_LISTED, dtype=torch.int64) for _ in listed), cells))
        cell_axes = {0: Dim(f"batch_{layer}"), 1: Dim(f"length_{layer}")}
        list_axes.append((*({0: Dim(name, min=0)} for name in listed), cell_axes))
    rectangle = {0: batch, 1: length}
    masks, mask_axes = ((mask.clone(),), (rectangle,)) if names.reads_sequence_mask(config) else ((), ())
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            TracedEncoder(encoder).eval(),
            (ids, mask, segments, tokens, tuple(lists), *masks),
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=(*[rectangle] * 3, token_axes, tuple(list_axes), *mask_axes),
            input_names=names.input_names(config),
            output_names=names.output_names(config),
            verbose=False,
        )
    return cast(torch.onnx.ONNXProgram, program).model


def _take_lists_as_they_are(graph: onnx_ir.Graph) -> None:
    """Remove reshapes of one-dimensional inputs: one node in ten, and each costs microseconds."""
    lists = {value for value in graph.inputs if value.shape is not None and len(value.shape) == 1}
    for node in list(graph):
        given = node.inputs[0] if node.op_type == "Reshape" else None
        if given in lists:
            node.outputs[0].replace_all_uses_with(given)
            graph.remove(node, safe=True)


def _strip(model: onnx_ir.Model) -> None:
    """Remove the tracer's notes about this machine and program: paths, source lines, stack traces."""
    graph = model.graph
    nodes = list(graph.all_nodes())
    values = [*graph.inputs, *graph.initializers.values(), *(v for node in nodes for v in node.outputs)]
    parts: list[onnx_ir.Model | onnx_ir.Graph | onnx_ir.Node | onnx_ir.Value] = [
        model,
        graph,
        *nodes,
        *values,
    ]
    for part in parts:
        part.doc_string = None
        part.metadata_props.clear()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the tracer's warnings that do not concern the encoder."""
    # It looks for torchvision, which no encoder needs, and warns once per operator.
    registration = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = registration.level
    registration.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # PyTorch's own tracer uses a class that PyTorch has deprecated.
            warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\)", FutureWarning)
            # The first three inputs share their axes, so two of the names for each axis are not used.
            warnings.filterwarnings(
                "ignore", r"# The axis name: (batch|length) will not be used", UserWarning
            )
            yield
    finally:
        registration.setLevel(level)
