"""Measures memory and speed for several sizes of oneDNN's primitive cache.

    python -m benchmarks.passes.primitives

PyTorch's products on CPUs are oneDNN primitives, with code generated for each shape: for each number of
tokens in a batch, and each of the few products of a block. `ONEDNN_PRIMITIVE_CACHE_CAPACITY` limits how many
are kept. For each limit, a separate process runs batches of every number of tokens, then repeats the sizes of
ordinary traffic. The table has the anonymous memory, and the tokens per second relative to the largest limit.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from random import Random

import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.batches import pack_ids
from benchmarks.kit.command_line import parser_for
from model.checkpoints.source import EMBEDDED
from model.loading import load_model

_BOUNDS = (64, 128, 256, 512, 1024, 4096)
_LARGEST = 1024


def main() -> None:
    """Run a process for each bound, and print a table."""
    arguments = parse_arguments()
    if arguments.one:
        print(json.dumps(measure(arguments.rounds)))
        return
    rounds = [[_run(bound, arguments.rounds) for bound in arguments.bounds] for _ in range(arguments.repeats)]
    rows = []
    for i, bound in enumerate(arguments.bounds):
        mine, last = [r[i] for r in rounds], [r[-1] for r in rounds]
        ratios = [a["rate"] / b["rate"] for a, b in zip(mine, last, strict=True)]
        memory = [float(np.median([m[name] for m in mine])) for name in ("begin", "every", "end")]
        rows.append([str(bound), *(f"{mb:.0f}" for mb in memory), f"{np.median(ratios):.3f}"])
    header = ["bound", "MiB at first", "after every size", "after traffic", "tokens/s, ratio to the last"]
    tables.print_table("Primitives kept", header, rows)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--bounds", type=int, nargs="+", default=_BOUNDS)
    parser.add_argument("--rounds", type=int, default=300, help="batches of ordinary traffic")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _run(bound: int, rounds: int) -> dict[str, float]:
    environment = {
        **os.environ,
        "GOMP_SPINCOUNT": "2000",  # as the service sets it
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": str(bound),
    }
    command = [sys.executable, "-m", "benchmarks.passes.primitives", "--one", "--rounds", str(rounds)]
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(ended.stdout))


def measure(rounds: int) -> dict[str, float]:
    """Run batches of every size, then ordinary ones; memory in MiB, and tokens per second of the latter."""
    _, backend = load_model(EMBEDDED, kind="torch", device="cpu", dtype="auto", native=False)
    random, info = Random(0), backend.info  # noqa: S311

    def run(lengths: list[int]) -> int:
        backend.run(pack_ids([[7] * length for length in lengths], info))
        return sum(lengths)

    run([16] * 8)
    begin = machine.memory_mib("RssAnon")
    for size in range(8, _LARGEST + 1, 8):
        run([min(256, size)] * max(1, size // 256))
    every = machine.memory_mib("RssAnon")
    traffic = [[random.randint(5, 60) for _ in range(random.randint(1, 24))] for _ in range(rounds)]
    start = time.perf_counter()
    tokens = sum(map(run, traffic))
    rate = tokens / (time.perf_counter() - start)
    return {"begin": begin, "every": every, "end": machine.memory_mib("RssAnon"), "rate": rate}


if __name__ == "__main__":
    main()
