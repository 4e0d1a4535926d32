"""How single sentences scale with cores, from what a service of so many processes costs on this machine.

A service of 1, 2, 4, … processes runs on the cores of this machine, with the same number of connections for
each process, and the processor time of all its processes is divided by the requests answered: `processes /
core-ms` is what a machine with a core for each would answer. With more processes than this machine has cores,
that is a lower bound, since the processes drive each other out of its caches.

What grows with the number of processes by design is only the reading of the scoreboard, on which each finds
what the others hold: it is measured by itself. With the cost of a request in one process it gives the upper
bound. Neither has the memory bus of a larger machine in it, nor the network.

Then, what a fast device needs in front of it: the processor time of the event loop for requests of one and of
more sentences, with the tokenizer's time, as sentences a second that one core in front can pass on.

    python -m benchmarks.service.cores --data sts-dev.tsv [--processes 1,2,4,8,16,32,64] [--seconds 10]
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import numbers, parser_for
from benchmarks.kit.servers import Headlight
from benchmarks.kit.workloads import make_workloads
from benchmarks.kit.wrk import drive, good
from model.checkpoints.folder import read_folder
from model.checkpoints.source import EMBEDDED, resolve
from service.engine.fairness import ClientQueues
from service.engine.jobs import Waiting
from service.engine.lane_scheduler import LaneScheduler
from service.engine.permit import Permit
from service.memory_limits import Memory
from service.sharing.scoreboard import Scoreboard

_PROCESSES = (1, 2, 4, 8, 16, 32, 64)
_TEXTS = (1, 8, 32, 128)
_START_S = 300.0
_SETTLE_S = 3.0
_STEPS = 3000
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """What requests cost: answers a second on this machine, and processor time in ms a request."""

    per_s: float
    core_ms: float


def main() -> None:
    """Measure and print."""
    arguments = parse_arguments()
    singles = [texts[0] for texts in make_workloads(arguments.data)["single"].requests]
    tables.print_facts("Machine", machine.facts(os.environ.get("HEADLIGHT_DTYPE", "auto")))
    costs = {processes: measure(singles, processes, arguments) for processes in arguments.processes}
    boards = {processes: board_ms(processes) for processes in costs}
    alone = costs[min(costs)].core_ms - boards[min(costs)]
    rows = [
        [
            str(processes),
            f"{cost.per_s:.0f}",
            f"{cost.core_ms:.2f}",
            f"{boards[processes]:.3f}",
            f"{1000 * processes / cost.core_ms:,.0f}",
            f"{1000 * processes / (alone + boards[processes]):,.0f}",
        ]
        for processes, cost in costs.items()
    ]
    tables.print_table(
        f"Single sentences, {arguments.connections} connections a process; requests/s of as many cores",
        ["processes", "requests/s here", "core-ms a request", "of it the scoreboard", "at least", "at most"],
        rows,
    )
    rows = [front(singles, texts, arguments) for texts in _TEXTS]
    tables.print_table(
        "In front of a device: one process",
        ["sentences a request", "event loop, ms", "tokenizing, ms", "sentences/s of one core"],
        rows,
    )


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="an STS file, tab-separated")
    parser.add_argument("--processes", type=numbers, default=list(_PROCESSES))
    parser.add_argument("--connections", type=int, default=8, help="for each process")
    parser.add_argument("--seconds", type=int, default=10, help="of each load")
    return parser.parse_args()


def measure(singles: Sequence[str], processes: int, arguments: argparse.Namespace) -> Cost:
    """Load a service of so many processes with single sentences."""
    server = Headlight(processes=processes)
    try:
        server.wait_until_ready(_START_S)
        bodies = [json.dumps({"inputs": [text]}).encode() for text in singles]
        connections = processes * arguments.connections
        # Connections spread over the processes in the first seconds.
        drive(server, "/encode", bodies, connections=connections, seconds=_SETTLE_S)
        return _cost(server, bodies, connections, arguments.seconds, lambda: _ticks(server.process.pid))
    finally:
        server.end()


def board_ms(processes: int) -> float:
    """Milliseconds that a request's steps take that read the scoreboard: memory, queue and scheduler."""
    counters = Scoreboard(processes, [EMBEDDED]).counters(0)
    memory, queues = Memory(counters), ClientQueues[Waiting](counters.client_totals(EMBEDDED))
    memory.plan(8 * 2**30)
    scheduler, permit = LaneScheduler(2, counters), Permit("client", "client")
    start = time.process_time()
    for _ in range(_STEPS):
        memory.check_room(permit, 100)
        memory.arrived(permit, 100)
        memory.take(permit, 5000)
        memory.take_answer(permit, 9000)
        queues.may_hold("client", 15, 1e6)
        scheduler.allows(1)
        scheduler.allows(1)
        memory.release(permit)
    return 1000 * (time.process_time() - start) / _STEPS


def front(singles: Sequence[str], texts: int, arguments: argparse.Namespace) -> list[str]:
    """Load one process with requests of so many sentences; returns a row."""
    bodies = [json.dumps({"inputs": some}).encode() for some in _requests(singles, texts)]
    server = Headlight(processes=1)
    try:
        server.wait_until_ready(_START_S)
        pid = server.process.pid
        loop = _cost(server, bodies, 4, arguments.seconds, lambda: _thread_ticks(pid, pid)).core_ms
    finally:
        server.end()
    tokenizing = texts * tokenizing_ms(singles, texts)
    return [
        str(texts),
        f"{loop:.2f}",
        f"{tokenizing:.2f}",
        f"{1000 * texts / (loop + tokenizing):,.0f}",
    ]


def tokenizing_ms(singles: Sequence[str], texts: int) -> float:
    """Milliseconds for one sentence, tokenized so many at a time."""
    tokenizer = read_folder(resolve(EMBEDDED)).tokenizer
    seconds = []
    for some in _requests(singles, texts):
        start = time.perf_counter()
        tokenizer.encode(some)
        seconds.append((time.perf_counter() - start) / len(some))
    return 1000 * statistics.median(seconds)


def _requests(singles: Sequence[str], texts: int) -> list[Sequence[str]]:
    return [singles[i : i + texts] for i in range(0, len(singles) - texts + 1, texts)]


def _cost(
    server: Headlight, bodies: Sequence[bytes], connections: int, seconds: float, ticks: Callable[[], int]
) -> Cost:
    before = ticks()
    load = good(drive(server, "/encode", bodies, connections=connections, seconds=seconds), server.url)
    core_s = (ticks() - before) / _TICKS
    return Cost(load.requests_per_s, 1000 * core_s / load.requests)


def _ticks(pid: int) -> int:
    """Processor time of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return sum(_time(Path(f"/proc/{each}/stat")) for each in [pid, *children])


def _thread_ticks(pid: int, thread: int) -> int:
    return _time(Path(f"/proc/{pid}/task/{thread}/stat"))


def _time(stat: Path) -> int:
    fields = stat.read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


if __name__ == "__main__":
    main()
