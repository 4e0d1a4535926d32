"""Who has no turn is stopped: processes that are put under a load one after the other, round by round."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from benchmarks.servers import Process

T = TypeVar("T")

_WARM_S = 1


@dataclass(frozen=True)
class Contestant(Generic[T]):
    """Who takes turns: `run` puts the process under a load for so many seconds."""

    process: Process
    run: Callable[[int], T]


def alternating(
    contestants: Mapping[str, Contestant[T]], rounds: int, seconds: int
) -> Iterator[dict[str, T]]:
    """Let all take turns, all others being stopped; in reversed order every other round.

    A turn begins with a second of load of which nothing counts. Yields what each round brought.
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
