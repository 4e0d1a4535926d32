"""Measures tokens per second on CUDA, compared with the matrix products of the pass alone.

The models are the embedded one and one of random weights as large as BERT's base model. Contestants are
PyTorch in bfloat16 (`TorchBackend`, attention of all lengths in one call) and, with `--graph`, an exported
folder of the embedded model in ONNX Runtime. The ceiling is `F.linear` with the shapes, biases and dtype of
the pass, one after another, with one row per token.

A pass ends when its results are on the host. All take turns in rounds, in a new order each round; the share
of the ceiling is formed within a round.

    python -m benchmarks.passes.cuda [--graph FOLDER] [--device cuda] [--rounds 15]
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.kit import machine, tables
from benchmarks.kit.batches import pack_ids, random_ids
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.turns import take_turns
from benchmarks.kit.workloads import mixed_lengths
from benchmarks.passes.attention import MODELS, load_model
from model.checkpoints.source import EMBEDDED
from model.contract import Backend
from model.encoder.config import EncoderConfig
from model.loading import load_model as load_graph
from model.pytorch.backend import TorchBackend

_DTYPE = torch.bfloat16
_CLS, _SEP, _VOCABULARY = 101, 102, 30_522


def main() -> None:
    """Measure and print, one model after the other."""
    arguments = parse_arguments()
    if arguments.device.startswith("cuda") and not torch.cuda.is_available():
        raise SystemExit("PyTorch sees no CUDA device: nothing can be measured here.")
    name = torch.cuda.get_device_name() if arguments.device.startswith("cuda") else machine.cpu_name()
    tables.print_facts("Machine", [("device", name), ("torch", torch.__version__), ("dtype", "bfloat16")])
    for model in MODELS:
        backend = TorchBackend(load_model(model), device=arguments.device, dtype="bfloat16")
        backends: dict[str, Backend] = {"torch": backend}
        if model == EMBEDDED and arguments.graph is not None:
            _, graph = load_graph(str(arguments.graph), kind="onnx", device=arguments.device)
            backends[f"onnx {graph.info.dtype}, {graph.info.provider}"] = graph
        print_model(model, backends, backend.encoder.config, arguments)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--graph", type=Path, help="an exported folder of the embedded model")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=15)
    return parser.parse_args()


def print_model(
    model: str, backends: dict[str, Backend], config: EncoderConfig, arguments: argparse.Namespace
) -> None:
    """Time everyone on each shape, and print thousands of tokens a second and shares of the ceiling."""
    limit = min(backend.info.max_length for backend in backends.values())
    longest = min(512, limit)
    shapes = {
        "32×128": [128] * 32,
        "1024×16": [16] * 1024,
        f"64×{longest}": [longest] * 64,
        "1024 mixed": mixed_lengths(1024, limit),
    }
    rows = []
    for shape, lengths in shapes.items():
        texts = random_ids(lengths, _VOCABULARY, _CLS, _SEP)
        contestants: dict[str, Callable[[], object]] = {
            name: partial(backend.run, pack_ids(texts, backend.info)) for name, backend in backends.items()
        }
        contestants["ceiling"] = products(config, sum(lengths), arguments.device)
        seconds = take_turns(contestants, arguments.rounds)
        rates = [f"{sum(lengths) / np.median(seconds[name]) / 1e3:.0f}" for name in contestants]
        shares = [tables.ratio(seconds["ceiling"], seconds[name]) for name in backends]
        rows.append([shape, *rates, *shares])
    header = ["texts", *(f"{name}, k tokens/s" for name in (*backends, "ceiling"))]
    tables.print_table(model, [*header, *(f"{name} / ceiling" for name in backends)], rows)


def products(config: EncoderConfig, tokens: int, device: str) -> Callable[[], None]:
    """Prepare the linear products of a pass over a number of tokens."""
    width, inner = config.hidden_size, config.intermediate_size
    sizes: Sequence[tuple[int, int]] = [(width, 3 * width), (width, width), (width, inner), (inner, width)]
    layers = [
        (torch.randn(o, i, device=device, dtype=_DTYPE), torch.randn(o, device=device, dtype=_DTYPE))
        for _ in range(config.num_layers)
        for i, o in sizes
    ]
    inputs = {i: torch.randn(tokens, i, device=device, dtype=_DTYPE) for i, _ in sizes}

    @torch.inference_mode()
    def run() -> None:
        for weight, bias in layers:
            F.linear(inputs[weight.shape[1]], weight, bias)
        if device.startswith("cuda"):
            torch.cuda.synchronize()

    return run


if __name__ == "__main__":
    main()
