"""Measures the memory of the service in each precision.

Starts the service with the embedded model in one precision after the other, in `--rounds` rounds, in one
process. Resident memory (VmRSS) is read two seconds after it is ready, and after the load: single texts, then
texts in batches. The peak (VmHWM) includes the start. Medians over the rounds; the checks hold eight bits to
bfloat16 within a round.

    python -m benchmarks.service.resident --data sts-dev.tsv [--dtypes int8,bfloat16,float32] [--rounds 3]
"""

import json
import time
from pathlib import Path

import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for, some_of
from benchmarks.kit.servers import Headlight
from benchmarks.kit.workloads import make_workloads
from benchmarks.kit.wrk import drive, good
from model.checkpoints.source import EMBEDDED

DTYPES = ("int8", "bfloat16", "float32")
TIMES = ("ready", "after the load", "peak")
OF_BFLOAT16 = 1.0
"""The target for memory in eight bits / in bfloat16, when ready: what a load leaves varies."""

_START_S, _SETTLE_S = 120.0, 2.0


def main() -> None:
    """Measure and print."""
    parser = parser_for(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="an STS file, tab-separated")
    parser.add_argument("--dtypes", type=some_of(DTYPES), default=DTYPES, help=",".join(DTYPES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5, help="of each load")
    arguments = parser.parse_args()
    measured: dict[str, list[list[float]]] = {dtype: [] for dtype in arguments.dtypes}
    for _ in range(arguments.rounds):
        for dtype in arguments.dtypes:
            measured[dtype].append(measure(dtype, arguments.data, arguments.seconds))
    tables.print_facts("Machine", [*machine.facts("each"), ("model", EMBEDDED)])
    rows = [
        [dtype, *(f"{value:.0f}" for value in np.median(rounds, axis=0))]
        for dtype, rounds in measured.items()
    ]
    tables.print_table("Resident memory, MiB", ["", *TIMES], rows)
    if {"int8", "bfloat16"} <= set(measured):
        pairs = zip(measured["int8"], measured["bfloat16"], strict=True)
        ratios = [int8[0] / bfloat16[0] for int8, bfloat16 in pairs]
        name = "ready: memory in eight bits / bfloat16"
        tables.print_checks([tables.Check(name, ratios, OF_BFLOAT16, at_most=True, digits=3)])


def measure(dtype: str, data: Path, seconds: int) -> list[float]:
    """Start the service, load it and end it; returns MiB at `TIMES`."""
    server = Headlight(dtype=dtype)
    try:
        server.wait_until_ready(_START_S)
        time.sleep(_SETTLE_S)
        ready = server.memory_mib("VmRSS")
        workloads = make_workloads(data)
        for workload in (workloads["single"], workloads["mixed"]):
            bodies = [json.dumps({"inputs": texts}).encode() for texts in workload.requests]
            load = drive(server, "/encode", bodies, connections=workload.connections, seconds=seconds)
            good(load, workload.name)
        return [ready, server.memory_mib("VmRSS"), server.memory_mib("VmHWM")]
    finally:
        server.end()


if __name__ == "__main__":
    main()
