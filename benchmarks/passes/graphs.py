"""Measures exported graphs in ONNX Runtime on the CPU, compared with a plain export of the same weights.

The plain export is `transformers`' own module, traced by PyTorch's exporter, with the last hidden state as
its only output; it runs once with ONNX Runtime's default optimisations and once without the ones that
headlight disables, and its threads wait as in headlight. All sessions use all cores, and each shape is one
call: no service, no tokenizer, and no grouping.

The rows; int8 and float16 are compared with the float32 graph, the others as listed:

- graph: headlight's graph, returning only the last hidden state, compared with the faster plain export;
- one head: also one map of one middle layer, compared with `graph`;
- CLS row: also the row of the first token in every layer and head, compared with `graph`;
- all maps: also every map of every layer, compared with `graph`;
- int8, float16: these variants, returning only the last hidden state.

The second table has batches as the service runs them, in padded batches of at most 512 tokens and one batch
on each core, returning sentence vectors.

They take turns in rounds, in a new order each round. A ratio is from one round; the table shows the median,
with the quartiles in brackets. Write the folders with `python -m export` and name them here:

    python -m benchmarks.passes.graphs FLOAT32 [--int8 FOLDER] [--float16 FOLDER] [--rounds 9]
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.kit import machine, tables
from benchmarks.kit.batches import pack_ids, random_ids
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.turns import take_turns
from benchmarks.peers.plain_export import export_plain
from model.checkpoints.folder import ModelFolder, read_folder
from model.checkpoints.source import EMBEDDED
from model.contract import Backend, Batch
from model.loading import load_model
from model.onnx import names as graph
from model.onnx.file import GRAPH
from model.onnx.session import CPU, Graph, Processor, serving_options
from service.system.process import keep_freed_memory

import onnxruntime  # isort: skip  # after the environment that it reads is set

SHAPES = ((1, 16), (4, 128), (32, 128), (256, 16), (1, 512))
SPEED, ONE_HEAD, INT8 = 0.95, 1.05, 1.9
"""The targets: speed / plain export, time with one head, and speed of int8 / float32."""

_INT8_SHAPE = "32×128"
_NONE = np.zeros(0, np.int64)
_VOCABULARY = (1000, 30_000)
Feed = dict[str, NDArray[np.int64]]


class Plain:
    """The plain export, with the optimisers that are named left out."""

    def __init__(self, path: Path, threads: int, disabled: Sequence[str]) -> None:
        options = serving_options(threads, spin=True)
        self._session = onnxruntime.InferenceSession(
            path, options, providers=[CPU], disabled_optimizers=disabled
        )

    def run(self, feed: Feed) -> Any:
        """Give the last hidden state."""
        return self._session.run(None, feed)


def main() -> None:
    """Export the plain graph, measure and print."""
    arguments = parse_arguments()
    keep_freed_memory()
    threads = torch.get_num_threads()
    folder = read_folder(arguments.float32)
    tables.print_facts(
        "Machine", [*machine.facts("float32"), ("onnxruntime", onnxruntime.__version__), ("model", EMBEDDED)]
    )
    with tempfile.TemporaryDirectory() as place:
        path = export_plain(Path(place))
        plain = {
            "plain": Plain(path, threads, []),
            "plain, fewer fusions": Plain(path, threads, ["SkipLayerNormFusion"]),
        }
        ours = open_graph(arguments.float32, threads)
        variants = {
            name: open_graph(variant, threads)
            for name, variant in (("int8", arguments.int8), ("float16", arguments.float16))
            if variant is not None
        }
        seconds = {shape: measure(shape, folder, plain, ours, variants, arguments.rounds) for shape in SHAPES}
    print_speeds(seconds)
    served = measure_served(arguments)
    tables.print_checks([*make_checks(seconds), *served])


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("float32", type=Path, help=f"an exported folder of {EMBEDDED}")
    parser.add_argument("--int8", type=Path, help="the same with --quantize int8")
    parser.add_argument("--float16", type=Path, help="the same with --dtype float16")
    parser.add_argument("--rounds", type=int, default=9)
    return parser.parse_args()


def open_graph(folder: Path, threads: int) -> Graph:
    """Open an exported folder as the service does when one batch has all cores."""
    return Graph(folder / GRAPH, Processor("cpu", CPU), threads, spin=True)


def measure(
    shape: tuple[int, int],
    folder: ModelFolder,
    plain: dict[str, Plain],
    ours: Graph,
    variants: dict[str, Graph],
    rounds: int,
) -> dict[str, list[float]]:
    """Time everyone on one rectangle: seconds a call, round by round."""
    layers, heads = folder.config.num_layers, folder.config.num_heads
    tokens = texts(shape)
    every, all_heads = np.arange(shape[1]), np.arange(heads)
    looks: dict[str, list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]] = {
        "graph": [],
        "one head": [(layers // 2, np.array([heads // 2]), every)],
        "CLS row": [(layer, all_heads, np.array([0])) for layer in range(layers)],
        "all maps": [(layer, all_heads, every) for layer in range(layers)],
    }
    contestants: dict[str, Callable[[], object]] = {
        name: partial(one.run, tokens) for name, one in plain.items()
    }
    for name, look in looks.items():
        outputs = [graph.state(layers), *(graph.attention(layer) for layer, *_ in look)]
        contestants[name] = partial(ours.run, make_feed(tokens, layers, look), outputs)
    for name, variant in variants.items():
        contestants[name] = partial(variant.run, make_feed(tokens, layers, []), [graph.state(layers)])
    return take_turns(contestants, rounds)


def texts(shape: tuple[int, int]) -> Feed:
    """Make a rectangle of random tokens; speed does not depend on which."""
    ids = np.random.default_rng(0).integers(*_VOCABULARY, shape)
    return {
        graph.INPUT_IDS: ids,
        graph.ATTENTION_MASK: np.ones_like(ids),
        graph.TOKEN_TYPE_IDS: np.zeros_like(ids),
    }


def make_feed(
    tokens: Feed, layers: int, look: Sequence[tuple[int, NDArray[np.int64], NDArray[np.int64]]]
) -> Feed:
    """Ask for the last hidden state, and for heads and rows of some layers."""
    shape = tokens[graph.INPUT_IDS].shape
    cells = np.arange(np.prod(shape)).reshape(shape)
    feed = tokens | {graph.tokens(i): _NONE for i in range(layers)}
    feed[graph.tokens(layers)] = cells.ravel()
    for layer in range(layers):
        feed |= dict.fromkeys(graph.layer_lists(layer), _NONE)
        feed[graph.cells(layer)] = cells
    for layer, heads, rows in look:
        feed[graph.heads(layer)], feed[graph.rows(layer)] = heads, rows
    return feed


def measure_served(arguments: argparse.Namespace) -> list[tables.Check]:
    """Time the variants as the service runs them, and print; returns what is held to a bound."""
    folders = {"float32": arguments.float32, "int8": arguments.int8, "float16": arguments.float16}
    backends = {name: load_model(str(path))[1] for name, path in folders.items() if path is not None}
    header, rows, checks = ["", *backends], [], []
    for count, length in SHAPES[2:4]:
        ids = random_ids([length] * count, _VOCABULARY[1], *_VOCABULARY)
        shape = f"{count}×{length}"
        with ThreadPoolExecutor(next(iter(backends.values())).lanes) as pool:
            contestants = {
                name: partial(side_by_side, pool, backend, pack_ids(ids, backend.info))
                for name, backend in backends.items()
            }
            seconds = take_turns(contestants, arguments.rounds)
        both = 2 * count * length
        rows.append([shape, *(f"{both / np.median(seconds[name]) / 1e3:.1f}" for name in backends)])
        if "int8" in backends and shape == _INT8_SHAPE:
            ratios = list(np.divide(seconds["float32"], seconds["int8"]))
            checks.append(tables.Check(f"{shape} as served: int8, speed of float32", ratios, INT8))
    tables.print_table("As served: thousands of tokens a second", header, rows)
    return checks


def side_by_side(pool: Executor, backend: Backend, batch: Batch) -> None:
    """Run a batch in each of two lanes."""
    list(pool.map(lambda _: backend.run(batch, lanes=2), range(2)))


def print_speeds(seconds: dict[tuple[int, int], dict[str, list[float]]]) -> None:
    """Print thousands of tokens a second, and the ratios within a round."""
    names = list(next(iter(seconds.values())))
    shown = [f"{b}×{n}" for b, n in seconds]
    rows = [
        [name, *(f"{b * n / np.median(measured[name]) / 1e3:.1f}" for (b, n), measured in seconds.items())]
        for name in names
    ]
    tables.print_table("Thousands of tokens a second", ["", *shown], rows)
    compared = [("graph", "best plain"), *((v, "graph") for v in ("int8", "float16") if v in names)]
    ratios = [
        [f"{name} / {other}", *(tables.ratio(m[other], m[name]) for m in map(with_best, seconds.values()))]
        for name, other in compared
    ]
    ratios += [
        [f"{name}: time of graph", *(tables.ratio(m[name], m["graph"]) for m in seconds.values())]
        for name in ("one head", "CLS row", "all maps")
    ]
    tables.print_table("Ratios", ["", *shown], ratios)


def with_best(measured: dict[str, list[float]]) -> dict[str, list[float]]:
    """Add the plain export that is faster over all rounds."""
    plain = [name for name in measured if name.startswith("plain")]
    return measured | {"best plain": measured[min(plain, key=lambda name: float(np.median(measured[name])))]}


def make_checks(seconds: dict[tuple[int, int], dict[str, list[float]]]) -> list[tables.Check]:
    """Hold the ratios to their bounds."""
    checks = []
    for (b, n), measured in seconds.items():
        best = with_best(measured)["best plain"]
        shape = f"{b}×{n}"
        checks.append(
            tables.Check(f"{shape}: speed of plain", list(np.divide(best, measured["graph"])), SPEED)
        )
        head = list(np.divide(measured["one head"], measured["graph"]))
        checks.append(tables.Check(f"{shape}: time with one head", head, ONE_HEAD, at_most=True))
        if "int8" in measured and shape == _INT8_SHAPE:
            int8 = list(np.divide(measured["graph"], measured["int8"]))
            checks.append(tables.Check(f"{shape}: int8, speed of float32", int8, INT8))
    return checks


if __name__ == "__main__":
    main()
