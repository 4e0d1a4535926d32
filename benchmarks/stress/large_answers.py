"""Measures the latency of short requests while the service writes an answer of many megabytes.

Starts the service on a free port of the loopback interface and sends `/encode` one sentence at a time, at a
fixed rate well below its capacity, without waiting for answers (an open loop; a connection is opened if none
is free). Each round has three phases:

- alone: there are no other requests;
- JSON: a separate process requests all maps of a few long texts, just under `HEADLIGHT_MAX_RESPONSE_BYTES`,
  reads the answer as fast as it can, and repeats;
- gzip: the same with `Accept-Encoding: gzip`; the answer is not decoded.

Short requests sent while an answer was written, after its head had arrived and before its end, are also shown
separately, and only they have a target: the batch computed before the answer is a different effect. A tenth
of a second passes between two large answers, so that few of these requests meet the next batch.

Latency counts from the time a request was sent until its answer was completely read. The client and the
reader share the machine with the service; `loop late` is the delay of the client's own event loop. The
service runs with the settings in the environment (`HEADLIGHT_…`).

    python -m benchmarks.stress.large_answers --data sts-dev.tsv [--rounds 2] [--seconds 20] [--rate 40]
"""

import argparse
import asyncio
import gc
import http.client
import json
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvloop

from benchmarks.kit import machine, tables
from benchmarks.kit.client import Asked, Client
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.phases import Phase, closed_loop, open_loop, percentiles
from benchmarks.kit.servers import Headlight
from benchmarks.kit.workloads import make_texts, make_workloads

_START_S = 120.0
_ANSWER_S = 120.0
_WARM_UP_S = 2.0
_CONNECTIONS = 4
_PAUSE_S = 0.1
_BUFFER_BYTES = 2**20
_MOST_ADDED_MS = 50.0
"""The target for what a large answer adds to the p99 of short requests."""
ALONE = "alone"
READERS: dict[str, dict[str, str]] = {"JSON": {}, "gzip": {"Accept-Encoding": "gzip"}}
"""What the reader of the large answers sends with its request."""


@dataclass(frozen=True)
class Large:
    """A large answer: when it was asked for, when its head came and when it ended, and its bytes as sent.

    Times are of `time.perf_counter`, which on one machine all processes share.
    """

    sent: float
    head: float
    end: float
    size: int


@dataclass(frozen=True)
class Measured:
    """A phase: the short requests, the large answers meanwhile, and the most memory of the service, in MB."""

    phase: Phase
    large: Sequence[Large]
    peak_mb: float

    @property
    def while_written(self) -> list[Asked]:
        """The short requests that were sent while a large answer was written."""
        return [a for a in self.phase.asked if any(one.head <= a.sent < one.end for one in self.large)]


def main() -> None:
    """Start the service, measure, end it, and print."""
    arguments = parse_arguments()
    short = [json.dumps({"inputs": t}).encode() for t in make_workloads(arguments.data)["lone"].requests]
    server = Headlight()
    try:
        server.wait_until_ready(_START_S)
        info = httpx.get(f"{server.url}/info", trust_env=False).json()["models"][0]
        ready_mb = server.memory_mib("VmHWM") * machine.MB_PER_MIB
        body = largest_body(server, arguments)
        rounds = uvloop.run(measure(server, short, body, arguments))
    finally:
        server.end()
    tables.print_facts(
        "Machine",
        [
            *machine.facts(info["dtype"]),
            ("model", info["name"]),
            ("short requests", f"{arguments.rate:g}/s of one sentence"),
            ("large request", f"{arguments.texts} texts, {len(body)} bytes"),
            ("peak memory once ready", f"{ready_mb:.0f} MB"),
        ],
    )
    print_large(rounds)
    print_latency(rounds)
    tables.print_checks([make_check(name, rounds) for name in READERS])


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="an STS file, tab-separated")
    parser.add_argument("--texts", type=int, default=4, help="long ones, in a large request")
    parser.add_argument("--rate", type=float, default=40.0, help="short requests a second")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each phase")
    return parser.parse_args()


def largest_body(server: Headlight, arguments: argparse.Namespace) -> bytes:
    """Ask for the maps of ever shorter texts until the service does not refuse the answer as too large."""
    for words in range(240, 0, -1):
        body = json.dumps({"inputs": make_texts(arguments.data, words, arguments.texts)}).encode()
        answer = httpx.post(
            f"{server.url}/attention",
            content=body,
            headers={"Content-Type": "application/json"},
            timeout=_ANSWER_S,
            trust_env=False,
        )
        if answer.status_code != httpx.codes.REQUEST_ENTITY_TOO_LARGE:
            answer.raise_for_status()
            return body
    raise SystemExit("No text is short enough: raise HEADLIGHT_MAX_RESPONSE_BYTES.")


async def measure(
    server: Headlight, short: Sequence[bytes], body: bytes, arguments: argparse.Namespace
) -> list[dict[str, Measured]]:
    """Run the phases, round by round."""
    gc.disable()  # its pauses would count as the service's, and there are no cycles to be found
    client = Client(server.port, short)
    await closed_loop(client, "warm-up", _CONNECTIONS, _WARM_UP_S)
    rounds = []
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(time.sleep, 0.0).result()  # it has started before anything is measured
        for _ in range(arguments.rounds):
            alone = await measure_phase(ALONE, server, client, arguments)
            rounds.append({ALONE: alone})
            for name, headers in READERS.items():
                reader = (pool, body, headers)
                rounds[-1][name] = await measure_phase(name, server, client, arguments, reader)
    return rounds


async def measure_phase(
    name: str,
    server: Headlight,
    client: Client,
    arguments: argparse.Namespace,
    reader: tuple[Executor, bytes, dict[str, str]] | None = None,
) -> Measured:
    """Send short requests, while a reader, if there is one, asks for large answers."""
    server.forget_peak()
    large: list[Large] = []
    short = open_loop(client, name, arguments.rate, arguments.seconds)
    if reader is None:
        phase = await short
    else:
        pool, body, headers = reader
        reading = asyncio.get_running_loop().run_in_executor(
            pool, read_large, server.port, body, headers, arguments.seconds
        )
        phase = await short
        large = await reading
    if failed := len(phase.asked) - len(phase.of(httpx.codes.OK)):
        raise SystemExit(f"{failed} of {len(phase.asked)} short requests failed: lower the --rate.")
    measured = Measured(phase, large, server.memory_mib("VmHWM") * machine.MB_PER_MIB)
    if reader is not None and not measured.while_written:
        raise SystemExit("No short request was sent while a large answer was written: raise the --rate.")
    return measured


def read_large(port: int, body: bytes, headers: dict[str, str], seconds: float) -> list[Large]:
    """Request a large answer repeatedly for a time, and read each as fast as it comes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_S)
    buffer = bytearray(_BUFFER_BYTES)
    answers, until = [], time.perf_counter() + seconds
    while (sent := time.perf_counter()) < until:
        connection.request("POST", "/attention", body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        head, size = time.perf_counter(), 0
        while count := answer.readinto(buffer):
            size += count
        if answer.status != httpx.codes.OK:
            raise SystemExit(f"A large request was answered with {answer.status}.")
        answers.append(Large(sent, head, time.perf_counter(), size))
        time.sleep(_PAUSE_S)
    connection.close()
    return answers


def print_large(rounds: Sequence[dict[str, Measured]]) -> None:
    """Print the large answers, and the memory of the service in each phase."""
    rows: list[list[str]] = []
    for name in rounds[0]:
        peak = f"{max(phases[name].peak_mb for phases in rounds):.0f}"
        large = [one for phases in rounds for one in phases[name].large]
        if not large:
            rows.append([name, "0", *[""] * 4, peak])
            continue
        written = [one.end - one.head for one in large]
        figures: list[Any] = [
            f"{np.median([one.size for one in large]) / 1e6:.1f}",
            *(f"{x:.2f}" for x in (np.median([one.head - one.sent for one in large]), np.median(written))),
            f"{max(written):.2f}",
        ]
        rows.append([name, str(len(large)), *figures, peak])
    header = ["phase", "answers", "MB", "s to the head, median", "s from there, median", "most", "peak MB"]
    tables.print_table("Large answers, and the memory of the service", header, rows)


def print_latency(rounds: Sequence[dict[str, Measured]]) -> None:
    """Print the latencies of the short requests, of all rounds together."""
    rows = []
    for name in rounds[0]:
        together = [phases[name] for phases in rounds]
        kinds = {
            "all": latencies([a for one in together for a in one.phase.asked]),
            "while written": latencies([a for one in together for a in one.while_written]),
            "loop late": [turned - due for one in together for due, turned in one.phase.turns],
        }
        rows += [percentiles(name, kind, seconds) for kind, seconds in kinds.items() if seconds]
    tables.print_table(
        "Short requests: latency in milliseconds",
        ["phase", "which", "count", "p50", "p90", "p99", "most"],
        rows,
    )


def latencies(asked: Sequence[Asked]) -> list[float]:
    """Count from sent to wholly read, in seconds."""
    return [a.done - a.sent for a in asked]


def make_check(name: str, rounds: Sequence[dict[str, Measured]]) -> tables.Check:
    """Check the increase of the p99 while answers are written against its target."""

    def p99_ms(asked: Sequence[Asked]) -> float:
        return 1e3 * float(np.percentile(latencies(asked), 99))

    added = [p99_ms(phases[name].while_written) - p99_ms(phases[ALONE].phase.asked) for phases in rounds]
    return tables.Check(f"{name}: ms added to the p99", added, _MOST_ADDED_MS, at_most=True)


if __name__ == "__main__":
    main()
