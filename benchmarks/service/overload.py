"""Sends four times the requests that the service can answer: measures goodput and the latency of refusals.

Starts the service on a free port of the loopback interface and sends the workload `mixed`, 32 texts of mixed
length per request:

- closed: several connections, each of which sends its next request after its answer (a closed loop); the
  highest rate of good answers is the best rate;
- calm: a fixed 0.3 times the best rate, without waiting for answers (an open loop);
- overload: four times the best rate, in an open loop, for a minute: what fills the queue is work too, that is
  answered after the phase and counts as lost (in 20 s a twentieth of the rate);
- calm again: as before, once no request of the overload is in flight.

`in flight` is the most requests that waited for an answer at once, and `backlog` how long answers kept coming
after a phase's last request.

Latency counts from the time a request was sent until its answer was completely read. The client is one event
loop on the same machine as the service, and sometimes waits for a core itself: `loop late` is the delay of a
timer in the loop, `sent late` the delay of a request, and the latency of refusals is shown again without the
times in which the client's loop stood still. The service runs with the settings in the environment
(`HEADLIGHT_…`).

    python -m benchmarks.service.overload --data sts-dev.tsv [--factor 4] [--seconds 60]
"""

import argparse
import gc
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import httpx
import numpy as np
import uvloop

from benchmarks.kit import machine, tables
from benchmarks.kit.client import NO_ANSWER, Client
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.phases import Phase, closed_loop, open_loop, percentiles
from benchmarks.kit.servers import Headlight
from benchmarks.kit.workloads import make_workloads

_START_S = 120.0
_WARM_UP_S = 3.0
_WARM_UP_CONNECTIONS = 4
_ALWAYS_SHOWN = {NO_ANSWER, 200, 429, 503, 504}
_TO_TELL_WHEN = (429, 503)
"""The statuses whose answers have a Retry-After header."""


def main() -> None:
    """Start the service, measure, end it, and print."""
    arguments = parse_arguments()
    workload = make_workloads(arguments.data)["mixed"]
    bodies = [json.dumps({"inputs": texts}).encode() for texts in workload.requests]
    server = Headlight()
    try:
        server.wait_until_ready(_START_S)
        info = httpx.get(f"{server.url}/info", trust_env=False).json()["models"][0]
        phases = uvloop.run(measure(server.port, bodies, arguments))
    finally:
        ended = server.end()
    tables.print_facts(
        "Machine",
        [
            *machine.facts(info["dtype"]),
            ("model", info["name"]),
            ("queue", f"{info['max_queue_tokens']} tokens"),
            ("request", f"{workload.texts} texts, {np.mean([len(body) for body in bodies]):.0f} bytes"),
        ],
    )
    print_phases(phases)
    tables.print_facts("The service", [("end", f"exit code {ended.code}, {ended.seconds:.2f} s")])


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="an STS file, tab-separated")
    parser.add_argument("--connections", type=int, nargs="+", default=[4, 8], help="of the closed loops")
    parser.add_argument("--factor", type=float, default=4.0, help="overload, in multiples of the best rate")
    parser.add_argument("--calm", type=float, default=0.3, help="calm load, in multiples of the best rate")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the overload")
    parser.add_argument("--closed-seconds", type=float, default=10.0, help="of each closed loop")
    parser.add_argument("--calm-seconds", type=float, default=20.0, help="of each calm phase")
    return parser.parse_args()


async def measure(port: int, bodies: Sequence[bytes], arguments: argparse.Namespace) -> list[Phase]:
    """Run the phases, one after another."""
    gc.disable()  # its pauses would count as the service's, and there are no cycles to be found
    client = Client(port, bodies)
    await closed_loop(client, "warm-up", _WARM_UP_CONNECTIONS, _WARM_UP_S)
    closed = [
        await closed_loop(client, f"closed, {connections} connections", connections, arguments.closed_seconds)
        for connections in arguments.connections
    ]
    best = max(phase.good_per_s for phase in closed)
    calm, overload = arguments.calm * best, arguments.factor * best
    return [
        *closed,
        await open_loop(client, "calm", calm, arguments.calm_seconds),
        await open_loop(client, "overload", overload, arguments.seconds),
        await open_loop(client, "calm again", calm, arguments.calm_seconds),
    ]


def print_phases(phases: Sequence[Phase]) -> None:
    """Print what every phase offered and got, its latencies, and the client's own delays."""
    best = max(phase.good_per_s for phase in phases if phase.offered is None)
    statuses = sorted({a.status for phase in phases for a in phase.asked} | _ALWAYS_SHOWN)
    tables.print_table(
        "Requests, by the status of their answers",
        ["phase", "offered/s", "good/s", "of best", *map(name_of, statuses), "in flight", "backlog"],
        [
            [
                phase.name,
                f"{phase.offered:.1f}" if phase.offered else "",
                f"{phase.good_per_s:.1f}",
                f"{phase.good_per_s / best:.2f}",
                *(str(len(phase.of(status))) for status in statuses),
                str(phase.most_in_flight),
                f"{phase.backlog_s:.1f} s",
            ]
            for phase in phases
        ],
    )
    print_latency(phases)
    tables.print_table(
        "The client's own delays, in milliseconds",
        ["phase", "delay", "times", "p50", "p90", "p99", "most"],
        [
            row
            for phase in phases
            for row in (
                percentiles(phase.name, "sent late", [a.sent - a.due for a in phase.asked]),
                percentiles(phase.name, "loop late", [turned - due for due, turned in phase.turns]),
            )
        ],
    )
    print_retry_after(phases)


def print_latency(phases: Sequence[Phase]) -> None:
    """Print the latency of every status of every phase, that of refusals also without the client's share."""
    rows = []
    for phase in phases:
        for status in sorted({a.status for a in phase.asked}):
            asked = phase.of(status)
            seconds = np.array([a.done - a.sent for a in asked])
            rows.append(percentiles(phase.name, name_of(status), seconds))
            if status == httpx.codes.TOO_MANY_REQUESTS:
                less = seconds - phase.stood_still(asked)
                rows.append(percentiles(phase.name, f"{status}, without the client's delays", less))
    tables.print_table(
        "Latency in milliseconds, from sent to wholly read",
        ["phase", "answer", "count", "p50", "p90", "p99", "most"],
        rows,
    )


def print_retry_after(phases: Sequence[Phase]) -> None:
    """Print the values of Retry-After, and how often each was seen."""
    seen = Counter((a.status, a.retry_after) for phase in phases for a in phase.asked)
    refusals = sorted((s, r or "none", n) for (s, r), n in seen.items() if s in _TO_TELL_WHEN)
    if refusals:
        tables.print_table(
            "Retry-After", ["status", "seconds", "answers"], [[str(s), r, str(n)] for s, r, n in refusals]
        )


def name_of(status: int) -> str:
    """Name a status, or that there was none."""
    return "no answer" if status == NO_ANSWER else str(status)


if __name__ == "__main__":
    main()
