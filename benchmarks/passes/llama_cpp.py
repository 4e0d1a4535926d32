"""Measures passes of a decoder of Qwen3-0.6B's size, beside llama.cpp.

Weights are random and the vocabulary is small. For each batch shape it measures the seconds from token ids to
each text's last hidden state: headlight in bfloat16 beside llama.cpp in float16, and in eight bits beside
`Q8_0`. All take turns, in reversed order every other round, with as many threads; llama.cpp is paused without
the turn. Ratios are formed within a round, and the median is shown, with the quartiles in brackets. First,
the vectors are compared.

    python -m benchmarks.passes.llama_cpp PYTHON [--layers 28] [--shapes 8×128] [--rounds 5]

`PYTHON` is one that has `llama-cpp-python` and `gguf`.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.kit import machine, tables
from benchmarks.kit.batches import pack_ids
from benchmarks.kit.command_line import parser_for, some_of
from benchmarks.kit.servers import Process
from benchmarks.passes.families import write
from model.checkpoints.checkpoint import load_checkpoint
from model.contract import SentenceWant, Want
from model.pytorch.backend import TorchBackend

SHAPES = {"1×16": [16], "8×128": [128] * 8, "2×1024": [1024] * 2, "1×8192": [8192]}
PAIRS = {"bfloat16": "F16", "int8": "Q8_0"}
"""headlight's precision -> llama.cpp's."""
OF_LLAMA = 1.2
"""The target: the speed of headlight / llama.cpp."""
_CLOSE = 0.95
"""The lowest cosine of two vectors. Eight bits reach 0.987 with 28 layers of random weights."""
Texts = Sequence[Sequence[int]]
Run = Callable[[Texts], tuple[float, list[float]]]
"""Returns the seconds, and the last token's hidden state of the first text."""


def main() -> None:
    """Measure and print."""
    parser = parser_for(__doc__)
    parser.add_argument("python", help="a Python that has llama-cpp-python and gguf")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--shapes", type=some_of(tuple(SHAPES)), default=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    tables.print_facts("Machine", machine.facts("bfloat16"))
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = write("qwen3-0.6b", Path(place), "bfloat16", arguments.layers).folder
        runs = {name: contestant(name, folder, arguments, stack) for pair in PAIRS.items() for name in pair}
        measure(runs, arguments.shapes, arguments.rounds)


def contestant(name: str, folder: Path, arguments: argparse.Namespace, stack: ExitStack) -> Run:
    """Load one of them."""
    if name in PAIRS:
        return partial(ours, TorchBackend(load_checkpoint(folder), device="cpu", dtype=name))
    threads = str(torch.get_num_threads())
    command = [arguments.python, "-m", "benchmarks.peers.llama_decoder", name, str(folder), threads]
    peer = Process(command, {"PYTHONPATH": str(Path.cwd())}, pipes=True)
    stack.callback(peer.end)
    return partial(theirs, peer)


def ours(backend: TorchBackend, texts: Texts) -> tuple[float, list[float]]:
    """Run a pass in which each text wants its last token's hidden state."""
    want = Want(sentence=SentenceWant(modes=("last",), layers=(backend.info.layers,), normalize=False))
    batch = replace(pack_ids(texts, backend.info), wants=(want,) * len(texts))
    start = time.perf_counter()
    output = backend.run(batch)[0]
    seconds = time.perf_counter() - start
    assert output.sentence is not None
    return seconds, output.sentence.ravel().tolist()


def theirs(peer: Process, texts: Texts) -> tuple[float, list[float]]:
    """Let llama.cpp run them."""
    peer.go_on()
    seconds, vector = peer.ask(json.dumps([list(ids) for ids in texts]))
    peer.pause()
    return seconds, vector


def measure(runs: Mapping[str, Run], shapes: Sequence[str], rounds: int) -> None:
    """Measure each shape, and print."""
    rows, checks = [], []
    draw = np.random.default_rng(0)
    for shape in shapes:
        texts = [draw.integers(5, 100, n).tolist() for n in SHAPES[shape]]
        vectors = {name: np.array(run(texts)[1]) for name, run in runs.items()}
        compare(vectors)
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(rounds):
            for name in [*runs][:: -1 if number % 2 else 1]:
                seconds[name].append(runs[name](texts)[0])
        shown = [f"{1e3 * float(np.median(values)):.0f}" for values in seconds.values()]
        ratios = [tables.ratio(seconds[theirs], seconds[ours]) for ours, theirs in PAIRS.items()]
        rows.append([shape, *shown, *ratios])
        for ours, theirs in PAIRS.items() if shape == "8×128" else ():
            values = np.divide(seconds[theirs], seconds[ours]).tolist()
            checks.append(tables.Check(f"{shape}: speed of {ours} / {theirs}", values, OF_LLAMA))
    header = ["", *runs, *(f"{theirs} / {ours}" for ours, theirs in PAIRS.items())]
    tables.print_table("Milliseconds, median", header, rows)
    tables.print_checks(checks)


def compare(vectors: Mapping[str, np.ndarray]) -> None:
    """End the program unless all make the same vectors."""
    first, *others = (vector / np.linalg.norm(vector) for vector in vectors.values())
    for name, vector in zip([*vectors][1:], others, strict=True):
        if (cosine := float(first @ vector)) < _CLOSE:
            raise SystemExit(
                f"The cosine to the vector of {name} is {cosine:.4f}: the two do not run the same model."
            )


if __name__ == "__main__":
    main()
