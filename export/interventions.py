"""Derives the graph that runs interventions from an exported one, whose file of weights it shares.

Nothing is traced again: a few nodes are put before the softmax of each layer that attends, and before W_O.
They read additional inputs, which `model.onnx.names.layer_changes` lists. The graph without interventions
stays as it is.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from model.encoder.config import EncoderConfig
from model.onnx import names
from model.onnx.file import CHANGED

_LOWEST, _ZERO, _SOME, _KEYS = (f"changed.{name}" for name in ("lowest", "zero", "some", "keys"))
"""Constants: the score of a blocked edge; 0; a number between no edges and one edge; the axis of keys."""
_MASK = 3
"""The input of the operator Attention that hides keys from queries, or is added to their scores."""


def write_interventions(graph: Path, config: EncoderConfig) -> Path:
    """Write the graph for interventions beside an exported one, of any precision; returns its path.

    `config` is the encoder's. Raises ValueError for a graph that `write_graph` did not write, and
    OSError.
    """
    model = onnx.load(graph, load_external_data=False)
    told = {entry.key: entry.value for entry in model.metadata_props}
    _change(model.graph, config, half=told[names.DTYPE_KEY] == "float16")
    target = graph.with_name(CHANGED)
    target.write_bytes(model.SerializeToString(deterministic=True))
    return target


def _change(graph: GraphProto, config: EncoderConfig, *, half: bool) -> None:
    """Put the nodes into every layer that attends; `half` says that products are in float16."""
    fused = config.similarity == "dot_product"
    hides = fused and not config.biased and config.disentangled is None
    nodes = list(graph.node)
    before: dict[int, list[NodeProto]] = {}
    after: dict[int, list[NodeProto]] = {}
    for layer, place in zip(config.attending, _softmaxes(graph, fused=fused), strict=True):
        softmax, mixing = nodes[place], place if fused else _next_product(nodes, place)
        before[place] = _block(layer, softmax, _MASK if fused else 0, hides=hides)
        after[mixing] = _scale(layer, nodes[mixing], half=half)
        for name in names.layer_changes(layer):
            graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * 4))
    del graph.node[:]
    for place, node in enumerate(nodes):
        graph.node.extend([*before.get(place, ()), node, *after.get(place, ())])
    kind = np.float16 if half and fused else np.float32  # of scores
    # Half of the lowest number, since scores may be added to it: the sum is still finite, and the lowest.
    constants = {_LOWEST: np.finfo(kind).min / kind(2), _ZERO: kind(0), _SOME: np.float32(0.5), _KEYS: [-1]}
    graph.initializer.extend(numpy_helper.from_array(np.array(x), name) for name, x in constants.items())


def _softmaxes(graph: GraphProto, *, fused: bool) -> list[int]:
    """Find the softmax node of each layer that attends: the one for the next state, not for an output."""
    outputs = {output.name for output in graph.output}
    kind = "Attention" if fused else "Softmax"
    return [i for i, x in enumerate(graph.node) if x.op_type == kind and x.output[0] not in outputs]


def _next_product(nodes: Sequence[NodeProto], place: int) -> int:
    """Find the product that reads the weights of a softmax, which may be cast before."""
    weights = nodes[place].output[0]
    for i, node in enumerate(nodes):
        if weights in node.input:
            if node.op_type == "MatMul":
                return i
            weights = node.output[0]
    raise ValueError(f"the graph has no product of {weights}")


def _block(layer: int, softmax: NodeProto, place: int, *, hides: bool) -> list[NodeProto]:
    """Give blocked edges the lowest score, in an input of the softmax.

    With `hides`, the input says which keys each query sees; numbers to add to the scores then replace it.
    """
    name, seen = f"changed_{layer}", softmax.input[place]
    queries, keys, *_ = names.layer_changes(layer)
    nodes = [
        _node("MatMul", [queries, keys], f"{name}.count"),
        _node("Less", [f"{name}.count", _SOME], f"{name}.open"),
    ]
    if hides:
        nodes.append(_node("Where", [seen, _ZERO, _LOWEST], f"{name}.seen"))
        seen = f"{name}.seen"
    softmax.input[place] = f"{name}.scores"
    return [*nodes, _node("Where", [f"{name}.open", seen, _LOWEST], f"{name}.scores")]


def _scale(layer: int, mixing: NodeProto, *, half: bool) -> list[NodeProto]:
    """Make rows without keys 0, then scale the outputs of heads (B, H, N, D), and add means of them."""
    name, result = f"changed_{layer}", mixing.output[0]
    *_, scales, shares = names.layer_changes(layer)
    mixing.output[0] = f"{name}.mixed"
    return [
        _node("ReduceMax", [f"{name}.scores", _KEYS], f"{name}.largest", keepdims=1),  # (B, H, N, 1)
        _node("Greater", [f"{name}.largest", _LOWEST], f"{name}.sees"),
        _node("Cast", [f"{name}.sees"], f"{name}.shown", to=TensorProto.FLOAT),
        # The runtime leaves out casts from float32 to float32.
        _node("Cast", [f"{name}.mixed"], f"{name}.wide", to=TensorProto.FLOAT),
        _node("Mul", [f"{name}.wide", f"{name}.shown"], f"{name}.outputs"),
        _node("Mul", [f"{name}.outputs", scales], f"{name}.scaled"),
        _node("MatMul", [shares, f"{name}.outputs"], f"{name}.means"),  # (B, H, 1, D)
        _node("Add", [f"{name}.scaled", f"{name}.means"], f"{name}.changed"),
        _node("Cast", [f"{name}.changed"], result, to=TensorProto.FLOAT16 if half else TensorProto.FLOAT),
    ]


def _node(op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op_type, inputs, [output], name=output, **attributes)
