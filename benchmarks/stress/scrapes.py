"""Measures what scrapes of /metrics cost a service, apart from each other and as many as it can answer.

Prints the processor time of all its processes per scrape, and how long /livez takes beside connections that
scrape as fast as they can.

    python -m benchmarks.stress.scrapes [--processes 2] [--connections 40] [--seconds 10] [--folder CHECKOUT]
"""

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.servers import Headlight
from benchmarks.kit.wire import read_head

_START_S = 120.0
# Scrapes of the same second share what the first of them is told.
_APART_S = 1.1
_SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
_PAUSE_S = 0.05


def main() -> None:
    """Measure, and print."""
    parser = parser_for(__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--connections", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, help="another checkout to run instead")
    arguments = parser.parse_args()
    server = Headlight(folder=arguments.folder, processes=arguments.processes)
    try:
        server.wait_until_ready(_START_S)
        apart = scrape_apart(server, arguments.seconds)
        scrapes, each_ms, livez_ms = asyncio.run(flood(server, arguments.connections, arguments.seconds))
    finally:
        server.end()
    tables.print_facts("Machine", [*machine.facts("bfloat16"), ("processes", str(arguments.processes))])
    median, most = np.quantile(livez_ms, [0.5, 1.0])
    tables.print_table(
        "Scrapes",
        ("", "scrapes/s", "processor time each", "/livez beside: median", "most"),
        [
            (f"{_APART_S} s apart", f"{1 / _APART_S:.1f}", f"{apart:.1f} ms", "", ""),
            (
                f"{arguments.connections} connections",
                f"{scrapes:.1f}",
                f"{each_ms:.2f} ms",
                f"{median:.1f} ms",
                f"{most:.1f} ms",
            ),
        ],
    )


def scrape_apart(server: Headlight, seconds: float) -> float:
    """Scrape now and then, on one connection; returns the milliseconds of processor time of a scrape."""
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        client.get("/metrics")  # the first one reads all names
        at_rest = _processor_s(server)
        time.sleep(seconds)
        start = _processor_s(server)
        at_rest, number = start - at_rest, 0
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            client.get("/metrics").raise_for_status()
            number += 1
            time.sleep(_APART_S)
        return 1e3 * (_processor_s(server) - start - at_rest * number * _APART_S / seconds) / number


async def flood(server: Headlight, connections: int, seconds: float) -> tuple[float, float, list[float]]:
    """Scrape without a pause on all connections.

    Returns scrapes per second, milliseconds of processor time per scrape, and those that /livez took.
    """
    until = time.perf_counter() + seconds
    number, livez_ms = 0, []

    async def scrape() -> None:
        nonlocal number
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        while time.perf_counter() < until:
            writer.write(_SCRAPE)
            head = await reader.readuntil(b"\r\n\r\n")
            found = read_head(head)
            assert found is not None
            assert found.size is not None
            await reader.readexactly(found.size - len(head))
            number += 1
        writer.close()

    async def ask() -> None:
        async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
            while time.perf_counter() < until:
                begun = time.perf_counter()
                (await client.get("/livez")).raise_for_status()
                livez_ms.append(1e3 * (time.perf_counter() - begun))
                await asyncio.sleep(_PAUSE_S)

    before = _processor_s(server)
    await asyncio.gather(ask(), *(scrape() for _ in range(connections)))
    used_s = _processor_s(server) - before
    return number / seconds, 1e3 * used_s / max(1, number), livez_ms


def _processor_s(server: Headlight) -> float:
    """Return the processor time of the service's processes, to the nanosecond (proc(5), schedstat)."""
    pid = str(server.process.pid)
    children = Path("/proc", pid, "task", pid, "children").read_text(encoding="ascii").split()
    total = 0
    for process in (pid, *children):
        for thread in Path("/proc", process, "task").iterdir():
            with suppress(OSError):
                total += int((thread / "schedstat").read_text(encoding="ascii").split()[0])
    return total / 1e9


if __name__ == "__main__":
    main()
