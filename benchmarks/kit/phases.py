"""Timed loads, in open and closed loops, and what the client saw of each."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import httpx
import numpy as np

from benchmarks.kit.client import Asked, Client

_ANSWER_S = 60.0
_TURN_S = 0.002
_SETTLE_S = 0.2


@dataclass
class Phase:
    """A timed load. Times, including that of its end, are of `time.perf_counter`.

    `offered` is the rate of an open loop, None for a closed one. `backlog_s` is the time from the end until
    nothing was in flight. `turns` are the times when the client's loop should have turned, and when it did.
    """

    name: str
    offered: float | None
    seconds: float
    start: float = field(default_factory=time.perf_counter)
    asked: list[Asked] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    backlog_s: float = 0.0
    turns: list[tuple[float, float]] = field(default_factory=list)

    @property
    def end(self) -> float:
        """When no more is sent."""
        return self.start + self.seconds

    @property
    def good_per_s(self) -> float:
        """The rate of good answers that came before the end."""
        return sum(a.status == httpx.codes.OK and a.done <= self.end for a in self.asked) / self.seconds

    def count(self, asked: Asked) -> None:
        """Take a request that is on its way."""
        self.asked.append(asked)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)

    def of(self, status: int) -> list[Asked]:
        """Those requests that were answered with this status."""
        return [a for a in self.asked if a.status == status]

    def stood_still(self, asked: Sequence[Asked]) -> np.ndarray:
        """Seconds of each request's time in which the client's loop was late."""
        due, turned = np.array(self.turns).T
        times = np.stack([due, turned], axis=1).ravel()
        total = np.cumsum(turned - due)
        sums = np.stack([total - (turned - due), total], axis=1).ravel()
        sent, done = [a.sent for a in asked], [a.done for a in asked]
        return cast(np.ndarray, np.interp(done, times, sums) - np.interp(sent, times, sums))


async def closed_loop(client: Client, name: str, connections: int, seconds: float) -> Phase:
    """Keep a number of requests in flight, sending the next one after each answer."""
    phase = Phase(name, None, seconds)

    def finish(asked: Asked) -> None:
        phase.in_flight -= 1
        if asked.done < phase.end:
            send(asked.done)

    def send(due: float) -> None:
        phase.count(client.ask(due, finish))

    async with watched(phase, client):
        for _ in range(connections):
            send(phase.start)
        await asyncio.sleep(seconds)
    return phase


async def open_loop(client: Client, name: str, rate: float, seconds: float) -> Phase:
    """Send a number of requests per second, without waiting for answers."""
    phase = Phase(name, rate, seconds)

    def finish(_: Asked) -> None:
        phase.in_flight -= 1

    async with watched(phase, client):
        for i in range(int(rate * seconds)):
            due = phase.start + i / rate
            while (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            phase.count(client.ask(due, finish))
        await asyncio.sleep(phase.end - time.perf_counter())
    return phase


@asynccontextmanager
async def watched(phase: Phase, client: Client) -> AsyncIterator[None]:
    """Watch the client's loop during a load, and wait at the end until nothing is in flight."""
    turns = asyncio.create_task(watch_turns(phase.turns))
    try:
        yield
        while phase.in_flight and time.perf_counter() < phase.end + _ANSWER_S:
            await asyncio.sleep(_TURN_S)
        phase.backlog_s = max(0.0, time.perf_counter() - phase.end)
        if phase.in_flight:
            client.abort()
            await asyncio.sleep(_SETTLE_S)
    finally:
        turns.cancel()


async def watch_turns(turns: list[tuple[float, float]]) -> None:
    """Record every two milliseconds when the loop should have turned, and when it did."""
    turned = time.perf_counter()
    while True:
        due = turned + _TURN_S
        await asyncio.sleep(_TURN_S)
        turned = max(due, time.perf_counter())
        turns.append((due, turned))


def percentiles(phase: str, name: str, seconds: Sequence[float] | np.ndarray) -> list[str]:
    """Make a row of a table of milliseconds."""
    milliseconds = 1e3 * np.asarray(seconds)
    figures = [*np.percentile(milliseconds, [50, 90, 99]), milliseconds.max()]
    return [phase, name, str(len(milliseconds)), *(f"{figure:.1f}" for figure in figures)]
