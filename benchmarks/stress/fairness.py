"""Measures one client beside others: how many of its requests are answered, and how fast.

Starts the service on a free port of the loopback interface. A client that sends one request at a time is
measured beside each of these neighbours in turn, for several rounds:

- nobody: the client is alone;
- an equal: another client that also sends one request at a time, the same ones;
- a flood of large requests: a client with several connections, each of which sends the largest valid request
  (as many texts as the service accepts, each as long as the model reads) and then immediately the next one,
  whatever the answer;
- a flood of small requests: the same with requests of one sentence, over more connections;
- both floods: two clients at once.

Each client has its own address on the loopback interface, which identifies it to the service. The neighbours
are separate processes on the same machine; the processor time that they take is part of the result. The
service runs with the settings in the environment (`HEADLIGHT_…`).

    python -m benchmarks.stress.fairness [--rounds 5] [--seconds 4] [--words 12]
"""

import argparse
import json
import multiprocessing
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event

import httpx
import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for, some_of
from benchmarks.kit.servers import Headlight
from benchmarks.planning.traffic import Floats

_START_S = 120.0
_DRAIN_S = 60.0
_SETTLE_S, _WARM_UP_S = 0.5, 1.0
_MS = 1e3
_KINDS = ("nobody", "an equal", "large requests", "small requests", "both")
_STAGES = ("tokenize", "queue", "compute", "serialize")
_LONE, _OTHERS = "127.0.0.2", ("127.0.0.3", "127.0.0.4")
_SPAWN = multiprocessing.get_context("spawn")
_BOUND_ANSWERED, _BOUND_RATIO = 99.0, 3.0


class Connection:
    """A connection from an address of the loopback interface, which reads answers and throws them away."""

    def __init__(self, port: int, address: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60, source_address=(address, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(1 << 20)

    def ask(self, request: bytes) -> tuple[int, str]:
        """Send a request and read the whole answer; returns its status and the stages' times."""
        self._socket.sendall(request)
        head = b""
        while b"\r\n\r\n" not in head:
            received = self._socket.recv(1 << 16)
            if not received:
                raise ConnectionError("the connection was closed")
            head += received
        head, _, body = head.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        left = int(fields[b"content-length"]) - len(body)
        while left > 0:
            left -= self._socket.recv_into(self._buffer, min(left, len(self._buffer)))
        return int(head.split(b" ", 2)[1]), fields.get(b"server-timing", b"").decode()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()


@dataclass(frozen=True)
class Neighbour:
    """A client beside the measured one: its request, and its number of connections."""

    request: bytes
    connections: int


@dataclass
class Seen:
    """What the measured client saw: one entry per round."""

    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)
    requests: int = 0
    stages: dict[str, list[float]] = field(default_factory=dict)
    """Where its time went: stage -> milliseconds, the median of each round."""
    others: list[float] = field(default_factory=list)
    """Requests of the neighbours that were answered, per second."""
    refused: list[float] = field(default_factory=list)


def main() -> None:
    """Start the service, measure, end it, and print."""
    arguments = parse_arguments()
    server = Headlight()
    try:
        server.wait_until_ready(_START_S)
        about = httpx.get(f"{server.url}/info", trust_env=False).json()
        model, limits = about["models"][0], about["limits"]
        lone = request([" ".join(["word"] * arguments.words)])
        large = request([" ".join(["word"] * (model["max_length"] - 2))] * limits["max_inputs"])
        kinds = {
            "nobody": [],
            "an equal": [Neighbour(lone, 1)],
            "large requests": [Neighbour(large, arguments.large)],
            "small requests": [Neighbour(request(["word " * 12]), arguments.small)],
        }
        kinds["both"] = kinds["large requests"] + kinds["small requests"]
        chosen = {kind: kinds[kind] for kind in _KINDS if kind in {"an equal", *arguments.beside}}
        seen = measure(server, lone, chosen, arguments)
    finally:
        ended = server.end()
    tables.print_facts(
        "Machine",
        [
            *machine.facts(model["dtype"]),
            ("model", model["name"]),
            ("batch, queue", f"{model['max_batch_tokens']} and {model['max_queue_tokens']} tokens"),
            ("measured client", f"one text of {arguments.words} words, one request at a time"),
            ("large requests", f"{arguments.large} connections, {len(large)} bytes a request"),
            ("small requests", f"{arguments.small} connections"),
        ],
    )
    print_seen(seen)
    tables.print_facts("The service", [("end", f"exit code {ended.code}, {ended.seconds:.2f} s")])


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="beside each neighbour in a round")
    parser.add_argument("--words", type=int, default=12, help="of the measured client's text")
    parser.add_argument("--beside", type=some_of(_KINDS), default=list(_KINDS), help="of the neighbours")
    parser.add_argument("--large", type=int, default=4, help="connections of the flood of large requests")
    parser.add_argument("--small", type=int, default=16, help="connections of the flood of small requests")
    return parser.parse_args()


def request(texts: Sequence[str]) -> bytes:
    """Make the bytes of a request for sentence vectors."""
    body = json.dumps({"inputs": list(texts)}).encode()
    head = f"POST /encode HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def measure(
    server: Headlight, lone: bytes, kinds: dict[str, list[Neighbour]], arguments: argparse.Namespace
) -> dict[str, Seen]:
    """Put the client beside each kind of neighbours in turn, for a number of rounds."""
    seen = {kind: Seen() for kind in kinds}
    beside(server, lone, [], _WARM_UP_S, Seen())
    for _ in range(arguments.rounds):
        for kind, neighbours in kinds.items():
            beside(server, lone, neighbours, arguments.seconds, seen[kind])
    return seen


def beside(
    server: Headlight, lone: bytes, neighbours: Sequence[Neighbour], seconds: float, seen: Seen
) -> None:
    """Measure the client beside these neighbours once, and wait until the queue is empty again."""
    latencies, statuses, timings = list[float](), list[int](), list[str]()
    with ExitStack() as stack:
        counts = [
            stack.enter_context(Running(server.port, *one)) for one in zip(neighbours, _OTHERS, strict=False)
        ]
        connection = stack.enter_context(closing(Connection(server.port, _LONE)))
        before, start = [count() for count in counts], time.perf_counter()
        while (now := time.perf_counter()) - start < seconds:
            status, stages = connection.ask(lone)
            statuses.append(status)
            latencies.append(time.perf_counter() - now)
            timings.append(stages)
        elapsed = time.perf_counter() - start
        done = [(count() - b) / elapsed for count, b in zip(counts, before, strict=True)]
        good, refused = sum(done, np.zeros(2))
        seen.others.append(float(good))
        seen.refused.append(float(refused))
    answered = np.array(statuses) == httpx.codes.OK
    taken = np.array(latencies)[answered] if answered.any() else np.array([np.nan])
    seen.p50.append(_MS * float(np.percentile(taken, 50)))
    seen.p99.append(_MS * float(np.percentile(taken, 99)))
    seen.answered.append(100 * float(answered.mean()))
    seen.requests += len(statuses)
    for name in _STAGES:
        times = [
            float(found[1]) for timing in timings if (found := re.search(name + r";dur=([\d.]+)", timing))
        ]
        seen.stages.setdefault(name, []).append(float(np.median(times)) if times else float("nan"))
    until = time.monotonic() + _DRAIN_S
    while server.total("headlight_requests_in_flight") and time.monotonic() < until:
        time.sleep(0.1)


class Running:
    """A neighbour at work in a process of its own; counts its good answers."""

    def __init__(self, port: int, neighbour: Neighbour, address: str) -> None:
        self._counts = _SPAWN.Array("q", 2)
        self._ended = _SPAWN.Event()
        begun = _SPAWN.Event()
        arguments = (port, neighbour, address, begun, self._ended, self._counts)
        self._process = _SPAWN.Process(target=flood, args=arguments, daemon=True)
        self._begun = begun

    def __enter__(self) -> Callable[[], Floats]:
        self._process.start()
        self._begun.wait(60)
        time.sleep(_SETTLE_S)  # until its requests have reached the queue
        return lambda: np.array(self._counts[:], np.float64)

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def flood(port: int, neighbour: Neighbour, address: str, begun: Event, ended: Event, counts: object) -> None:
    """Send the neighbour's request over each of its connections, over and over."""

    def work() -> None:
        with closing(Connection(port, address)) as connection:
            while not ended.is_set():
                good = connection.ask(neighbour.request)[0] == httpx.codes.OK
                with counts.get_lock():  # type: ignore[attr-defined]
                    counts[0 if good else 1] += 1  # type: ignore[index]
                begun.set()

    begun.set()
    threads = [threading.Thread(target=work, daemon=True) for _ in range(neighbour.connections)]
    for thread in threads:
        thread.start()
    ended.wait()


def print_seen(seen: dict[str, Seen]) -> None:
    """Print what the client saw beside each neighbour, and whether the bounds are held."""
    equal = seen["an equal"].p50
    tables.print_table(
        "One request at a time, beside…",
        [
            "beside",
            "requests",
            "answered %",
            "p50 ms",
            "p99 ms",
            "of an equal's p50",
            *_STAGES,
            "others/s",
            "refused/s",
        ],
        [
            [
                kind,
                str(one.requests),
                f"{np.median(one.answered):.1f}",
                f"{np.median(one.p50):.2f}",
                f"{np.median(one.p99):.2f}",
                tables.ratio(one.p50, equal),
                *(f"{np.median(one.stages[name]):.2f}" for name in _STAGES),
                f"{np.median(one.others):.1f}",
                f"{np.median(one.refused):.1f}",
            ]
            for kind, one in seen.items()
        ],
    )
    floods = {kind: one for kind, one in seen.items() if kind not in ("nobody", "an equal")}
    tables.print_checks(
        [
            check
            for kind, one in floods.items()
            for check in (
                tables.Check(f"answered beside {kind}, %", one.answered, _BOUND_ANSWERED, digits=1),
                tables.Check(
                    f"p50 beside {kind}, in that beside an equal",
                    list(np.divide(one.p50, equal)),
                    _BOUND_RATIO,
                    at_most=True,
                ),
            )
        ]
    )


if __name__ == "__main__":
    main()
