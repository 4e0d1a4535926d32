"""prometheus_client's metrics, with their values where all processes of a service see them.

The library's own way to share them, files that each scrape reads from the beginning, takes over a hundred
times as long (`benchmarks/stress/scrapes.py`), and a process is killed when their file system is full.
"""

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal

import orjson
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from service.sharing.metric_values import Part

Over = Literal["max", "min", "sum", "mostrecent"]
"""How the values of several processes become one."""

write_number: Callable[[float], str] = floatToGoString
"""Writes a number as the text format does."""


class Value:
    """A number of a series, with the methods that the library's metrics call."""

    __slots__ = ("_at", "_lock", "_numbers")

    def __init__(self, lock: threading.Lock, numbers: "memoryview[float]", at: int) -> None:
        self._lock, self._numbers, self._at = lock, numbers, at

    def inc(self, amount: float) -> None:
        """Add an amount."""
        with self._lock:
            self._numbers[self._at] += amount

    def set(self, value: float, timestamp: float | None = None) -> None:
        """Set the number, and, with `mostrecent`, the next one to the time."""
        with self._lock:
            self._numbers[self._at] = value
            if timestamp is not None:
                self._numbers[self._at + 1] = timestamp

    def get(self) -> float:
        """Return the number."""
        return self._numbers[self._at]

    def get_exemplar(self) -> None:
        """Return None: there are no exemplars."""


class SharedMetric(MetricWrapperBase):
    """What the metrics below have in common. Those with labels are also the parents of their series."""

    over: Over = "sum"

    def __init__(self, *args: Any, part: Part, **kwargs: Any) -> None:
        self._part = part
        super().__init__(*args, **kwargs)
        self._kwargs["part"] = part  # the library creates the series of labels with these

    @property
    def full_name(self) -> str:
        """The metric's name, of counters without `_total`."""
        return self._name

    @property
    def label_names(self) -> Sequence[str]:
        """The names of its labels."""
        return self._labelnames

    @abstractmethod
    def offsets(self) -> Sequence[int]:
        """Return the index of the sample that each stored number belongs to; a time belongs to none."""

    @abstractmethod
    def samples(self, labels: dict[str, str]) -> list[Sample]:
        """Return the samples of a series, with zeros."""

    def _values(self, count: int) -> list[Value]:
        name = orjson.dumps([self._name, *self._labelvalues])
        numbers, first = self._part.numbers(name, count)
        return [Value(self._part.lock, numbers, first + i) for i in range(count)]


class SharedCounter(SharedMetric, Counter):
    """A counter; a series has one number."""

    def offsets(self) -> Sequence[int]:
        """Return 0: a series has one sample."""
        return (0,)

    def samples(self, labels: dict[str, str]) -> list[Sample]:
        """Return the only sample."""
        return [Sample(f"{self._name}_total", labels, 0.0)]

    def _metric_init(self) -> None:
        (self._value,) = self._values(1)


class SharedGauge(SharedMetric, Gauge):
    """A gauge; a series has its value and, for `mostrecent`, the time when it was set."""

    def __init__(self, *args: Any, over: Over = "max", **kwargs: Any) -> None:
        self.over = over
        super().__init__(*args, multiprocess_mode=over, **kwargs)
        self._kwargs["over"] = self._kwargs.pop("multiprocess_mode")

    def offsets(self) -> Sequence[int]:
        """Return 0: a series has one sample."""
        return (0,)

    def samples(self, labels: dict[str, str]) -> list[Sample]:
        """Return the only sample."""
        return [Sample(self._name, labels, 0.0)]

    def _metric_init(self) -> None:
        self._value, _ = self._values(2)


class SharedHistogram(SharedMetric, Histogram):
    """A histogram; a series has how many observations fell into each bucket, and their sum."""

    def offsets(self) -> Sequence[int]:
        """Return those of the buckets and of the sum; the count, which is between them, is not stored."""
        buckets = len(self._upper_bounds)
        return (*range(buckets), buckets + 1)

    def samples(self, labels: dict[str, str]) -> list[Sample]:
        """Return the buckets, the count of all and the sum."""
        buckets = [
            Sample(f"{self._name}_bucket", {**labels, "le": write_number(bound)}, 0.0)
            for bound in self._upper_bounds
        ]
        return [*buckets, *(Sample(f"{self._name}_{part}", labels, 0.0) for part in ("count", "sum"))]

    def _metric_init(self) -> None:
        *self._buckets, self._sum = self._values(len(self._upper_bounds) + 1)
