"""Quantizes the products of an exported graph to int8; runs that observe what depends on them use float32.

Weights are rounded to int8, with one scale per output. Activations are rounded to uint8 at run time, with
one scale per run, so a text's vector depends slightly on the other texts of its batch. x86 without VNNI
saturates sums of pairs of products, unless weights have seven bits (`model.onnx.vnni`): a graph for any
processor has such weights, and is as fast.

This is precise enough for sentence vectors but not for attention: a softmax is sensitive to differences of
less than a hundredth, and maps of MiniLM are off by up to 0.4. No choice of int8 products avoids that:
rounding the weights alone changes maps by 0.1. So each product that a map, queries, keys or value norms
depend on also keeps its float32 weights, and uses them in runs that return one of these. The graph tells
which products these are: those upstream of the outputs in `model.onnx.names.layer_outputs`.

The table of token embeddings, of which a run reads a few rows, is stored in float16: exact to 2⁻¹¹.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from export.quantization.outliers import Channels, evened, largest_inputs, set_apart
from model.choices import Processors
from model.contract import FloatArray
from model.onnx import names
from model.onnx.precision import EIGHT_BITS, SEVEN_BITS

_CONTRIB = "com.microsoft"  # operators of ONNX Runtime
_NONE = "int8.none"  # the constant 0
_EXTERNAL_FROM = 1024  # bytes; smaller tensors stay in the graph, where shape inference reads them


@dataclass(frozen=True, eq=False)
class _Product:
    """x W + b with a constant W (in, out): a MatMul and, if there is a bias, the Add after it."""

    matmul: NodeProto
    add: NodeProto | None
    bias: str  # "" without a bias

    @property
    def weight(self) -> str:
        return self.matmul.input[1]

    @property
    def result(self) -> str:
        return (self.matmul if self.add is None else self.add).output[0]

    @property
    def nodes(self) -> list[NodeProto]:
        return [self.matmul] if self.add is None else [self.matmul, self.add]


_Groups = dict[
    tuple[str, tuple[int, ...]], list[_Product]
]  # by input, and by the layers whose observed outputs depend on the product


def quantize(source: Path, target: Path, processors: Processors) -> None:
    """Read the graph `source` with its external data, and write it as int8 to `target` and `target`.data.

    Only products with constant weights change; the metadata then has "int8" as `DTYPE_KEY` and the
    `processors` that the graph is for. Inputs, outputs and other metadata stay the same. The same source
    gives the same bytes. Existing files at `target` are replaced once everything is written.
    """
    model = onnx.load(source)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".int8-") as folder:
        _quantize(model, processors, Path(folder))
        _write(model, target, Path(folder))


def _quantize(model: ModelProto, processors: Processors, folder: Path) -> None:
    groups = _groups(model.graph)
    largest = largest_inputs(model, sorted({x for x, _ in groups}), folder)
    _quantize_products(model.graph, groups, largest, SEVEN_BITS if processors == "any" else EIGHT_BITS)
    _halve_table(model.graph)
    _drop_unused(model.graph)
    if all(opset.domain != _CONTRIB for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid(_CONTRIB, 1))
    about = {entry.key: entry.value for entry in model.metadata_props}
    told = {names.DTYPE_KEY: "int8", names.PROCESSORS_KEY: processors}
    helper.set_model_props(model, about | told)


# ------------------------------------------------------------------------------------------ products


def _groups(graph: GraphProto) -> _Groups:
    """Find all products, grouped by their input and by the layers whose outputs depend on them."""
    layers = _observable_layers(graph)
    groups: _Groups = {}
    for product in _products(graph):
        key = (product.matmul.input[0], layers.get(product.matmul.output[0], ()))
        groups.setdefault(key, []).append(product)
    return groups


def _quantize_products(
    graph: GraphProto, groups: _Groups, largest: dict[str, FloatArray], limit: int
) -> None:
    """Replace every product by one with rounded weights from −`limit` to `limit`."""
    weights = {tensor.name: tensor for tensor in graph.initializer}
    made_by = {output: node for node in graph.node for output in node.output}
    replaced: dict[str, list[NodeProto]] = {}  # output of an old node -> the nodes that replace it
    for (x, layers), products in groups.items():
        exact = {p: numpy_helper.to_array(weights[p.weight]) for p in products}
        channels = _channels(_is_normed(x, made_by), largest[x], list(exact.values()))
        nodes, constants = _int8(x, exact, channels, limit)
        graph.initializer.extend(constants)
        replaced |= {node.output[0]: [] for product in products for node in product.nodes}
        replaced[products[0].matmul.output[0]] = [_choice(layers, products, nodes)] if layers else nodes

    kept = [new for old in graph.node for new in replaced.get(old.output[0], [old])]
    del graph.node[:]
    for layers in sorted({layers for _, layers in groups if layers}):
        graph.node.extend(_observes(layers))
    graph.node.extend(kept)
    graph.initializer.append(numpy_helper.from_array(np.array(0, np.int64), _NONE))


def _products(graph: GraphProto) -> Iterator[_Product]:
    """Find the products of activations (…, in) with constant float32 weights (in, out)."""
    weights = {tensor.name: tensor for tensor in graph.initializer}
    users = _users(graph)
    for node in graph.node:
        if node.op_type != "MatMul" or node.input[1] not in weights:
            continue
        weight = weights[node.input[1]]
        if len(weight.dims) != 2 or weight.data_type != TensorProto.FLOAT:
            continue
        after = users.get(node.output[0], [])
        add = after[0] if len(after) == 1 and after[0].op_type == "Add" else None
        biases = [] if add is None else [name for name in add.input if name in weights]
        biases = [name for name in biases if list(weights[name].dims) == list(weight.dims[1:])]
        yield _Product(node, add, biases[0]) if biases else _Product(node, None, "")


def _observable_layers(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    """Return, for each value, the layers whose observed outputs depend on it, in order."""
    made_by = {output: node for node in graph.node for output in node.output}
    outputs = {output.name for output in graph.output}
    found: dict[str, tuple[int, ...]] = {}
    for layer in range(len(outputs)):
        pending = [name for name in names.layer_outputs(layer) if name in outputs]  # none without attention
        upstream = set()
        while pending:
            name = pending.pop()
            if name not in upstream and name in made_by:
                upstream.add(name)
                pending += made_by[name].input
        found |= {name: (*found.get(name, ()), layer) for name in upstream}
    return found


def _observes(layers: tuple[int, ...]) -> list[NodeProto]:
    """Make nodes that test whether a run observes one of these layers: whether a list of heads has any."""
    name = _condition(layers)
    lists = [of(i) for i in layers for of in (names.heads, names.pair_heads, names.norm_heads)]
    return [
        helper.make_node("Concat", lists, [f"{name}.lists"], name=f"{name}.lists", axis=0),
        helper.make_node("Size", [f"{name}.lists"], [f"{name}.size"], name=f"{name}.size"),
        helper.make_node("Greater", [f"{name}.size", _NONE], [name], name=name),
    ]


def _condition(layers: tuple[int, ...]) -> str:
    return "int8.looked_" + "_".join(map(str, layers))


def _choice(layers: tuple[int, ...], products: list[_Product], quantized: list[NodeProto]) -> NodeProto:
    """Run products of one input in float32 if the run observes one of these layers, else in int8."""
    float_ = [node for product in products for node in product.nodes]
    results = [product.result for product in products]
    branches = {}
    for branch, nodes in (("then", float_), ("else", quantized)):
        renamed = {result: f"{result}.{branch}" for result in results}
        outputs = [helper.make_tensor_value_info(renamed[r], TensorProto.FLOAT, None) for r in results]
        graph = helper.make_graph(nodes, f"{results[0]}.{branch}", [], outputs)  # copies the nodes
        for node in graph.node:
            node.output[:] = [renamed.get(name, name) for name in node.output]
        branches[f"{branch}_branch"] = graph
    return helper.make_node("If", [_condition(layers)], results, name=f"{results[0]}.choice", **branches)


def _is_normed(x: str, made_by: dict[str, NodeProto]) -> bool:
    """Return whether a value is the output of a layer norm, or rows of one."""
    while x in made_by and made_by[x].op_type in ("Reshape", "Gather"):
        x = made_by[x].input[0]
    return x in made_by and made_by[x].op_type == "LayerNormalization"


def _channels(normed: bool, inputs: FloatArray, weights: Sequence[FloatArray]) -> Channels | None:
    """Choose how to treat large channels of the input of these weights; None for no treatment."""
    reach = np.abs(np.concatenate(weights, axis=1)).max(axis=1)  # (in,)
    if normed:
        return evened(inputs, reach)
    size, outputs = weights[0].shape
    return set_apart(inputs, reach) if size > outputs else None


def _int8(
    x: str, products: Mapping[_Product, FloatArray], channels: Channels | None, limit: int
) -> tuple[list[NodeProto], list[TensorProto]]:
    """Round x once and multiply it by each of the rounded weights; returns nodes and their constants."""
    nodes, constants = _rounded_input(x, channels)
    apart = None if channels is None or not len(channels.apart) else channels.apart
    for product, weight in products.items():
        result = product.result if apart is None else f"{product.result}.most"
        nodes.append(_integer_product(x, product, result))
        constants += _rounded_weight(product.weight, weight, channels, limit)
        if apart is not None:
            more, rows = _float_product(x, product, weight, result, apart)
            nodes += more
            constants += rows
    return nodes, constants


def _rounded_input(x: str, channels: Channels | None) -> tuple[list[NodeProto], list[TensorProto]]:
    """Multiply x by the factors of its channels, and round it to uint8 with one scale and zero point."""
    nodes, constants, even = [], [], x
    if channels is not None:
        even = f"{x}.even"
        constants.append(numpy_helper.from_array(channels.factors, f"{x}.factors"))
        nodes.append(helper.make_node("Mul", [x, f"{x}.factors"], [even], name=even))
    outputs = [f"{x}.{part}" for part in ("int8", "scale", "zero")]
    nodes.append(helper.make_node("DynamicQuantizeLinear", [even], outputs, name=outputs[0]))
    return nodes, constants


def _integer_product(x: str, product: _Product, result: str) -> NodeProto:
    """Multiply the result of `_rounded_input` by a rounded weight, and add the bias."""
    name = product.weight
    operands = [f"{x}.int8", f"{name}.int8", f"{x}.scale", f"{name}.scale", f"{x}.zero", "", product.bias]
    return helper.make_node("MatMulIntegerToFloat", operands, [result], name=result, domain=_CONTRIB)


def _float_product(
    x: str, product: _Product, weight: FloatArray, most: str, apart: NDArray[np.int64]
) -> tuple[list[NodeProto], list[TensorProto]]:
    """Multiply the channels that are set apart in float32, and add the result to `most`."""
    name, few = product.weight, f"{product.result}.few"
    nodes = [
        helper.make_node("Gather", [x, f"{name}.apart"], [f"{few}.x"], name=f"{few}.x", axis=-1),
        helper.make_node("MatMul", [f"{few}.x", f"{name}.rows"], [few], name=few),
        helper.make_node("Add", [most, few], [product.result], name=f"{few}.added"),
    ]
    rows = numpy_helper.from_array(weight[apart], f"{name}.rows")
    return nodes, [numpy_helper.from_array(apart, f"{name}.apart"), rows]


def _rounded_weight(
    name: str, weight: FloatArray, channels: Channels | None, limit: int
) -> list[TensorProto]:
    """Round a weight (in, out) to multiples of a scale for each output: int8 (in, out), and (out,)."""
    if channels is not None:
        factors = channels.factors[:, None]
        weight = np.divide(weight, factors, out=np.zeros_like(weight), where=factors > 0)
    largest = np.abs(weight).max(axis=0)  # (out,)
    scale = np.where(largest > 0, largest / limit, 1).astype(np.float32)
    value = np.clip(np.rint(weight / scale), -limit, limit).astype(np.int8)
    return [
        numpy_helper.from_array(value, f"{name}.int8"),
        numpy_helper.from_array(scale, f"{name}.scale"),
    ]


# ------------------------------------------------------------------------------------------ the rest


def _halve_table(graph: GraphProto) -> None:
    """Store the float32 table of token embeddings in float16, unless a number is out of range."""
    tables = {tensor.name: tensor for tensor in graph.initializer if tensor.data_type == TensorProto.FLOAT}
    users = _users(graph)
    for at, node in enumerate(graph.node):
        if node.op_type != "Gather" or node.input[1] != names.INPUT_IDS or node.input[0] not in tables:
            continue
        tensor, read = tables[node.input[0]], node.output[0]
        table = numpy_helper.to_array(tensor)
        if len(users[tensor.name]) > 1 or np.abs(table).max() > np.finfo(np.float16).max:
            continue
        tensor.CopyFrom(numpy_helper.from_array(table.astype(np.float16), tensor.name))
        node.output[0] = f"{read}.half"
        cast = helper.make_node("Cast", [f"{read}.half"], [read], name=f"{read}.cast", to=TensorProto.FLOAT)
        graph.node.insert(at + 1, cast)
        return


def _users(graph: GraphProto) -> dict[str, list[NodeProto]]:
    """Return, for each value, the nodes that read it."""
    users: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    return users


def _drop_unused(graph: GraphProto) -> None:
    """Remove the constants that no node reads."""
    used = set(_read(graph))
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    del graph.value_info[:]  # it describes values that no longer exist


def _read(graph: GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _read(attribute.g)
    yield from (output.name for output in graph.output)


def _write(model: ModelProto, target: Path, folder: Path) -> None:
    """Write the graph and its data to a temporary folder, then move both to `target`."""
    data = f"{target.name}.data"
    graph = onnx_ir.from_proto(model)
    onnx_ir.save(graph, folder / target.name, external_data=data, size_threshold_bytes=_EXTERNAL_FROM)
    for name in (data, target.name):
        (folder / name).replace(target.parent / name)
