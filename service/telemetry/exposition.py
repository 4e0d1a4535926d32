"""Writes the values of all processes as text; only series whose numbers have changed are written anew."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import orjson

from service.sharing.metric_values import Part, read_series
from service.telemetry.series import Metric, Over

_COMBINE: Mapping[Over, Callable[[Iterable[float]], float]] = {"sum": sum, "max": max, "min": min, "own": max}


class Exposition:
    """Writes metrics, each series combined over all processes. Calls must not overlap."""

    def __init__(self, metrics: Sequence[Metric], part: Part) -> None:
        self._metrics = {metric.name: metric for metric in metrics}
        self._series: dict[str, dict[bytes, _Shown]] = {metric.name: {} for metric in metrics}
        self._part = part
        self._read_bytes = [0] * len(part.everyones)
        """How much of each process's part has been read: processes only ever add series."""

    def write(self, keys: frozenset[str]) -> str:
        """Write the Prometheus text format.

        Series of API keys other than `keys` are left out: those keys have been revoked.
        """
        for number, part in enumerate(self._part.everyones):
            added, self._read_bytes[number] = read_series(part, self._read_bytes[number])
            for name, first in added:
                self._add(name, part, first)
        pieces = []
        for metric in self._metrics.values():
            shown = [series.text() for series in self._series[metric.name].values() if series.of_one(keys)]
            pieces += [metric.header, *shown] if shown else []
        return "".join(pieces)

    def _add(self, name: bytes, part: memoryview, first: int) -> None:
        """Add the numbers that a process has for a series."""
        metric_name, *labels = orjson.loads(name)
        metric, found = self._metrics[metric_name], self._series[metric_name]
        if metric.over == "own" and part is not self._part.own:
            return
        if name not in found:
            found[name] = _Shown(metric, labels)
        found[name].parts.append(metric.numbers(part, first))


class _Shown:
    """A series, and its lines as last written."""

    def __init__(self, metric: Metric, labels: Sequence[str]) -> None:
        self.parts: list[memoryview[float]] = []
        """Its numbers in each process that has some."""
        self._metric, self._labels = metric, labels
        self._combine = _COMBINE[metric.over]
        self._numbers: list[float] = []
        self._text = ""

    def of_one(self, keys: frozenset[str]) -> bool:
        """Whether the series is about one of these API keys, or about no key."""
        return "key" not in self._metric.label_names or self._labels[0] in keys

    def text(self) -> str:
        numbers = [self._combine(each) for each in zip(*self.parts, strict=True)]
        if numbers != self._numbers:
            self._numbers = numbers
            self._text = self._metric.write(self._labels, numbers)
        return self._text
