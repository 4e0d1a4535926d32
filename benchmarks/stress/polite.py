"""Measures a polite client beside 40 connections of each kind of rude request, accepted and refused.

Starts the service on a free port of the loopback interface. The polite client sends one short text at a time
on one kept-alive connection, from 127.0.0.2. For each kind of request (`rude_requests.py`) it is measured
alone and then beside connections from 127.0.0.1, in a process of their own (`rude_clients.py`), each of
which sends its request again as soon as it is answered: a closed loop that obeys no Retry-After.

With `--by key`, all come from 127.0.0.1 and have keys of their own instead. `of its time` is the processor
time that the rude clients themselves took of one core: on another machine they would not take it. The service
runs with the settings in the environment (`HEADLIGHT_…`).

    python -m benchmarks.stress.polite [--kinds maps "route, 404"] [--processes 1,2] [--by address,key]
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import numbers, parser_for, some_of
from benchmarks.kit.observed import failures
from benchmarks.kit.servers import Headlight, Process
from benchmarks.kit.wire import BlockingConnection
from benchmarks.stress.rude_requests import noises

_START_S, _DRAIN_S, _SETTLE_S = 180.0, 60.0, 0.3
_MS = 1e3
_POLITE, _RUDE = "127.0.0.2", "127.0.0.1"
_POLITE_KEY, _RUDE_KEY = "the-key-of-the-polite-client", "the-key-of-the-rude-clients"
_BOUND_ANSWERED = 100.0
_STATUSES_SHOWN = 4


@dataclass
class Seen:
    """What the polite client saw alone and beside one kind of noise, and what became of the noise."""

    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    """Seconds of the requests that were answered with 200."""
    asked: int = 0
    """Requests beside the noise."""
    unanswered: Counter[str] = field(default_factory=Counter)
    """What they got that were not answered with 200."""
    outcomes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    cpu_s: float = 0.0
    replaced: float = 0

    @property
    def ratio(self) -> float:
        """The median beside the noise to that alone; infinite if nothing was answered."""
        return median(self.beside) / median(self.alone) if self.beside else float("inf")

    @property
    def answered(self) -> float:
        """The percentage of requests that were answered beside the noise."""
        return 100 * len(self.beside) / max(1, self.asked)


def median(seconds: Sequence[float]) -> float:
    """Return the median, NaN of nothing."""
    return float(np.median(seconds)) if seconds else float("nan")


def main() -> None:
    """Measure with each number of processes, and print."""
    arguments = parse_arguments()
    tables.print_facts("Machine", machine.facts("auto"))
    for by in arguments.by:
        for count in arguments.processes:
            seen = measure_all(by, count, arguments)
            print_seen(f"{count} processes, by {by}", seen, arguments.bound)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    kinds = list(noises())
    parser.add_argument("--kinds", nargs="+", choices=kinds, default=kinds, metavar="KIND", help=str(kinds))
    parser.add_argument("--processes", type=numbers, default=[1, 2])
    parser.add_argument("--by", type=some_of(["address", "key"]), default=["address"])
    parser.add_argument(
        "--connections", type=int, default=40, help="of the rude clients; with 1, an equal of the polite one"
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="beside each kind")
    parser.add_argument(
        "--bound", type=float, default=4.0, help="the largest ratio of the median to the median alone"
    )
    parser.add_argument("--rounds", type=int, default=2, help="of each kind, which share its seconds")
    return parser.parse_args()


def measure_all(by: str, count: int, arguments: argparse.Namespace) -> dict[str, Seen]:
    """Measure beside every kind, those without a key on a service that requires one."""
    seen: dict[str, Seen] = {}
    every = noises()
    for keys in (False, True):
        chosen = [kind for kind in arguments.kinds if (by == "key" or every[kind].keys) == keys]
        bench = Bench(by, keys=keys, processes=count)
        try:
            for kind in chosen:
                seen[kind] = bench.measure(kind, arguments)
                print(
                    f"{kind}: {', '.join(row_of(kind, seen[kind], arguments.bound)[1:])}",
                    file=sys.stderr,
                    flush=True,
                )
        finally:
            bench.end()
    return seen


class Bench:
    """A service, and the rude clients' process; the service is started anew where it has ended."""

    def __init__(self, by: str, *, keys: bool, processes: int) -> None:
        self._by, self._keys = by, keys
        self._settings: dict[str, Any] = {"processes": processes, "cors_origins": "*"}
        if keys:
            self._settings["api_keys"] = f"{_POLITE_KEY},{_RUDE_KEY}"
        self._server: Headlight | None = None
        self._rude = Process([sys.executable, "-m", "benchmarks.stress.rude_clients"], {}, pipes=True)

    def end(self) -> None:
        """End both."""
        for process in (self._rude, self._server):
            if process is not None:
                process.end()

    def measure(self, kind: str, arguments: argparse.Namespace) -> Seen:
        """Measure alone and beside a kind in turn."""
        seen, seconds = Seen(), arguments.seconds / arguments.rounds
        rude = {
            "noise": kind,
            "connections": arguments.connections,
            "source": _RUDE,
            "key": _RUDE_KEY if self._keys else None,
        }
        for _ in range(arguments.rounds):
            server = self._running()
            polite = Polite(server.port, _POLITE if self._by == "address" else _RUDE, self._keys)
            polite.ask_for(_SETTLE_S)
            _, alone = polite.ask_for(seconds / 2)
            seen.alone += alone
            before = failures(server)
            self._rude.ask(f"start {json.dumps({**rude, 'port': server.port})}")
            time.sleep(_SETTLE_S)
            polite.unanswered.clear()
            asked, beside = polite.ask_for(seconds)
            polite.close()
            seen.unanswered += polite.unanswered
            noise = self._rude.ask("stop")
            seen.asked += asked
            seen.beside += beside
            for outcome, times in noise["outcomes"].items():
                seen.outcomes[outcome] = seen.outcomes.get(outcome, 0) + times
            seen.seconds += noise["seconds"]
            seen.cpu_s += noise["cpu_s"]
            drain(server)
            after = failures(server)
            seen.replaced += after.replaced - before.replaced if after.ended is None else 1
        return seen

    def _running(self) -> Headlight:
        if self._server is None or self._server.process.poll() is not None:
            self._server = Headlight(**self._settings)
            self._server.wait_until_ready(_START_S)
        return self._server


def drain(server: Headlight) -> None:
    """Wait until no request is in flight."""
    until = time.monotonic() + _DRAIN_S
    with suppress(httpx.TransportError):
        while server.total("headlight_requests_in_flight") and time.monotonic() < until:
            time.sleep(0.1)


class Polite:
    """A client with one request at a time, on one connection as long as it stays open."""

    def __init__(self, port: int, address: str, keys: bool) -> None:
        self._port, self._address = port, address
        key = f"Authorization: Bearer {_POLITE_KEY}\r\n" if keys else ""
        body = b'{"inputs": "a short text of a polite client"}'
        head = f"POST /encode HTTP/1.1\r\nHost: localhost\r\n{key}Content-Length: {len(body)}\r\n\r\n"
        self._request = head.encode() + body
        self._connection: BlockingConnection | None = None
        self.unanswered: Counter[str] = Counter()
        """What requests got that were not answered with 200."""

    def ask_for(self, seconds: float) -> tuple[int, list[float]]:
        """Ask for some seconds: how many requests, and the seconds of those answered with 200."""
        asked, taken, until = 0, list[float](), time.perf_counter() + seconds
        while (start := time.perf_counter()) < until:
            asked += 1
            try:
                if self._connection is None:
                    self._connection = BlockingConnection(self._port, self._address)
                head, _ = self._connection.ask(self._request)
            except OSError as error:
                self.unanswered[type(error).__name__] += 1
                self.close()
                continue
            if head.status == httpx.codes.OK:
                taken.append(time.perf_counter() - start)
            else:
                self.unanswered[str(head.status)] += 1
        return asked, taken

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def print_seen(title: str, seen: dict[str, Seen], bound: float) -> None:
    """Print what the polite client saw beside each kind, and whether the bounds are held."""
    header = [
        "alone ms",
        "p50 ms",
        "p99 ms",
        "ratio",
        "answered %",
        "others",
        "noise/s",
        "of its time",
        "statuses",
    ]
    tables.print_table(
        f"A polite client beside rude ones: {title}",
        ["kind", *header, "replaced", "held"],
        [row_of(kind, one, bound) for kind, one in seen.items()],
    )
    tables.print_checks(
        [
            tables.Check(
                "p50 beside / alone, of the worst kind",
                [max(one.ratio for one in seen.values())],
                bound,
                at_most=True,
            ),
            tables.Check(
                "answered beside the worst kind, %",
                [min(one.answered for one in seen.values())],
                _BOUND_ANSWERED,
            ),
        ]
    )


def row_of(kind: str, one: Seen, bound: float) -> list[str]:
    """Make a row of the table; `bound` is that of the ratio."""
    statuses = sorted(one.outcomes.items(), key=lambda each: -each[1])[:_STATUSES_SHOWN]
    held = one.ratio <= bound and one.answered >= _BOUND_ANSWERED
    return [
        kind,
        f"{_MS * median(one.alone):.2f}",
        f"{_MS * median(one.beside):.2f}",
        f"{_MS * float(np.percentile(one.beside or [np.nan], 99)):.2f}",
        f"{one.ratio:.2f}",
        f"{one.answered:.1f}",
        " ".join(f"{what}:{times}" for what, times in one.unanswered.most_common(_STATUSES_SHOWN)),
        f"{sum(one.outcomes.values()) / one.seconds:.0f}",
        f"{100 * one.cpu_s / one.seconds:.0f} %",
        " ".join(f"{status}:{times}" for status, times in statuses),
        f"{one.replaced:.0f}",
        "yes" if held else "NO",
    ]


if __name__ == "__main__":
    main()
