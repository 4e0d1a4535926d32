"""A storm against one service beside a good client, and what the service is like before and after."""

import asyncio
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np

from tests.storm.attack import Attack, Kinds
from tests.storm.bodies import BODIES, HEAVY_BODIES
from tests.storm.clients import CLIENTS, SLOW_CLIENTS
from tests.storm.driver import Census, storm
from tests.storm.framing import FRAMING, HEAVY_FRAMING
from tests.storm.generated import generate
from tests.storm.heads import HEADS
from tests.support.serving import Service

REQUEST_TIMEOUT_S = 10
"""Of the service: what never comes to an end lasts so long."""
KEEP_ALIVE_S = 20
"""Of the service: less than a client's patience, also when the answers before it took long."""
VARIED = ("as many inputs as there may be", "a storm of characters", "pairs of nothing and something")
"""Kinds that run batches of many shapes: libraries keep code for each, up to a bound."""
GOOD = ["A good client asks for this.", "xylophone quartz", ""]
_TOLERANCE = 2e-6
_GONE_S = 60.0
# Of one of the heavy kinds, and of those that wait, for so many of every other kind.
_RARE = 4


@dataclass
class Watch:
    """What a good client saw beside a storm: its answers by status, and the longest that each route took."""

    statuses: dict[int, int] = field(default_factory=dict)
    longest_s: dict[str, float] = field(default_factory=lambda: {"/livez": 0.0, "/encode": 0.0})
    wrong: list[str] = field(default_factory=list)

    def note(self, path: str, status: int, seconds: float) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.longest_s[path] = max(self.longest_s[path], seconds)


@dataclass(frozen=True)
class Vitals:
    """What a process holds: memory that is resident in MiB, open files and threads."""

    resident_mib: float
    files: int
    threads: int


def vitals(service: Service) -> Vitals:
    """Look at the process of a service, which has one connection."""
    service.http.get("/livez")
    process = Path(f"/proc/{service.process.pid}")
    status = (process / "status").read_text(encoding="ascii")
    resident, threads = (int(re.findall(rf"{name}:\s+(\d+)", status)[0]) for name in ("VmRSS", "Threads"))
    return Vitals(resident / 1024, len(list((process / "fd").iterdir())), threads)


def vectors(service: Service) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The embeddings that the good client asks for."""
    return np.array([item["embedding"] for item in service.encode(GOOD)["data"]])


@contextmanager
def good_client(service: Service) -> Iterator[Watch]:
    """Ask for the same embeddings, and whether the service is alive, over and over."""
    expected, watch, done = vectors(service), Watch(), threading.Event()

    def ask() -> None:
        with service.new_client() as client:
            while not done.wait(0.01):
                for path in ("/livez", "/encode"):
                    start = time.perf_counter()
                    body = {"inputs": GOOD}
                    response = client.get(path) if path == "/livez" else client.post(path, json=body)
                    watch.note(path, response.status_code, time.perf_counter() - start)
                    if path == "/encode" and response.status_code == 200:
                        got = np.array([item["embedding"] for item in response.json()["data"]])
                        if np.abs(got - expected).max() > _TOLERANCE:
                            watch.wrong.append(f"{np.abs(got - expected).max()} off")

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield watch
    finally:
        done.set()
        thread.join()


@dataclass
class Siege:
    """A service and the kinds of attacks on it; the same `seed`, the same attacks.

    `examples` is how many requests are drawn of each route's schema, of which a kind sends one at a time.
    """

    service: Service
    seed: int = 6
    examples: int = 60
    kinds: Kinds = field(init=False)

    def __post_init__(self) -> None:
        document = self.service.http.get("/openapi.json").json()
        self.random = Random(self.seed)  # noqa: S311
        self.kinds = HEADS | FRAMING | BODIES | CLIENTS | generate(document, self.examples)

    def attacks(self, count: int) -> list[tuple[str, Attack]]:
        """At least so many attacks, of every kind; those that wait are spread over the first half."""
        quick: list[tuple[str, Attack]] = []
        slow: list[tuple[str, Attack]] = []
        rounds = 0
        while len(quick) + len(slow) < count:
            rare = rounds % _RARE == 0
            heavy = HEAVY_FRAMING | HEAVY_BODIES if rare else {}
            quick += [(kind, make(self.random)) for kind, make in (self.kinds | heavy).items()]
            slow += [(kind, make(self.random)) for kind, make in SLOW_CLIENTS.items()] if rare else []
            rounds += 1
        gap = max(1, len(quick) // (2 * len(slow)))
        for i, attack in enumerate(slow):
            quick.insert(i * (gap + 1), attack)
        return quick

    def varied(self, rounds: int) -> list[tuple[str, Attack]]:
        """Attacks that run batches of many shapes."""
        kinds = self.kinds | HEAVY_BODIES
        return [(kind, kinds[kind](self.random)) for _ in range(rounds) for kind in VARIED]

    def lay(self, attacks: Sequence[tuple[str, Attack]]) -> tuple[Census, Watch]:
        """Carry attacks out beside a good client, and wait until the service is quiet again."""
        census = Census()
        with good_client(self.service) as watch:
            asyncio.run(storm(self.service.port, attacks, census))
        self.wait_until_quiet()
        return census, watch

    def wait_until_quiet(self) -> None:
        """Wait until nothing is in flight, nothing waits and no attacker is connected any more."""
        model = '{model="all-MiniLM-L6-v2"}'
        names = ("requests_in_flight{}", f"queue_inputs{model}", f"queue_tokens{model}")
        until = time.monotonic() + _GONE_S
        while time.monotonic() < until:
            metrics = self.service.metrics()
            if not any(metrics[f"headlight_{name}"] for name in names) and not self._connections():
                time.sleep(1)
                return
            time.sleep(0.2)
        raise AssertionError(f"{self._connections()} connections are left, in flight {metrics[names[0]]}")

    def _connections(self) -> int:
        """Connections to the service that a process has, but for the one of its own client here."""
        port = f"0100007F:{self.service.port:04X}"
        lines = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
        held = [line for line in lines if line[1] == port and line[3] != "0A" and line[9] != "0"]
        return max(0, len(held) - 1)
