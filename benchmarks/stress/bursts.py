"""Sends thousands of requests at once: which are answered, and how long `/livez` is silent meanwhile.

Starts the service on a free port of the loopback interface. A burst first opens all of its connections, and
waits until the service has accepted them, as its open files show. It then sends one request on each at once,
and reads until everything is answered or 60 s have passed. From just before the requests until then, a
separate process asks `/livez` on a new connection five times a second (`probe.py`).

- encode: `POST /encode`, 39 bytes of body, on 4,000 connections;
- invalid: `POST /encode` with 4,096 unknown outputs, 16 kB, refused with 422, on 1,000;
- decode: `POST /decode` of 256 ids, 1.8 kB, on 1,300;
- openapi: `GET /openapi.json` without a key, of a service with keys, on 2,000;

and each at twice the size. Memory is the proportional set size of all processes of the service, before the
first round of a burst and a few seconds after the last; open files likewise. `--neighbours` are programs that
keep the cores busy. The service runs with the settings in the environment (`HEADLIGHT_…`).

    python -m benchmarks.stress.bursts [--bursts encode,decode] [--scale 1,2] [--processes 1,2] [--rounds 10]
"""

import argparse
import gc
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import numbers, parser_for, some_of
from benchmarks.kit.connections import CLOSED, NO_ANSWER, NOT_OPENED, UNANSWERED, Answer, Connection, Loop
from benchmarks.kit.observed import Failures, Processes, failures, open_files, processes
from benchmarks.kit.servers import Headlight, Process
from model.checkpoints.source import EMBEDDED

_START_S = 180.0
_OPENING_S, _ACCEPTING_S, _ANSWERING_S = 30.0, 15.0, 60.0
_SETTLE_S = 6.0
_SILENCE_S = 1.0
"""The target for the longest that `/livez` takes."""
_SPARE_FILES = 500


@dataclass(frozen=True)
class Burst:
    """A request that is sent on each of a number of connections at once."""

    request: bytes
    connections: int
    keys: bool = False
    """Whether the service requires keys, which the request does not have."""


def post(route: str, body: str) -> bytes:
    """Make the bytes of a request with JSON."""
    content = body.encode()
    head = f"POST {route} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


BURSTS = {
    "encode": Burst(post("/encode", '{"inputs":"what is the weather today?"}'), 4_000),
    "invalid": Burst(post("/encode", '{"inputs":"a","outputs":[' + '"x",' * 4_095 + '"x"]}'), 1_000),
    "decode": Burst(post("/decode", f'{{"token_ids": {list(range(10_000, 10_256))}}}'), 1_300),
    "openapi": Burst(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n", 2_000, keys=True),
}


@dataclass
class Seen:
    """What was seen of one burst in all of its rounds."""

    rounds: int = 0
    asked: int = 0
    not_accepted: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    last_s: list[float] = field(default_factory=list)
    """Seconds until the last answer of each round."""
    probes_s: list[float] = field(default_factory=list)
    probes_failed: int = 0
    replaced: float = 0
    lost: float = 0
    ended: int = 0
    """How often a service of one process ended by itself."""
    before: Processes | None = None
    after: Processes | None = None

    @property
    def unanswered(self) -> int:
        """How many requests had no answer."""
        return sum(self.outcomes[outcome] for outcome in UNANSWERED)


def main() -> None:
    """Start the services one after another, send the bursts, and print."""
    arguments = parse_arguments()
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    largest = max(BURSTS[name].connections for name in arguments.bursts) * max(arguments.scale)
    if largest > files - _SPARE_FILES:
        raise SystemExit(
            f"{largest} connections need as many open files, but the limit is {files}: raise it with ulimit "
            "-Hn."
        )
    tables.print_facts("Machine", [*machine.facts("auto"), ("neighbours", str(arguments.neighbours))])
    seen: dict[tuple[str, int, str, int], Seen] = {}
    with ExitStack() as stack:
        exported = stack.enter_context(export(arguments))
        stack.enter_context(busy(arguments.neighbours))
        for backend in arguments.backend:
            model = exported if backend == "onnx" else EMBEDDED
            for count in arguments.processes:
                chosen = [(name, scale) for name in arguments.bursts for scale in arguments.scale]
                for name, scale in chosen:
                    one = seen[backend, count, name, scale] = Seen()
                    run(one, BURSTS[name], scale, arguments.rounds, model=model, processes=count)
                    print(f"{name_of((backend, count, name, scale))}: {dict(one.outcomes)}", flush=True)
    print_seen(seen)
    print_checks(seen)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--bursts", type=some_of(list(BURSTS)), default=list(BURSTS))
    parser.add_argument("--scale", type=numbers, default=[1, 2], help="multiples of the connections")
    parser.add_argument("--processes", type=numbers, default=[1, 2])
    parser.add_argument("--backend", type=some_of(["torch", "onnx"]), default=["torch"])
    parser.add_argument("--exported", type=Path, help="an exported folder, else one is written for onnx")
    parser.add_argument("--neighbours", type=int, default=0, help="programs that keep the cores busy")
    parser.add_argument("--rounds", type=int, default=1, help="of each burst, in a row")
    return parser.parse_args()


@contextmanager
def export(arguments: argparse.Namespace) -> Iterator[str]:
    """Write the embedded model as a graph, if it is needed; gives the folder."""
    if "onnx" not in arguments.backend or arguments.exported:
        yield str(arguments.exported)
        return
    with tempfile.TemporaryDirectory() as place:
        folder = f"{place}/{EMBEDDED}"
        subprocess.run([sys.executable, "-m", "export", EMBEDDED, folder], check=True, capture_output=True)
        yield folder


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep a number of cores busy."""
    neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()


def run(seen: Seen, burst: Burst, scale: int, rounds: int, **settings: Any) -> None:
    """Send a burst several times to a service of its own, which is started anew where it has ended."""
    if burst.keys:
        settings["api_keys"] = "a-key-of-the-benchmark"
    server = None
    prober = Process([sys.executable, "-m", "benchmarks.stress.probe"], {}, pipes=True)
    try:
        for _ in range(rounds):
            if server is None or server.process.poll() is not None:
                server = Headlight(**settings)
                server.wait_until_ready(_START_S)
                time.sleep(_SETTLE_S)
            send(server, prober, seen, burst.request, scale * burst.connections)
        if server is not None and server.process.poll() is None:
            time.sleep(_SETTLE_S)
            seen.after = processes(server)
    finally:
        for process in (prober, server):
            if process is not None:
                process.end()


def send(server: Headlight, prober: Process, seen: Seen, request: bytes, count: int) -> None:
    """Send one burst while `/livez` is probed."""
    before, earlier = processes(server), failures(server)
    seen.before = seen.before or before
    loop, answers, opened = Loop(), dict[Connection, Answer](), set[Connection]()
    connections = [Connection(loop, server.port, answers.setdefault, opened=opened.add) for _ in range(count)]
    loop.run(lambda: len(opened) + len(answers) == count, time.monotonic() + _OPENING_S)
    until = time.monotonic() + _ACCEPTING_S
    while (missing := before.files + count - open_files(server)) > 0 and time.monotonic() < until:
        time.sleep(0.1)
    prober.ask(f"start {server.port}")
    gc.disable()  # its pauses would count as the service's
    start = time.monotonic()
    for connection in connections:
        if connection.is_open:
            connection.ask(request)
        else:
            outcome = CLOSED if connection in opened else NOT_OPENED
            answers.setdefault(connection, Answer(outcome, 0.0))
    loop.run(lambda: len(answers) == count, start + _ANSWERING_S)
    gc.enable()
    seen.last_s.append(time.monotonic() - start)
    seen.outcomes.update(answer.outcome for answer in answers.values())
    seen.outcomes[NO_ANSWER] += count - len(answers)
    for connection in connections:
        connection.close()
    loop.close()
    probed = prober.ask("stop")
    seen.rounds, seen.asked = seen.rounds + 1, seen.asked + count
    seen.not_accepted += max(0, missing)
    seen.probes_s += probed["seconds"]
    seen.probes_failed += probed["failed"]
    count_failures(seen, earlier, failures(server))


def count_failures(seen: Seen, earlier: Failures, later: Failures) -> None:
    """Add the failures between two moments."""
    seen.replaced += later.replaced - earlier.replaced if later.ended is None else 0
    seen.lost += later.lost - earlier.lost if later.ended is None else 0
    seen.ended += later.ended is not None


def print_seen(seen: dict[tuple[str, int, str, int], Seen]) -> None:
    """Print what became of the requests, of `/livez`, and of the service."""
    outcomes = sorted({outcome for one in seen.values() for outcome in one.outcomes} - set(UNANSWERED))
    tables.print_table(
        "Requests by outcome, and the longest until the last",
        ["backend, processes, burst", "asked", "not accepted", *outcomes, *UNANSWERED, "last s"],
        [
            [
                name_of(key),
                f"{one.rounds} × {one.asked // one.rounds}",
                str(one.not_accepted),
                *(str(one.outcomes[outcome]) for outcome in (*outcomes, *UNANSWERED)),
                f"{max(one.last_s):.2f}",
            ]
            for key, one in seen.items()
        ],
    )
    header = ["probes", "failed", "p50 s", "p99 s", "longest s", "replaced", "lost", "ended", "MiB", "files"]
    tables.print_table(
        "/livez meanwhile, and the service",
        ["backend, processes, burst", *header],
        [
            [
                name_of(key),
                str(len(one.probes_s)),
                str(one.probes_failed),
                *(f"{value:.3f}" for value in np.percentile(one.probes_s, (50, 99, 100))),
                f"{one.replaced:.0f}",
                f"{one.lost:.0f}",
                str(one.ended),
                *change(one.before, one.after),
            ]
            for key, one in seen.items()
        ],
    )


def name_of(key: tuple[str, int, str, int]) -> str:
    """Name a burst and the service that it was sent to."""
    backend, count, name, scale = key
    return f"{backend}, {count}, {name} × {scale}"


def change(before: Processes | None, after: Processes | None) -> tuple[str, str]:
    """Show memory and open files, before and after."""
    if before is None or after is None:
        return "", ""
    return f"{before.mib:.0f} → {after.mib:.0f}", f"{before.files} → {after.files}"


def print_checks(seen: dict[tuple[str, int, str, int], Seen]) -> None:
    """Print whether all is answered, nothing was replaced, and `/livez` was never silent."""
    every = list(seen.values())
    asked = sum(one.asked for one in every)
    answered = 100 * (1 - sum(one.unanswered for one in every) / asked)
    tables.print_checks(
        [
            tables.Check("requests answered, %", [answered], 100.0, digits=3),
            tables.Check(
                "workers replaced, or services ended",
                [sum(one.replaced + one.ended for one in every)],
                0,
                at_most=True,
                digits=0,
            ),
            tables.Check(
                "longest silence of /livez, s",
                [max(max(one.probes_s) for one in every)],
                _SILENCE_S,
                at_most=True,
                digits=3,
            ),
        ]
    )


if __name__ == "__main__":
    main()
