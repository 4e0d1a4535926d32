"""Measures texts of up to 8,192 tokens on a family with windows, ModernBERT, in its base width.

Weights are random, and there are `--layers` layers. For each length it prints the time per token of a pass
over one text, of headlight and of `transformers` (`sdpa` attention); and, each in a process of its own, by
how much the resident memory of a pass, with and without the statistics of all heads, exceeds that before it.

    python -m benchmarks.passes.long_texts [--dtype float32] [--layers 6] [--lengths 512,2048,8192]
"""

import argparse
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from operator import truediv
from pathlib import Path

import torch

from benchmarks.kit import machine, tables
from benchmarks.kit.batches import pack_ids
from benchmarks.kit.command_line import numbers, parser_for
from benchmarks.kit.turns import take_turns
from benchmarks.passes.families import FAMILIES, with_summary
from benchmarks.passes.forward import encoder_pass, transformers_pass
from model.checkpoints.checkpoint import load_checkpoint
from model.pytorch.backend import TorchBackend
from tests.references.families import write_model

OF_SHORT, OF_TRANSFORMERS, PLAIN_MB, SUMMARY_MB = 3.0, 2.0, 600.0, 700.0
"""The targets: time per token to that of the shortest text, speed to transformers, and memory in MB."""


def main() -> None:
    """Measure and print."""
    parser = parser_for(__doc__)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lengths", type=numbers, default=[512, 2048, 8192])
    arguments = parser.parse_args()
    tables.print_facts("Machine", machine.facts(arguments.dtype))
    with tempfile.TemporaryDirectory() as place:
        folder, longest = Path(place), max(arguments.lengths)
        prefix, field, sizes = FAMILIES["modernbert"]
        further = {field: arguments.layers, "max_position_embeddings": longest}
        written = write_model(folder, prefix, **(sizes | further))
        written.model.set_attn_implementation("sdpa")
        written.model.to(getattr(torch, arguments.dtype))
        seconds = measure(folder, written.model, arguments)
        peaks = {
            summary: in_own_process(folder, arguments.dtype, longest, summary=summary)
            for summary in (False, True)
        }
    print_results(seconds, peaks, arguments.layers)


def random_text(length: int) -> list[list[int]]:
    """Make one text of tokens that no family treats in a special way."""
    return [torch.randint(5, 100, (length,)).tolist()]


def measure(
    folder: Path, reference: torch.nn.Module, arguments: argparse.Namespace
) -> dict[int, dict[str, list[float]]]:
    """Return the seconds of each round, by length, of both."""
    backend = TorchBackend(load_checkpoint(folder), device="cpu", dtype=arguments.dtype)
    seconds = {}
    for length in arguments.lengths:
        texts = random_text(length)
        contestants: dict[str, Callable[[], object]] = {
            "headlight": encoder_pass(backend, texts),
            "transformers": transformers_pass(reference, texts),
        }
        with torch.inference_mode():
            seconds[length] = take_turns(contestants, arguments.rounds)
    return seconds


def in_own_process(folder: Path, dtype: str, length: int, *, summary: bool) -> float:
    """Return the MB of a pass in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(peak_mb, folder, dtype, length, summary).result()


def peak_mb(folder: Path, dtype: str, length: int, summary: bool) -> float:
    """Run one text: MB of resident memory at the peak beyond those before, when a short text had run."""
    backend = TorchBackend(load_checkpoint(folder), device="cpu", dtype=dtype)

    def run(tokens: int) -> None:
        texts = random_text(tokens)
        backend.run(with_summary(texts, backend) if summary else pack_ids(texts, backend.info))

    run(16)
    machine.forget_peak()
    before = machine.memory_mib("VmRSS")
    run(length)
    return (machine.memory_mib("VmHWM") - before) * 2**20 / 1e6


def print_results(seconds: dict[int, dict[str, list[float]]], peaks: dict[bool, float], layers: int) -> None:
    """Print the table, the memory and the checks."""
    shortest, longest = min(seconds), max(seconds)
    per_token = {
        length: {name: [1e6 * s / length for s in values] for name, values in of_length.items()}
        for length, of_length in seconds.items()
    }
    tables.print_table(
        f"ModernBERT, {layers} layers: microseconds per token",
        ["tokens", "headlight", "transformers", "transformers / headlight", f"to {shortest} tokens"],
        [
            [
                str(length),
                *(f"{sorted(values)[len(values) // 2]:.0f}" for values in of_length.values()),
                tables.ratio(of_length["transformers"], of_length["headlight"]),
                tables.ratio(of_length["headlight"], per_token[shortest]["headlight"]),
            ]
            for length, of_length in per_token.items()
        ],
    )
    last = per_token[longest]
    ours = map(truediv, last["headlight"], per_token[shortest]["headlight"])
    theirs = map(truediv, last["transformers"], last["headlight"])
    tables.print_checks(
        [
            tables.Check(
                f"{longest} tokens: time of a token to {shortest}", list(ours), OF_SHORT, at_most=True
            ),
            tables.Check(f"{longest} tokens: speed / transformers", list(theirs), OF_TRANSFORMERS),
            tables.Check(f"{longest} tokens: MB of a pass", [peaks[False]], PLAIN_MB, at_most=True),
            tables.Check(f"{longest} tokens: MB with a summary", [peaks[True]], SUMMARY_MB, at_most=True),
        ]
    )


if __name__ == "__main__":
    main()
