"""Edges of attention that a request chooses: weights of single queries and keys, others in each input."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from service.tasks.errors import OptionError
from service.tasks.indices import dropped, outside

Edge = tuple[int, int]
"""A query and a key, by their positions."""


@dataclass(frozen=True, slots=True)
class Edges:
    """The edges of each input; `flat` says that there is one, whose edges have no list around them."""

    lists: Sequence[Sequence[Sequence[int]]]
    flat: bool = False

    def check(self, inputs: int) -> None:
        """Raise OptionError if there is not a list of edges for each of the `inputs`."""
        lists = len(self.lists)
        if lists == inputs:
            return
        has = "is a list of edges of one input" if self.flat else f"has lists of edges of {lists} inputs"
        raise OptionError(
            lambda name: (
                f"{name('edges')} {has}, and there are {inputs} {name('inputs')}: send a list of edges for "
                "each, such as [[[1, 2]], [[0, 3], [0, 4]]] for two."
            ),
            option="edges",
            actual=lists,
            allowed=inputs,
        )

    def resolve(self, index: int, special: Sequence[bool], level: str, *, keep: bool) -> tuple[Edge, ...]:
        """Return the edges of an input by positions that are not negative; raises OptionError.

        The input has `special` tokens or words, which have edges only with `keep`. `level` says which.
        """
        edges, count = self.lists[index], len(special)
        numbers = list(chain.from_iterable(edges))
        least = min(numbers, default=0)
        if least < -count or max(numbers, default=-1) >= count:
            wrong = next(i for i, number in enumerate(numbers) if not -count <= number < count)
            raise outside(
                self._place(index, wrong),
                numbers[wrong],
                count,
                lambda name: f"{name(f'inputs.{index}')} has {count} {level}s",
                f"inputs.{index}",
            )
        positions = numbers if least >= 0 else [number % count for number in numbers]
        if not keep and any(special[i] for i in positions):
            wrong = next(place for place, i in enumerate(positions) if special[i])
            raise dropped(self._place(index, wrong), numbers[wrong], count, f"inputs.{index}")
        return tuple(zip(positions[::2], positions[1::2], strict=True))

    def _place(self, index: int, number: int) -> str:
        """Name the place of a position in the request; `number` counts those of an input."""
        edge, end = divmod(number, 2)
        return f"edges.{edge}.{end}" if self.flat else f"edges.{index}.{edge}.{end}"
