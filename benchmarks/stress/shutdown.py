"""Checks whether requests are lost when the service shuts down.

Repeatedly starts the service on a free port of the loopback interface, loads it, sends SIGTERM after a random
time, continues to send requests until connections are refused, and classifies every request:

- answered: a complete 200;
- refused: a complete 503, after which a client can try another replica;
- lost: no complete answer, though the request was completely sent before the signal, or an answer had begun;
- cut: sent after the signal over a connection that was then closed without a byte of an answer;
- not sent: the connection was closed or reset before the request was completely sent.

Each connection sends its next request after its answer; every fourth request has many texts. A connection
that was closed while it was idle is opened again. The service runs with the settings in the environment
(`HEADLIGHT_…`).

    python -m benchmarks.stress.shutdown --data sts-dev.tsv [--rounds 200] [--connections 16]
"""

import argparse
import asyncio
import json
import random
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import httpx
import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.servers import Headlight
from benchmarks.kit.wire import Head, read_head, request_bytes
from benchmarks.kit.workloads import make_workloads

_START_S = 120.0
_END_S = 60.0
_RECEIVE_BYTES = 256 * 1024
_SINGLES_TO_A_MIXED = 3
_PAUSE_S = 0.005
_TOLD_EVERY = 20

ANSWERED, REFUSED, OTHER, LOST, CUT, NOT_SENT = OUTCOMES = (
    "answered",
    "refused",
    "another status",
    "lost",
    "cut",
    "not sent",
)
_OF_STATUS = {200: ANSWERED, 503: REFUSED}
BEFORE, ACROSS, AFTER = TIMES = ("ended before the signal", "under way at the signal", "sent after it")


def main() -> None:
    """Run the rounds, and print."""
    arguments = parse_arguments()
    workloads = make_workloads(arguments.data)
    singles = cycle(_bodies(workloads["single"].requests))
    bodies: list[bytes] = []
    for body in _bodies(workloads["mixed"].requests):
        bodies += [*(next(singles) for _ in range(_SINGLES_TO_A_MIXED)), body]
    draw = random.Random(arguments.seed)  # noqa: S311
    rounds: list[Round] = []
    for number in range(1, arguments.rounds + 1):
        rounds.append(one_round(bodies, arguments.connections, draw.uniform(*arguments.after)))
        if number % _TOLD_EVERY == 0 or number == arguments.rounds:
            tell(number, arguments.rounds, rounds)
    tables.print_facts(
        "Machine",
        [
            *machine.facts(rounds[0].dtype),
            ("connections", str(arguments.connections)),
            ("signal after", "{} to {} s".format(*arguments.after)),
        ],
    )
    print_rounds(rounds)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="an STS file, tab-separated")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument(
        "--after", type=float, nargs=2, default=[0.2, 1.0], help="seconds of load before the signal, from, to"
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _bodies(requests: Sequence[Sequence[str]]) -> list[bytes]:
    return [json.dumps({"inputs": texts}).encode() for texts in requests]


@dataclass
class Request:
    """A request in flight: when it was completely sent, and what was read of its answer."""

    sent: float | None = None
    head: Head | None = None
    size: int = 0
    start: bytearray = field(default_factory=bytearray)

    def take(self, data: bytes) -> None:
        """Read on."""
        self.size += len(data)
        if self.head is None:
            self.start += data
            self.head = read_head(self.start)

    @property
    def complete(self) -> bool:
        """Whether the whole answer was read."""
        return self.head is not None and self.head.size is not None and self.size >= self.head.size


@dataclass
class Round:
    """One run of the service: the outcome of every request by when it was sent, and how the process ended.

    `requests` counts (time, outcome); `signalled` is of `time.perf_counter`, None until the signal is sent.
    """

    dtype: str
    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    signalled: float | None = None
    code: int | None = None
    end_s: float = 0.0

    def count(self, asked: Request) -> None:
        """Take a request that is over, one way or the other."""
        when = self._when(asked)
        self.requests[when, _outcome(asked, when)] += 1
        if asked.complete and asked.head is not None:
            self.statuses[asked.head.status] += 1

    def of(self, outcome: str) -> int:
        """Count the requests of one outcome, whenever they were sent."""
        return sum(self.requests[when, outcome] for when in TIMES)

    def _when(self, asked: Request) -> str:
        if self.signalled is None:
            return BEFORE
        return ACROSS if asked.sent is not None and asked.sent <= self.signalled else AFTER


def _outcome(asked: Request, when: str) -> str:
    if asked.complete and asked.head is not None:
        return _OF_STATUS.get(asked.head.status, OTHER)
    if asked.size or (asked.sent is not None and when != AFTER):
        return LOST
    return NOT_SENT if asked.sent is None else CUT


def one_round(bodies: Sequence[bytes], connections: int, signal_after_s: float) -> Round:
    """Start the service, load it, end it, and collect the outcomes of the requests."""
    server = Headlight()
    try:
        server.wait_until_ready(_START_S)
        info = httpx.get(f"{server.url}/info", trust_env=False).json()["models"][0]
        played = Round(info["dtype"])
        asyncio.run(load_and_signal(server, played, bodies, connections, signal_after_s))
    finally:
        server.end()
    return played


async def load_and_signal(
    server: Headlight, played: Round, bodies: Sequence[bytes], connections: int, signal_after_s: float
) -> None:
    """Send requests over every connection, signal after a while, and continue until the process has ended."""
    requests = cycle([request_bytes(server.port, "/encode", body) for body in bodies])
    callers = [asyncio.create_task(keep_asking(server.port, played, requests)) for _ in range(connections)]
    await asyncio.sleep(signal_after_s)
    played.signalled = time.perf_counter()
    server.process.terminate()
    await wait_for_end(server.process, played, played.signalled)
    await asyncio.gather(*callers)


async def wait_for_end(process: subprocess.Popen[bytes], played: Round, signalled: float) -> None:
    """Wait for the process in a thread, to notice its end immediately; kill it if it does not end."""
    waiting = asyncio.create_task(asyncio.to_thread(process.wait))
    await asyncio.wait([waiting], timeout=_END_S)
    if not waiting.done():
        process.kill()
    played.code = await waiting
    played.end_s = time.perf_counter() - signalled


async def keep_asking(port: int, played: Round, requests: Iterator[bytes]) -> None:
    """Send one request after another over a connection, reopening it until that is refused."""
    loop = asyncio.get_running_loop()
    while True:
        with closing(socket.socket()) as connection:
            connection.setblocking(False)  # noqa: FBT003
            try:
                await loop.sock_connect(connection, ("127.0.0.1", port))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while await ask(connection, played, next(requests)) and not is_closed(connection):
                    pass
            except ConnectionRefusedError:
                return
            except ConnectionError:
                pass  # reset while nothing was asked over it
        await asyncio.sleep(_PAUSE_S)


async def ask(connection: socket.socket, played: Round, request: bytes) -> bool:
    """Send one request and read its answer; returns whether the connection can take another."""
    loop = asyncio.get_running_loop()
    asked = Request()
    with suppress(ConnectionError):
        await loop.sock_sendall(connection, request)
        asked.sent = time.perf_counter()
        while not asked.complete and (data := await loop.sock_recv(connection, _RECEIVE_BYTES)):
            asked.take(data)
    played.count(asked)
    if asked.head is not None and asked.head.status == httpx.codes.SERVICE_UNAVAILABLE:
        await asyncio.sleep(_PAUSE_S)
    return asked.complete and asked.head is not None and not asked.head.closes


def is_closed(connection: socket.socket) -> bool:
    """Return whether the other side has closed an idle connection."""
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False


def tell(number: int, of: int, rounds: Sequence[Round]) -> None:
    """Print the progress."""
    counts = ", ".join(f"{sum(r.of(outcome) for r in rounds)} {outcome}" for outcome in OUTCOMES)
    codes = ", ".join(sorted({str(r.code) for r in rounds}))
    print(f"round {number} of {of}: {counts}; exit codes {codes}", flush=True)


def print_rounds(rounds: Sequence[Round]) -> None:
    """Print the outcomes of the requests, and how the processes ended."""
    requests: Counter[tuple[str, str]] = sum((r.requests for r in rounds), Counter())
    tables.print_table(
        "Requests, by when they were sent",
        ["outcome", *TIMES, "all"],
        [
            [
                outcome,
                *(str(requests[when, outcome]) for when in TIMES),
                str(sum(r.of(outcome) for r in rounds)),
            ]
            for outcome in OUTCOMES
        ],
    )
    total = {outcome: sum(r.of(outcome) for r in rounds) for outcome in OUTCOMES}
    across = [sum(n for (when, _), n in r.requests.items() if when == ACROSS) for r in rounds]
    codes = Counter(r.code for r in rounds)
    statuses: Counter[int] = sum((r.statuses for r in rounds), Counter())
    ends = [r.end_s for r in rounds]
    tables.print_facts(
        "Rounds",
        [
            ("rounds", str(len(rounds))),
            ("accepted", str(total[ANSWERED] + total[OTHER] + total[LOST])),
            ("answered", str(total[ANSWERED])),
            ("refused with 503", str(total[REFUSED])),
            ("lost", str(total[LOST])),
            ("statuses", ", ".join(f"{status}: {n}" for status, n in sorted(statuses.items()))),
            ("under way at the signal", f"{np.median(across):.0f} (median), {max(across)} (most)"),
            ("exit codes", ", ".join(f"{code} in {n} rounds" for code, n in codes.items())),
            ("signal until exit", f"{np.median(ends):.2f} s (p50), {max(ends):.2f} s (most)"),
        ],
    )


if __name__ == "__main__":
    main()
