"""Metrics whose values all processes of the service see, in the text format of Prometheus.

prometheus_client's own way to share them, files that each scrape reads from the beginning, takes a hundred
times as long (`benchmarks/stress/scrapes.py`), and a process is killed when their file system is full.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Literal

import orjson
from prometheus_client.utils import floatToGoString

from service.sharing.metric_values import Part

Kind = Literal["counter", "gauge", "histogram"]
Over = Literal["sum", "max", "min", "own"]
"""How the values of several processes become one; "own" means that of the process answering the scrape."""

_number: Callable[[float], str] = floatToGoString  # the library has no types
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Series:
    """The numbers of one series, in the part of this process."""

    __slots__ = ("bounds", "lock", "numbers")

    def __init__(
        self, numbers: "memoryview[float]", lock: threading.Lock, bounds: Sequence[float] = ()
    ) -> None:
        self.numbers, self.lock, self.bounds = numbers, lock, bounds

    def inc(self, amount: float = 1.0) -> None:
        """Add to a counter."""
        with self.lock:
            self.numbers[0] += amount

    @property
    def value(self) -> float:
        """The number of a counter or a gauge in this process."""
        return self.numbers[0]

    def set(self, value: float) -> None:
        """Set a gauge."""
        self.numbers[0] = value


def record(*amounts: tuple[Series, float]) -> None:
    """Add to several counters, and an observation to each histogram; all belong to one process.

    All numbers of one request or batch are added in one call: a call for each number takes as long again.
    """
    with amounts[0][0].lock:
        for series, amount in amounts:
            numbers = series.numbers
            if series.bounds:
                numbers[bisect_left(series.bounds, amount)] += 1
                numbers[-1] += amount
            else:
                numbers[0] += amount


class Metric:
    """A counter, a gauge, or a histogram with the upper `bounds` of its buckets except the infinite one."""

    def __init__(
        self,
        part: Part,
        kind: Kind,
        name: str,
        about: str,
        label_names: Sequence[str],
        *,
        over: Over = "sum",
        bounds: Sequence[float] = (),
    ) -> None:
        self.name, self.over, self.label_names = name, over, label_names
        self.header = f"# HELP {name} {about}\n# TYPE {name} {kind}\n"
        self._part, self._bounds = part, bounds
        self._count = len(bounds) + 2 if bounds else 1
        self.labels = cache(self._series)
        """Finds the series with these values of the labels, or adds it with zeros."""

    def _series(self, *values: str) -> Series:
        numbers, first = self._part.numbers(orjson.dumps([self.name, *values]), self._count)
        return Series(numbers[first : first + self._count], self._part.lock, self._bounds)

    def numbers(self, part: memoryview, first: int) -> "memoryview[float]":
        """Return the numbers of a series in the part of any process."""
        return part.cast("d")[first : first + self._count]

    def write(self, values: Sequence[str], numbers: Sequence[float]) -> str:
        """Write the samples of a series; for a histogram, these are its buckets, its count and its sum."""
        labels = dict(zip(self.label_names, values, strict=True))
        if not self._bounds:
            return _line(self.name, labels, numbers[0])
        *counts, total = numbers
        below = list(accumulate(counts))
        lines = [
            _line(f"{self.name}_bucket", {**labels, "le": _number(bound)}, count)
            for bound, count in zip((*self._bounds, float("inf")), below, strict=True)
        ]
        lines += [_line(f"{self.name}_count", labels, below[-1]), _line(f"{self.name}_sum", labels, total)]
        return "".join(lines)


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    listed = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in sorted(labels.items()))
    return f"{name}{{{listed}}} {_number(value)}\n" if listed else f"{name} {_number(value)}\n"
