"""Has contestants take turns, round by round: calls in this process, or processes under load."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from benchmarks.kit.servers import Process

T = TypeVar("T")

_WARM_S = 1


@dataclass(frozen=True)
class Contestant(Generic[T]):
    """A process that takes turns: `run` loads it for a number of seconds."""

    process: Process
    run: Callable[[int], T]


def alternating(
    contestants: Mapping[str, Contestant[T]], rounds: int, seconds: int
) -> Iterator[dict[str, T]]:
    """Let all take turns while the others are paused; in reversed order every other round.

    A turn begins with one second of warm-up. Yields the results of each round.
    """
    for number in range(rounds):
        order = list(contestants.items())
        turns = {}
        for name, contestant in order[::-1] if number % 2 else order:
            contestant.process.go_on()
            contestant.run(_WARM_S)
            turns[name] = contestant.run(seconds)
            contestant.process.pause()
        yield {name: turns[name] for name in contestants}


def take_turns(
    contestants: Mapping[str, Callable[[], object]], rounds: int, *, shortest_s: float = 0.01, seed: int = 0
) -> dict[str, list[float]]:
    """Time each contestant once in every round, in a new order each round: seconds per call.

    A disturbance of the machine then affects all of them, and ratios within a round stay fair. Every
    contestant is called twice as a warm-up. One that is faster than `shortest_s` is repeated to fill that
    time, and the mean counts.
    """
    repeats = {name: _repeats(call, shortest_s) for name, call in contestants.items()}
    order, shuffle = list(contestants), random.Random(seed).shuffle  # noqa: S311
    seconds: dict[str, list[float]] = {name: [] for name in order}
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            seconds[name].append(_time(contestants[name], repeats[name]))
    return seconds


def _repeats(call: Callable[[], object], shortest_s: float) -> int:
    call()
    return max(1, round(shortest_s / _time(call, 1)))


def _time(call: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats
