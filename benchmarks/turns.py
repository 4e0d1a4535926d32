"""Loads processes one after another, round by round, and pauses the others."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from benchmarks.servers import Process

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
