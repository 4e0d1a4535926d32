"""The values of all processes as text: series are parsed once, and only changed numbers are written anew."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import orjson
from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

from service.sharing.metric_values import read_series
from service.telemetry.series import SharedHistogram, SharedMetric, write_number

_Numbers = npt.NDArray[np.float64]
_Indices = npt.NDArray[np.intp]
_OVERS = ("sum", "max", "min", "mostrecent")
_BEFORE_ANY = {"max": -np.inf, "min": np.inf}
_ZERO = "0.0\n"


class Exposition:
    """Writes metrics, each series combined over all processes.

    It keeps the series and lines of the last call, since processes only ever add series. Calls must not
    overlap.
    """

    def __init__(self, metrics: Sequence[SharedMetric], parts: Sequence[memoryview]) -> None:
        self._families = {metric.full_name: _Family(metric) for metric in metrics}
        self._series: dict[bytes, tuple[_Family, _Series]] = {}
        self._parts = [_Reader(part) for part in parts]
        self._keys: frozenset[str] | None = None
        self._lines: list[str] = []
        self._prefixes: list[str] = []
        self._before_any = self._last = np.empty(0)

    def write(self, keys: frozenset[str]) -> str:
        """Write the Prometheus text format.

        Series of API keys other than `keys` are left out: those keys have been revoked.
        """
        added = [part.find_added(self._find) for part in self._parts]
        if any(added) or keys != self._keys:
            self._keys = keys
            self._arrange(keys)
        rows = self._combine()
        changed = np.flatnonzero(rows != self._last)
        for row, value in zip(changed.tolist(), rows[changed].tolist(), strict=True):
            self._lines[row] = f"{self._prefixes[row]}{write_number(value)}\n"
        self._last = rows
        return "".join(self._lines)

    def _find(self, name: bytes) -> "tuple[_Family, _Series]":
        if name not in self._series:
            metric, *labels = orjson.loads(name)
            family = self._families[metric]
            self._series[name] = family, family.add(len(self._series), labels)
        return self._series[name]

    def _arrange(self, keys: frozenset[str]) -> None:
        """Give each sample a row; those of a metric follow each other."""
        self._prefixes = []
        before_any: list[float] = []
        first_rows = np.full(len(self._series), -1)
        for family in self._families.values():
            begin = len(self._prefixes)
            for series in family.shown(keys):
                first_rows[series.number] = len(self._prefixes)
                self._prefixes += series.prefixes
            family.rows = slice(begin, len(self._prefixes))
            if family.rows.stop > begin:
                self._prefixes[begin] = family.header + self._prefixes[begin]
                before_any += [_BEFORE_ANY.get(family.over, 0.0)] * (family.rows.stop - begin)
        for part in self._parts:
            part.arrange(first_rows)
        self._before_any = np.array(before_any)
        self._last = np.full(len(before_any), np.nan)
        self._lines = [""] * len(before_any)

    def _combine(self) -> _Numbers:
        rows = self._before_any.copy()
        times = np.zeros(len(rows))
        for part in self._parts:
            part.combine(rows, times)
        for family in self._families.values():
            if family.buckets:
                samples = rows[family.rows].reshape(-1, family.buckets + 2)  # a view
                np.cumsum(samples[:, :-2], axis=1, out=samples[:, :-2])
                samples[:, -2] = samples[:, -3]
        return rows


class _Series:
    def __init__(self, number: int, labels: dict[str, str]) -> None:
        self.number = number
        self.labels = labels
        self.prefixes: list[str] = []
        """Its lines without the values."""


class _Family(Collector):
    """The series of a metric. As a collector it has those that have no lines yet, with zeros."""

    def __init__(self, metric: SharedMetric) -> None:
        self._metric = metric
        self._series: list[_Series] = []
        self._new: list[_Series] = []
        self.over = metric.over
        self.offsets = metric.offsets()
        self.buckets = len(self.offsets) - 1 if isinstance(metric, SharedHistogram) else 0
        self.header = ""
        self.rows = slice(0)

    def add(self, number: int, labels: Sequence[str]) -> _Series:
        """Add a series, by its number among those of all metrics."""
        series = _Series(number, dict(zip(self._metric.label_names, labels, strict=True)))
        self._new.append(series)
        return series

    def shown(self, keys: frozenset[str]) -> Iterator[_Series]:
        """Return the series, with lines, but not those of other keys."""
        if self._new:
            self._write_new()
        return (s for s in self._series if "key" not in s.labels or s.labels["key"] in keys)

    def _write_new(self) -> None:
        # Not splitlines, which also splits at characters that may be in a label's value.
        about, kind, *lines = [f"{line}\n" for line in generate_latest(self).decode().split("\n")[:-1]]
        self.header = about + kind
        each = len(lines) // len(self._new)
        for i, series in enumerate(self._new):
            series.prefixes = [line.removesuffix(_ZERO) for line in lines[i * each : (i + 1) * each]]
        self._series += self._new
        self._new = []

    def collect(self) -> Iterator[Metric]:
        """Return the series that have no lines yet."""
        (metric,) = self._metric.describe()
        metric.samples = [sample for series in self._new for sample in self._metric.samples(series.labels)]
        yield metric


class _Reader:
    """Reads the part of one process."""

    def __init__(self, part: memoryview) -> None:
        self._part = part
        self._numbers: _Numbers = np.frombuffer(part, np.float64)
        self._read_bytes = 0
        self._found: list[tuple[int, int, int, int]] = []
        """Of each number: the index of how it is combined (_OVERS), its series, its sample, and its place."""
        self._arranged: list[tuple[_Indices, _Indices]] = []
        """Rows and where their numbers are, for each way to combine them."""

    def find_added(self, find: Callable[[bytes], tuple[_Family, _Series]]) -> bool:
        """Look for series added since the last call; returns whether there are any."""
        added, self._read_bytes = read_series(self._part, self._read_bytes)
        for name, first in added:
            family, series = find(name)
            over = _OVERS.index(family.over)
            self._found += [
                (over, series.number, offset, first + i) for i, offset in enumerate(family.offsets)
            ]
        return bool(added)

    def arrange(self, first_rows: _Indices) -> None:
        """Note the row of each number, given the first one of each series, -1 for those left out."""
        found = np.array(self._found, np.intp).reshape(-1, 4)
        found = found[first_rows[found[:, 1]] >= 0]
        rows = first_rows[found[:, 1]] + found[:, 2]
        self._arranged = [
            (rows[chosen], found[chosen, 3])
            for chosen in (found[:, 0] == over for over in range(len(_OVERS)))
        ]

    def combine(self, rows: _Numbers, times: _Numbers) -> None:
        """Combine its numbers with those of the parts before; `times` are those of the most recent."""
        (sums, at), (maxima, at_max), (minima, at_min), (recent, at_recent) = self._arranged
        rows[sums] += self._numbers[at]
        rows[maxima] = np.maximum(rows[maxima], self._numbers[at_max])
        rows[minima] = np.minimum(rows[minima], self._numbers[at_min])
        newer = self._numbers[at_recent + 1] > times[recent]
        recent, at_recent = recent[newer], at_recent[newer]
        rows[recent], times[recent] = self._numbers[at_recent], self._numbers[at_recent + 1]
