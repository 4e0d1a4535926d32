"""A response that is too large, and how large it would be if less of it were asked for."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from service.replies.answer_size import bound_arrays, bound_columns, bound_head
from service.replies.style import AnswerStyle, Format
from service.tasks.results import Expected

Arrays = Mapping[str, tuple[int, ...]]
"""The shapes of an item's arrays, by name."""
Change = Callable[[Arrays], Arrays]
Total = Callable[[AnswerStyle, Sequence[int]], int]
"""Bounds the bytes of a response, given the bounds of its items in order."""
Ways = Callable[["TooLarge"], list[str]]
"""Lists ways out: only those that would make the response small enough."""


def of_all(style: AnswerStyle, sizes: Iterable[int]) -> int:
    """Bound the bytes of a response with all items."""
    return bound_head(style) + sum(sizes)


class TooLarge:
    """A response whose `expected` items, in this style, could have more bytes than `limit`."""

    def __init__(
        self, style: AnswerStyle, expected: Iterable[Expected], limit: int, total: Total = of_all
    ) -> None:
        self.style = style
        self.items = list(expected)
        self._limit = limit
        self._total = total
        self._columns: dict[Format, list[int]] = {}

    def fits(self, change: Change = dict, saved: int = 0, **style: Any) -> bool:
        """Whether it would fit with other arrays, with `saved` fewer bytes per item, or in another style."""
        changed = replace(self.style, **style)
        return self._total(changed, [size - saved for size in self._sizes(change, changed)]) <= self._limit

    def most(self, change: Callable[[int], Change], below: int) -> int:
        """Find the largest number from 1 to `below` - 1 with which the response would fit; 0 if none.

        `change` turns a number into a change of an item's arrays; a larger number never makes them smaller.
        """
        return largest(lambda number: self.fits(change(number)), below)

    def inputs(self) -> int:
        """Find how many of its items, but not all, would fit, whichever they are; 0 if not even one would."""
        sizes = sorted(self._sizes(dict, self.style), reverse=True)
        return largest(lambda count: self._total(self.style, sizes[:count]) <= self._limit, len(sizes))

    def length(self, name: str, axis: int) -> int:
        """Return the greatest length of an axis among all arrays with this name; 0 if there are none."""
        return max((item.arrays[name][axis] for item in self.items if name in item.arrays), default=0)

    def _sizes(self, change: Change, style: AnswerStyle) -> list[int]:
        if style.format not in self._columns:
            self._columns[style.format] = [bound_columns(style, item) for item in self.items]
        known: dict[tuple[Any, ...], int] = {}  # texts of one length have the same arrays
        sizes = []
        for columns, item in zip(self._columns[style.format], self.items, strict=True):
            key = (*item.arrays.items(), *item.names.items())
            if key not in known:
                known[key] = bound_arrays(style, change(item.arrays), item.names)
            sizes.append(columns + known[key])
        return sizes


def any_of(ways: Sequence[str]) -> str:
    """Join ways out, of which there is at least one, as alternatives."""
    return f"{', '.join(ways[:-1])}, or {ways[-1]}" if len(ways) > 1 else ways[0]


def largest(fits: Callable[[int], bool], below: int) -> int:
    """Find the largest number from 1 to `below` - 1 that fits, 0 if none; all smaller ones must fit, too."""
    low, high = 0, below  # `low` fits, `high` does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def cut(axes: Mapping[str, int]) -> Callable[[int], Change]:
    """Return a function from a count to the change that cuts arrays to it, each along its axis in `axes`."""

    def cut_to(count: int) -> Change:
        def change(arrays: Arrays) -> Arrays:
            return {
                name: shape if (axis := axes.get(name)) is None else _cut(shape, axis, count)
                for name, shape in arrays.items()
            }

        return change

    return cut_to


def _cut(shape: tuple[int, ...], axis: int, count: int) -> tuple[int, ...]:
    return (*shape[:axis], min(count, shape[axis]), *shape[axis + 1 :])
