"""Graphs with int8 products, run by ONNX Runtime, against the float32 graphs that they are made of."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, numpy_helper

from export.quantization.int8 import quantize
from export.quantization.outliers import evened, set_apart
from export.writer import WEIGHTS, write_graph
from model.choices import Processors
from model.encoder.config import EncoderConfig
from model.encoder.parts import LayerConfig, Rotary
from model.onnx import names as graph
from model.onnx.file import GRAPH
from tests.support.exported import ExportedGraph
from tests.support.product import random_encoder

pytestmark = pytest.mark.thorough

LAYERS, HEADS = 2, 4
SIZES: dict[str, Any] = {"hidden_size": 32, "num_layers": LAYERS, "num_heads": HEADS, "intermediate_size": 48}
KINDS: dict[str, dict[str, Any]] = {
    "bert": {"segments": 2, "max_positions": 40, "vocab_size": 900},
    "pre-norm": {
        "positions": "none",
        "layers": (LayerConfig(rotary=Rotary.of(8)),),
        "norm": "pre",
        "gated": True,
        "activation": "silu",
        "vocab_size": 13,
    },
}
SEQUENCES = [[i * 7 % 13 for i in range(20)], [4, 0, 12, 7, 7, 1, 9], [5, 3, 2]]
Feeds = dict[str, NDArray[np.int64]]
Pair = tuple[ExportedGraph, ExportedGraph]
BITS: dict[Processors, int] = {"any": 64, "vnni": 127, "arm64": 127}
"""The largest weight of a graph, by what it is for."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """The float32 and the int8 graph of a kind of encoder, written when the first test asks for them."""

    @cache
    def of(kind: str) -> Pair:
        folder = tmp_path_factory.mktemp("int8")
        encoder = random_encoder(EncoderConfig(**SIZES, **KINDS[kind]))
        source = write_graph(encoder, folder, {"made.for": "tests"})
        target = folder / "int8" / GRAPH
        target.parent.mkdir()
        quantize(source, target, "any")
        return ExportedGraph(source, encoder.config), ExportedGraph(target, encoder.config)

    return of


def last_states(exported: ExportedGraph) -> Feeds:
    """Ask for the last hidden state of every token, and for nothing else."""
    feeds = exported.feeds(SEQUENCES)
    count, length = feeds[graph.INPUT_IDS].shape
    return {**feeds, graph.tokens(LAYERS): np.arange(count * length)}


def everything(exported: ExportedGraph) -> Feeds:
    return exported.everything(exported.feeds(SEQUENCES))


def real(exported: ExportedGraph) -> NDArray[np.bool_]:
    return exported.feeds(SEQUENCES)[graph.ATTENTION_MASK].astype(bool)


def nodes(part: GraphProto) -> Iterator[NodeProto]:
    """Every node, also those of branches."""
    for node in part.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from nodes(attribute.g)


@pytest.mark.parametrize("kind", KINDS)
def test_hidden_states_are_close_and_not_equal(kind: str, pair: Callable[[str], Pair]) -> None:
    """Products are rounded to int8, and it costs little."""
    exact, rounded = pair(kind)
    states = [g(last_states(g))[graph.state(LAYERS)][real(g).ravel()] for g in (exact, rounded)]
    error = np.sqrt(((states[0] - states[1]) ** 2).mean()) / states[0].std()
    assert 1e-3 < error < 0.06


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_looked_at_is_computed_in_float(kind: str, pair: Callable[[str], Pair]) -> None:
    """Maps, queries, keys and norms of every layer differ only by what float16 embeddings do."""
    exact, rounded = pair(kind)
    expected, found = exact(everything(exact)), rounded(everything(rounded))
    tokens = real(exact)[:, None, :, None]
    for layer in range(LAYERS):
        maps = np.abs(expected[graph.attention(layer)] - found[graph.attention(layer)])
        assert (maps * tokens).max() < 5e-3
        for name in (graph.queries(layer), graph.keys(layer)):
            np.testing.assert_allclose(found[name] * tokens, expected[name] * tokens, atol=2e-2)
        norms = real(exact)[:, None, :]
        name = graph.value_norms(layer)
        np.testing.assert_allclose(found[name] * norms, expected[name] * norms, atol=2e-2)


@pytest.mark.parametrize("lists", [graph.heads, graph.pair_heads, graph.norm_heads])
@pytest.mark.parametrize("looked", range(LAYERS))
def test_looking_makes_float_only_of_what_is_before(
    lists: Callable[[int], str], looked: int, pair: Callable[[str], Pair]
) -> None:
    """One list is enough, whichever; layers after the one that is looked at stay int8."""
    exact, rounded = pair("bert")
    look = exact.feeds(SEQUENCES) | {lists(looked): np.array([1]), graph.rows(looked): np.array([0])}
    look |= {graph.tokens(state): np.arange(60) for state in range(LAYERS + 1)}
    expected, found = exact(look), rounded(look)
    errors = [
        np.abs(expected[graph.state(i)] - found[graph.state(i)])[real(exact).ravel()].max()
        for i in range(LAYERS + 1)
    ]
    assert max(errors[: looked + 1]) < 5e-3
    assert min(errors[looked + 1 :]) > 1e-2


@pytest.mark.parametrize("kind", KINDS)
def test_only_products_with_constant_weights_are_quantized(kind: str, pair: Callable[[str], Pair]) -> None:
    """Six products a layer are int8; in float stay those of what is looked at, and of nothing else."""
    exact, rounded = pair(kind)
    before, after = (onnx.load(g.path).graph for g in (exact, rounded))
    shapes = {tensor.name: list(tensor.dims) for tensor in before.initializer}
    products = [n for n in nodes(before) if n.op_type == "MatMul" and len(shapes.get(n.input[1], [])) == 2]
    assert len(products) == 6 * LAYERS
    assert sum(n.op_type == "MatMulIntegerToFloat" for n in nodes(after)) == 6 * LAYERS
    free = 3  # the last output and feed-forward: nothing that can be looked at depends on them
    floats = [n for n in nodes(after) if n.op_type == "MatMul" and not n.input[1].endswith(".rows")]
    assert len(floats) == sum(n.op_type == "MatMul" for n in nodes(before)) - free
    weights = {tensor.name for tensor in after.initializer}
    assert {n.input[1] for n in products[-free:]}.isdisjoint(weights)


@pytest.mark.parametrize("processors", BITS)
def test_weights_have_a_scale_for_each_output(
    processors: Processors, pair: Callable[[str], Pair], tmp_path: Path
) -> None:
    """Each column of a weight, with what its input is divided by, is rounded to its own parts."""
    quantize(pair("bert")[0].path, tmp_path / GRAPH, processors)
    before, after = (onnx.load(path).graph for path in (pair("bert")[0].path, tmp_path / GRAPH))
    exact, found = ({t.name: numpy_helper.to_array(t) for t in g.initializer} for g in (before, after))
    made_by = {output: node for node in nodes(after) for output in node.output}
    kinds = set()
    for node in (n for n in nodes(after) if n.op_type == "MatMulIntegerToFloat"):
        name = node.input[1].removesuffix(".int8")
        even = made_by[made_by[node.input[0]].input[0]]  # what is rounded, before it is
        factors = found[even.input[1]] if even.op_type == "Mul" else np.ones(len(exact[name]), np.float32)
        apart = factors == 0
        weight = exact[name] / np.where(apart, np.inf, factors)[:, None]
        value, scale = found[f"{name}.int8"], found[f"{name}.scale"]
        np.testing.assert_allclose(scale * BITS[processors], np.abs(weight).max(axis=0), rtol=1e-5)
        assert (np.abs(value * scale - weight) <= scale * 0.501).all()
        if apart.any():
            np.testing.assert_array_equal(found[f"{name}.apart"], np.flatnonzero(apart))
            np.testing.assert_array_equal(found[f"{name}.rows"], exact[name][apart])
        kinds.add((even.op_type == "Mul", bool(apart.any())))
    assert kinds == {(True, False), (True, True), (False, False)}


def test_large_channels_do_not_cost_the_others_their_digits() -> None:
    """One scale for all, and a few channels a hundred times as large: what is lost is a tenth or less."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(500, 64)).astype(np.float32)
    x[:, [3, 40]] *= 100
    weight = generator.normal(size=(64, 16)).astype(np.float32)
    weight[[3, 40]] /= 100
    magnitudes = np.abs(x).max(axis=0), np.abs(weight).max(axis=1)

    def error(factors: NDArray[np.float32]) -> float:
        step = np.ptp(x * factors) / 255
        few = np.where(factors > 0, 0, 1)  # computed in float
        back = np.divide(1, factors, out=np.zeros(64, np.float32), where=factors > 0)
        approximate = np.rint(x * factors / step) * step * back + x * few
        return float(np.abs(approximate @ weight - x @ weight).max())

    plain = error(np.ones(64, np.float32))
    assert error(evened(*magnitudes).factors) < plain / 10
    apart = set_apart(magnitudes[0], np.ones(64, np.float32))
    assert {3, 40} <= set(apart.apart)
    assert error(apart.factors) < plain / 10


def test_the_graph_keeps_its_face(pair: Callable[[str], Pair]) -> None:
    """Inputs, outputs with their shapes, and metadata stay; only the dtype and what it is for are others."""
    exact, rounded = (onnx.load(g.path) for g in pair("bert"))
    assert list(exact.graph.input) == list(rounded.graph.input)
    assert list(exact.graph.output) == list(rounded.graph.output)
    about = [{entry.key: entry.value for entry in model.metadata_props} for model in (exact, rounded)]
    assert about[0][graph.FORMAT_KEY] == graph.FORMAT
    assert about[1] == about[0] | {graph.DTYPE_KEY: "int8", graph.PROCESSORS_KEY: "any"}
    onnx.checker.check_model(pair("bert")[1].path)


def test_nothing_else_is_written_and_the_same_again(pair: Callable[[str], Pair], tmp_path: Path) -> None:
    """Two files, of the same bytes each time, also over older ones; the table of tokens is halved."""
    exact, rounded = pair("bert")
    first = {path.name: path.read_bytes() for path in rounded.path.parent.iterdir()}
    assert set(first) == {GRAPH, WEIGHTS}
    for _ in range(2):
        quantize(exact.path, tmp_path / GRAPH, "any")
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first
    assert all(str(exact.path.parent).encode() not in content for content in first.values())
    assert len(first[WEIGHTS]) < (exact.path.parent / WEIGHTS).stat().st_size
    before, after = ((g.path.parent / WEIGHTS).stat().st_mode for g in (exact, rounded))
    assert before == after


def test_a_failed_write_leaves_nothing(
    pair: Callable[[str], Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk leaves no half of a graph, and no folder."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("export.quantization.int8.onnx_ir.save", full)
    with pytest.raises(OSError, match="No space"):
        quantize(pair("bert")[0].path, tmp_path / GRAPH, "any")
    assert not list(tmp_path.iterdir())
