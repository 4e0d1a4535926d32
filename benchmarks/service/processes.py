"""A service of several processes beside one of a single process, under the same load in turn.

For each number of connections, and for each workload, prints both rates, their ratio within a round (median,
lowest and highest), the idle share of the machine, and p50 and p99. With `--before`, the single process is
that of another checkout. The load client is `wrk`, on the same cores.

    python -m benchmarks.service.processes --data sts-dev.tsv [--before CHECKOUT] [--model EXPORTED]
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.kit import tables
from benchmarks.kit.command_line import numbers, parser_for, some_of
from benchmarks.kit.servers import Headlight
from benchmarks.kit.turns import Contestant, alternating
from benchmarks.kit.workloads import Workload, make_workloads
from benchmarks.kit.wrk import Load, drive, good
from model.checkpoints.source import EMBEDDED

ONE, SEVERAL = "one", "several"
_CONNECTIONS = (2, 4, 8, 16, 32, 128)
_START_S = 180.0
# Times in /proc/stat: idle, and waiting for input or output.
_IDLE = (3, 4)


@dataclass(frozen=True)
class Turn:
    """What a client saw, and which part of the machine had nothing to do meanwhile."""

    load: Load
    idle: float


def main() -> None:
    """Start both, let them take turns, and print."""
    arguments = parse_arguments()
    workloads = make_workloads(arguments.data)
    single = workloads["single"]
    loads = [Workload(f"single, {n}", n, single.requests) for n in arguments.connections]
    loads += [workloads[name] for name in arguments.workloads]
    with ExitStack() as stack:
        servers = {}
        for name, processes in ((ONE, 1), (SEVERAL, arguments.processes)):
            before = arguments.before if name == ONE else None
            # A checkout of before there were several processes knows no such setting, and only warns.
            server = Headlight(model=arguments.model, folder=before, processes=processes)
            stack.callback(server.end)
            server.wait_until_ready(_START_S)
            server.pause()
            servers[name] = server
        for load in loads:
            print_rounds(load, measure(load, servers, arguments.rounds, arguments.seconds))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="an STS file, tab-separated")
    parser.add_argument("--before", type=Path, help="a checkout whose service is the single process")
    parser.add_argument("--processes", default="auto", help="of the other service")
    parser.add_argument("--model", default=EMBEDDED, help="the embedded model, a folder or a hub name")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=6, help="of each turn")
    parser.add_argument("--connections", type=numbers, default=list(_CONNECTIONS), help="of single sentences")
    others = ("mixed", "long", "lone")
    parser.add_argument("--workloads", type=some_of(others), default=others, help=",".join(others))
    return parser.parse_args()


def measure(
    workload: Workload, servers: dict[str, Headlight], rounds: int, seconds: int
) -> list[dict[str, Turn]]:
    """Put both services under a load in turn."""
    contestants = {
        name: Contestant(server, partial(take_turn, server, workload)) for name, server in servers.items()
    }
    return list(alternating(contestants, rounds, seconds))


def take_turn(server: Headlight, workload: Workload, seconds: int) -> Turn:
    """Put one service under a load."""
    bodies = [json.dumps({"inputs": texts}).encode() for texts in workload.requests]
    idle, total = _idle_and_total()
    load = good(
        drive(server, "/encode", bodies, connections=workload.connections, seconds=seconds), server.url
    )
    now_idle, now_total = _idle_and_total()
    return Turn(load, (now_idle - idle) / max(1, now_total - total))


def print_rounds(workload: Workload, rounds: Sequence[dict[str, Turn]]) -> None:
    """Print the medians of a load, and the ratios of its rounds."""
    ratios = [turns[SEVERAL].load.requests_per_s / turns[ONE].load.requests_per_s for turns in rounds]
    rows = []
    for name in (ONE, SEVERAL):
        turns = [each[name] for each in rounds]
        rows.append(
            [
                name,
                f"{statistics.median(turn.load.requests_per_s for turn in turns):.1f}",
                f"{statistics.median(turn.idle for turn in turns):.1%}",
                f"{statistics.median(turn.load.p50_ms for turn in turns):.1f}",
                f"{statistics.median(turn.load.p99_ms for turn in turns):.1f}",
            ]
        )
    tables.print_table(
        f"{workload.name}: {statistics.median(ratios):.2f} times [{min(ratios):.2f}, {max(ratios):.2f}]",
        ["processes", "requests/s", "idle", "p50 ms", "p99 ms"],
        rows,
    )


def _idle_and_total() -> tuple[int, int]:
    with Path("/proc/stat").open(encoding="ascii") as file:
        ticks = [int(field) for field in file.readline().split()[1:9]]
    return sum(ticks[i] for i in _IDLE), sum(ticks)


if __name__ == "__main__":
    main()
