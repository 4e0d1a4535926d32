"""Checks whether the service's memory grows under a long load.

Starts the service on a free port of the loopback interface and keeps it under one workload, minute after
minute, with new connections each minute. Every few seconds it reads `RssAnon`, the anonymous memory of the
process. After the first minutes, in which pools and caches fill, it fits a line to the readings by least
squares; the slope is the growth. The service runs with the settings in the environment (`HEADLIGHT_…`). MB
are millions of bytes.

    python -m benchmarks.stress.soak --data sts-dev.tsv [--minutes 10] [--workload mixed]
"""

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.servers import Headlight
from benchmarks.kit.workloads import NAMES, Workload, make_workloads
from benchmarks.kit.wrk import Load, drive

_START_S = 120.0
_MINUTE_S = 60


def main() -> None:
    """Start the service, load it, end it, and print."""
    arguments = parse_arguments()
    workload = make_workloads(arguments.data)[arguments.workload]
    server = Headlight()
    try:
        server.wait_until_ready(_START_S)
        info = httpx.get(f"{server.url}/info", trust_env=False).json()["models"][0]
        ready_mb = memory_mb(server)
        slices = load_by_the_minute(server, workload, arguments)
        peak_mb = server.memory_mib("VmHWM") * machine.MB_PER_MIB
    finally:
        ended = server.end()
    tables.print_facts(
        "Machine",
        [
            *machine.facts(info["dtype"]),
            ("model", info["name"]),
            ("workload", f"{workload.name}, {workload.connections} connections"),
        ],
    )
    print_slices(slices)
    most = max((mb for part in slices for _, mb in part.samples), default=float("nan"))
    tables.print_facts(
        "Memory of the service",
        [
            ("RssAnon once ready", f"{ready_mb:.1f} MB"),
            ("RssAnon, most", f"{most:.1f} MB"),
            ("VmHWM, with files", f"{peak_mb:.1f} MB"),
            (f"growth after minute {arguments.settle:g}", growth(slices, arguments.settle)),
            ("requests/s, first minute", f"{slices[0].load.requests_per_s:.1f}"),
            ("requests/s, last minute", f"{slices[-1].load.requests_per_s:.1f}"),
            ("end", f"exit code {ended.code}, {ended.seconds:.2f} s after SIGTERM"),
        ],
    )


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="an STS file, tab-separated")
    parser.add_argument("--workload", choices=NAMES, default="mixed")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--settle", type=float, default=2.0, help="minutes before growth is counted")
    parser.add_argument("--every", type=float, default=5.0, help="seconds from one reading to the next")
    return parser.parse_args()


@dataclass(frozen=True)
class Slice:
    """A minute of load, or what is left of one: what the client saw, and (minutes, MB) of each reading."""

    load: Load
    samples: Sequence[tuple[float, float]]


def memory_mb(server: Headlight) -> float:
    """Read the anonymous memory."""
    return server.memory_mib("RssAnon") * machine.MB_PER_MIB


def load_by_the_minute(server: Headlight, workload: Workload, arguments: argparse.Namespace) -> list[Slice]:
    """Keep the service under load while reading its memory; the last minute may be shorter."""
    bodies = [json.dumps({"inputs": texts}).encode() for texts in workload.requests]
    start, left = time.perf_counter(), round(arguments.minutes * _MINUTE_S)
    slices = []
    with ThreadPoolExecutor(1) as pool:
        while left > 0:
            seconds = min(left, _MINUTE_S)
            left -= seconds
            load = pool.submit(
                drive, server, "/encode", bodies, connections=workload.connections, seconds=seconds
            )
            samples = read_until(load, server, start, arguments.every)
            slices.append(Slice(load.result(), samples))
    return slices


def read_until(
    load: Future[Load], server: Headlight, start: float, every_s: float
) -> list[tuple[float, float]]:
    """Read the service's memory until a load is over."""
    samples = []
    while wait([load], timeout=every_s).not_done:
        samples.append(((time.perf_counter() - start) / _MINUTE_S, memory_mb(server)))
    return samples


def print_slices(slices: Sequence[Slice]) -> None:
    """Print the results of each minute."""
    rows = []
    for minute, part in enumerate(slices, start=1):
        mb = [sample for _, sample in part.samples] or [float("nan")]
        rows.append(
            [
                str(minute),
                f"{part.load.requests_per_s:.1f}",
                f"{part.load.p50_ms:.0f}",
                f"{part.load.p99_ms:.0f}",
                str(part.load.errors),
                *(f"{figure:.1f}" for figure in (min(mb), float(np.median(mb)), max(mb))),
            ]
        )
    header = ["minute", "requests/s", "p50 ms", "p99 ms", "errors", "RssAnon MB, least", "median", "most"]
    tables.print_table("Minute by minute", header, rows)


def growth(slices: Sequence[Slice], settle_minutes: float) -> str:
    """Fit a line to the readings after a number of minutes; returns its slope."""
    samples = [sample for part in slices for sample in part.samples if sample[0] >= settle_minutes]
    if len(samples) < 3:
        return "too few readings to say"
    minutes, mb = np.array(samples).T
    slope = np.polyfit(minutes, mb, 1)[0]
    return f"{slope:+.3f} MB/min, of {len(samples)} readings in {minutes[-1] - minutes[0]:.1f} min"


if __name__ == "__main__":
    main()
