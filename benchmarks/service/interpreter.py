"""Counts what Python does for one short text, beside the pass: the interpreter's share of a request.

One client sends one text at a time over a kept-alive connection to `POST /encode`. On the thread of the event
loop are counted, for each request, without and within the pass:

- calls: functions called, those of Python and those in C;
- bytecodes: instructions of Python's bytecode;
- time: microseconds of processor time, the system's included.

Calls and bytecodes are the same in every run, so a change is seen however busy the machine is; time is not.
`--names` lists the functions that are called most. The service runs with the settings in the environment
(`HEADLIGHT_…`), in one process; `--folder` is a checkout to run instead of this one, which must have
`peers/counted_service.py`.

    python -m benchmarks.service.interpreter [--requests 500] [--folder /tmp/before] [--names 40]
"""

import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.servers import Server
from benchmarks.kit.wire import BlockingConnection, request_bytes
from model.checkpoints.source import EMBEDDED

_WARM_UP = 300
_OK = 200
_ASKED_S = 0.3
"""Between two commands: what the last one was answered with is over."""


class CountedService(Server):
    """The service in one process, which counts what it does (`peers/counted_service.py`)."""

    def __init__(self, python: str, folder: Path | None) -> None:
        settings = {"HOST": "127.0.0.1", "PROCESSES": "1", "LOG_LEVEL": "warning"}
        super().__init__(
            [python, "-m", "benchmarks.peers.counted_service", "--port", "{port}"],
            {f"HEADLIGHT_{name}": value for name, value in settings.items()},
            ready="/readyz",
            folder=folder,
            pipes=True,
        )


def main() -> None:
    """Start the service, count, end it, and print."""
    arguments = parse_arguments()
    server = CountedService(sys.executable, arguments.folder)
    try:
        server.wait_until_ready(arguments.start_timeout)
        rows, names = count(server, arguments)
    finally:
        server.end()
    tables.print_facts("Machine", [*machine.facts("auto"), ("model", EMBEDDED)])
    tables.print_table("For one request", ["figure", "beside the pass", "in the pass"], rows)
    if arguments.names:
        most = sorted(names.items(), key=lambda one: -one[1])[: arguments.names]
        shown = [[name, f"{number / arguments.requests:.2f}"] for name, number in most]
        tables.print_table("Calls beside the pass", ["function", "calls"], shown)


def parse_arguments() -> Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--requests", type=int, default=500, help="of each measurement")
    parser.add_argument("--route", default="/encode")
    parser.add_argument("--body", default='{"inputs": "A man is playing the guitar on a stage."}')
    parser.add_argument("--folder", type=Path, help="a checkout to run instead of this one")
    parser.add_argument("--names", type=int, default=0, help="how many functions to list")
    parser.add_argument("--start-timeout", type=float, default=120.0)
    return parser.parse_args()


def count(server: CountedService, arguments: Namespace) -> tuple[list[list[str]], dict[str, int]]:
    """Send requests for each figure; returns the rows of the table, and the functions called."""
    connection = BlockingConnection(server.port)
    request = request_bytes(server.port, arguments.route, arguments.body.encode())

    def ask(requests: int) -> None:
        for _ in range(requests):
            head, _ = connection.ask(request)
            if head.status != _OK:
                raise SystemExit(f"{arguments.route} answered {head.status}")

    def measure(what: str) -> dict[str, Any]:
        server.ask(what)
        ask(arguments.requests)
        time.sleep(_ASKED_S)
        return dict(server.ask("end"))

    ask(_WARM_UP)
    found = {what: measure(what) for what in ("time", "functions", "bytecodes")}
    rows = []
    for title, what, unit in (
        ("calls", "functions", ""),
        ("bytecodes", "bytecodes", ""),
        ("microseconds", "time", "_ns"),
    ):
        each = arguments.requests * (1000 if unit else 1)
        rows.append([title, *(f"{found[what][where + unit] / each:.1f}" for where in ("outside", "inside"))])
    return rows, found["functions"]["names"]


if __name__ == "__main__":
    main()
