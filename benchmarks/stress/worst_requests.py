"""Sends the most expensive valid requests for minutes, under a memory limit, beside an ordinary client.

    python -m benchmarks.stress.worst_requests --limit-mib 512 --model exported/all-MiniLM-L6-v2 --minutes 10

Runs a service in a control group with a memory limit (as root), as in a container. The attacks are: texts of
two megabytes of only punctuation, of words of a hundred letters, or of CJK; requests of 256 long texts or
pairs; large answers that are read slowly or not at all; bodies that stop shortly before their end; names of
two megabytes; token vectors of all layers; clients that disconnect. Meanwhile an ordinary client, with its
own address, sends one short request at a time. Prints whether the process survived, its peak memory and the
limit, and what the ordinary client saw. `--only` selects some kinds of attacks. The service runs with the
settings in the environment.
"""

import argparse
import asyncio
import math
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for, some_of
from benchmarks.kit.memory_limit import MemoryLimit, memory_limit
from benchmarks.kit.servers import free_port
from benchmarks.stress.worst_attacks import Attack, attacks, body_of

_ANSWER_S = 60.0
MOST = 0.9
"""The target for the share of the limit that the service uses."""
ANSWERED = 0.99
"""The target for the share of the ordinary client's requests that are answered."""
_ORDINARY_ADDRESS = "127.0.0.2"
_PAUSE_S = 0.2
_TURN_S = 2.0
_AT_A_TIME = 5
_START_S = 120.0
_WATCH_S = 0.02


Outcomes = Counter[tuple[str, str]]


@dataclass
class Seen:
    """The outcomes of the attacks, and of the ordinary client's requests with their seconds."""

    attacks: Outcomes = field(default_factory=Counter)
    ordinary: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    rss_bytes: int = 0
    working_bytes: int = 0
    alive: bool = True


def main() -> None:
    """Start the service within its limit, attack it, and print."""
    arguments = parse_arguments()
    chosen = some_of(list(attacks()))(arguments.only) if arguments.only else list(attacks())
    with memory_limit(arguments.limit_mib * 2**20) as group, service(group, arguments.model) as server:
        seen = besiege(server, group, chosen, arguments.minutes)
        print_seen(seen, group, arguments)
        good = passed(seen, group)
    sys.exit(not good)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--limit-mib", type=int, default=512)
    parser.add_argument("--model", help="what is served; the service's own default where it is left out")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", help="names of attacks, separated by commas")
    return parser.parse_args()


@dataclass(frozen=True)
class Server:
    """A service within a memory limit."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self.process.poll() is None


@contextmanager
def service(group: MemoryLimit, model: str | None, **variables: str) -> Iterator[Server]:
    """Run a service within a group until the block ends; its log goes to this program's standard error."""
    port = free_port()
    environment = {
        **os.environ,
        "HEADLIGHT_LOG_LEVEL": "warning",
        "HF_HUB_OFFLINE": "1",
        **({"HEADLIGHT_MODEL": model} if model else {}),
        **variables,
    }
    command = group.command([sys.executable, "-m", "service", "--port", str(port)])
    server = Server(subprocess.Popen(command, env=environment), port)
    try:
        wait_until_ready(server)
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def wait_until_ready(server: Server) -> None:
    """Wait until the service is ready; raises SystemExit if it ends before that."""
    until = time.monotonic() + _START_S
    while time.monotonic() < until and server.alive:
        with suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=5) as asked:
            asked.sendall(b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            if asked.recv(4096).startswith(b"HTTP/1.1 200"):
                return
        time.sleep(0.05)
    raise SystemExit(f"The service did not become ready (exit code {server.process.poll()}).")


def besiege(server: Server, group: MemoryLimit, names: Sequence[str], minutes: float) -> Seen:
    """Attack for some minutes, from a separate process, so that the ordinary client is not slowed down."""
    seen, until = Seen(), time.monotonic() + 60 * minutes
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as attackers:
        attacking = attackers.submit(attack_all, server.port, names, until)
        asyncio.run(observe(server, group, seen, until))
        seen.attacks = attacking.result()
    return seen


async def observe(server: Server, group: MemoryLimit, seen: Seen, until: float) -> None:
    """Watch the service and act as its ordinary client, until the time is over or the service has ended."""
    asking = asyncio.create_task(ordinary(server.port, seen, until))
    await watch(server, group, seen, until)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


def attack_all(port: int, names: Sequence[str], until: float) -> Outcomes:
    """Carry out attacks until the time is over; returns how often each had which outcome."""
    kinds, outcomes = attacks(), Outcomes()

    async def run() -> None:
        tasks = []
        for turn, name in enumerate(names):
            sent = kinds[name].request

            def is_on(turn: int = turn) -> bool:
                """Whether this kind's turn is now: a few at a time, and every fourth time all."""
                window = int(time.monotonic() / _TURN_S)
                return window % 4 == 0 or (turn - window) % len(names) < _AT_A_TIME

            tasks += [
                asyncio.create_task(repeat(port, name, kinds[name], sent, outcomes, is_on))
                for _ in range(kinds[name].workers)
            ]
        await asyncio.sleep(until - time.monotonic())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())
    return outcomes


async def watch(server: Server, group: MemoryLimit, seen: Seen, until: float) -> None:
    """Watch the memory of the service until the time is over or the service has ended."""
    while time.monotonic() < until and server.alive:
        with suppress(OSError):
            rss = machine.memory_mib("VmRSS", server.process.pid)
            if not math.isnan(rss):  # else it has ended
                seen.rss_bytes = max(seen.rss_bytes, int(rss * 2**20))
        seen.working_bytes = max(seen.working_bytes, group.working_bytes)
        await asyncio.sleep(_WATCH_S)
    seen.alive = server.alive


async def ordinary(port: int, seen: Seen, until: float) -> None:
    """Send one short request at a time, over the connection of the previous one if it is still open.

    A connection closed while idle is not a failure: clients then retry on a new one.
    """
    number = 0
    while time.monotonic() < until:
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(_ORDINARY_ADDRESS, 0)
            )
        except OSError:
            seen.ordinary["no connection"] += 1
            await asyncio.sleep(_PAUSE_S)
            continue
        new = True
        try:
            while time.monotonic() < until:
                number += 1
                body = body_of(f"An ordinary question, number {number}: what is seen from here?")
                await _ask_ordinary(reader, writer, body, seen, new=new)
                new = False
                await asyncio.sleep(0.02)
        except (OSError, asyncio.IncompleteReadError):
            pass  # counted
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _ask_ordinary(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes, seen: Seen, *, new: bool
) -> None:
    start = time.perf_counter()
    outcome = "cut off"
    try:
        writer.write(b"POST /encode HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _ANSWER_S)
        length = next(int(v) for n, _, v in _headers(head) if n == b"content-length")
        await reader.readexactly(length)
        outcome = head[9:12].decode()
    except TimeoutError:
        outcome = "no answer"
        raise OSError from None
    except asyncio.IncompleteReadError as error:
        outcome = "cut off" if new or error.partial else ""
        raise
    except asyncio.CancelledError:
        outcome = ""  # the time is over
        raise
    finally:
        if outcome:
            seen.ordinary[outcome] += 1
        if outcome == "200":
            seen.seconds.append(time.perf_counter() - start)


def _headers(head: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    return (line.lower().partition(b":") for line in head.split(b"\r\n")[1:])


async def repeat(
    port: int, name: str, attack: Attack, sent: bytes, outcomes: Outcomes, is_on: Callable[[], bool]
) -> None:
    """Carry out one attack repeatedly, whenever it has its turn."""
    while True:
        await asyncio.sleep(random.random() * _PAUSE_S)  # noqa: S311
        if not is_on():
            continue
        connection = socket.socket()
        connection.setblocking(False)  # noqa: FBT003
        if attack.read is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        outcome = "cut off"
        try:
            async with asyncio.timeout(attack.leave_s or _ANSWER_S):
                outcome = await _attack(connection, port, attack, sent)
        except TimeoutError:
            outcome = "left" if attack.leave_s else "no answer"
        except OSError:
            pass
        finally:
            connection.close()
        outcomes[name, outcome] += 1
        await asyncio.sleep(_PAUSE_S)


async def _attack(connection: socket.socket, port: int, attack: Attack, sent: bytes) -> str:
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, ("127.0.0.1", port))
    with suppress(ConnectionError):  # a refusal may come before all is sent
        await loop.sock_sendall(connection, sent)
    received = b""
    while b"\r\n\r\n" not in received:
        if not (piece := await loop.sock_recv(connection, 4096)):
            return "cut off"
        received += piece
    status = received[9:12].decode("ascii", "replace")
    if attack.read == 0 and status == "200":
        await asyncio.sleep(_ANSWER_S / 2)
        return "200, unread"
    head, _, body = received.partition(b"\r\n\r\n")
    length = next((int(value) for name, _, value in _headers(head) if name == b"content-length"), None)
    got, end = len(body), body
    while got < length if length is not None else not end.endswith(b"0\r\n\r\n"):
        piece = await loop.sock_recv(connection, min(attack.read or 2**20, 2**20))
        if not piece:
            return f"{status}, cut off"
        got, end = got + len(piece), (end + piece)[-8:]
        if attack.read:
            await asyncio.sleep(len(piece) / attack.read)
    return status


def passed(seen: Seen, group: MemoryLimit) -> bool:
    """Whether the service survived with a tenth of its memory left, and served the ordinary client."""
    served = seen.ordinary["200"] >= ANSWERED * seen.ordinary.total()
    return seen.alive and not group.kills and seen.working_bytes <= MOST * group.limit and served


def print_seen(seen: Seen, group: MemoryLimit, arguments: argparse.Namespace) -> None:
    """Print what happened."""
    names = sorted({name for name, _ in seen.attacks})
    rows: list[Sequence[str]] = [
        [name, ", ".join(f"{o}: {n}" for (other, o), n in sorted(seen.attacks.items()) if other == name)]
        for name in names
    ]
    tables.print_table("Attacks", ["attack", "outcomes"], rows)
    p50, p99 = 1e3 * np.percentile(seen.seconds or [float("nan")], (50, 99))
    share = 100 * seen.ordinary["200"] / max(1, seen.ordinary.total())

    def mb(size: int) -> str:
        return f"{size / 2**20:.0f} MiB, {100 * size / group.limit:.1f} % of the limit"

    tables.print_facts(
        f"{arguments.model or 'the default'} in {arguments.limit_mib} MiB, {arguments.minutes:g} min",
        [
            ("alive", f"{seen.alive}, {group.kills} kills"),
            ("most memory, without clean file pages", mb(seen.working_bytes)),
            ("most VmRSS", mb(seen.rss_bytes)),
            ("max_usage, with file pages", mb(group.peak_bytes)),
            ("ordinary client", ", ".join(f"{o}: {n}" for o, n in seen.ordinary.most_common())),
            ("ordinary client answered", f"{share:.2f} %"),
            ("p50, p99, in ms", f"{p50:.0f}, {p99:.0f}"),
            ("passed", str(passed(seen, group))),
        ],
    )


if __name__ == "__main__":
    main()
