"""The garbage collections of this process, for a metric that adds up those of all processes."""

import gc

from service.telemetry.series import Metric


class GarbageCollections:
    """Counts collections by generation, since it was created.

    The interpreter counts them itself, and a forked process starts from its parent's numbers, so only what is
    added later counts here. A callback of the collector could run while a metric's lock is held.
    """

    def __init__(self, metric: Metric) -> None:
        self._counted = _collections()
        self._series = [metric.labels(str(generation)) for generation in range(len(self._counted))]

    def update(self) -> None:
        """Add the collections since the last call; calls must not overlap."""
        collections = _collections()
        for series, now, before in zip(self._series, collections, self._counted, strict=True):
            if now > before:
                series.inc(now - before)
        self._counted = collections


def _collections() -> list[int]:
    return [generation["collections"] for generation in gc.get_stats()]
