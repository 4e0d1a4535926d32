"""Returns freed memory to the operating system when the process is idle or memory runs short."""

import gc
import logging
import sys
import time
from collections.abc import Callable, Collection
from concurrent.futures import Executor

from model.memory import release_file_pages, trim_memory
from service.engine.engine import Engine
from service.system.process import own_bytes, resident_bytes

log = logging.getLogger(__name__)

IDLE_S = 3.0
"""Seconds without a batch or a request after which the process counts as idle."""
# Smaller growth is not trimmed: the next batch would only have to allocate it again.
_MIN_GROWTH_BYTES = 16 * 2**20
# Under continuous load, memory is trimmed once the resident size exceeds this share of the process's limit,
# at most once per interval. Trimming takes ten milliseconds per hundred megabytes, in a worker thread.
_HIGH_SHARE = 0.65
_INTERVAL_S = 1.0
# The memory of the last responses may be freed only a moment after the first trim of an idle period.
_IDLE_TRIMS = 3


class MemoryTrimmer:
    """Returns an idle process to the resident size it had at startup.

    Libraries keep freed memory because reusing it is fast, but they keep as much as the worst coincidence of
    large responses ever needed: without trimming, the resident size would only grow.
    """

    def __init__(
        self,
        engines: Collection[Engine],
        executor: Executor,
        ended: Callable[[], float] = lambda: 0.0,
        *,
        answering: Callable[[], bool] = lambda: False,
        given: int = sys.maxsize,
        elsewhere: Callable[[], int] = lambda: 0,
    ) -> None:
        """Watch the engines; `ended` returns when the last request ended, whether run or refused.

        `answering` says whether requests of any kind are being answered.
        `given` is the service's memory limit in bytes; `elsewhere` returns how much its other processes use.
        """
        self._answering = answering
        self._elsewhere = elsewhere
        self._engines = engines
        self._executor = executor
        self._ended = ended
        self._baseline_bytes = resident_bytes()
        self._files_bytes = self._baseline_bytes - own_bytes()
        self._idle_period: float | None = None
        self._idle_trims = 0
        self._high_bytes = _HIGH_SHARE * given
        self._trimmed_at = 0.0

    def check(self) -> None:
        """Trim, off the event loop, when idle or when memory is short; called frequently."""
        resident = resident_bytes()
        used = own_bytes() + self._files_bytes + self._elsewhere()
        if used > self._high_bytes and time.perf_counter() - self._trimmed_at > _INTERVAL_S:
            self._trimmed_at = time.perf_counter()
            self._executor.submit(self._trim)
        # The first baseline may include memory used by the start and released a moment later.
        self._baseline_bytes = min(self._baseline_bytes, resident)
        since = self._idle_since()
        grown = resident - self._baseline_bytes > _MIN_GROWTH_BYTES
        # Since the last trim, requests that compute nothing may have come and gone.
        again = self._idle_trims == _IDLE_TRIMS and grown and not self._answering()
        if again or since != self._idle_period:
            self._idle_period, self._idle_trims = since, 0
        if since is None or self._idle_trims == _IDLE_TRIMS:
            return
        if time.perf_counter() - since < IDLE_S + self._idle_trims * _INTERVAL_S:
            return
        self._idle_trims += 1
        if grown:
            self._executor.submit(self._trim_idle, since, last=self._idle_trims == _IDLE_TRIMS)

    @staticmethod
    def _trim() -> None:
        gc.collect()  # errors and what they reference form cycles, which are rarely collected otherwise
        trim_memory()

    def _idle_since(self) -> float | None:
        """Return when the last batch, tokenization or request ended; None while a batch is running."""
        last = self._ended()
        for engine in self._engines:
            if engine.idle_since is None:
                return None
            last = max(last, engine.idle_since)
        return last

    def _trim_idle(self, since: float, *, last: bool) -> None:
        try:
            for engine in self._engines:
                engine.trim_memory()
            release_file_pages(only_weights=True)
            self._trim()
        except Exception:
            log.exception("could not trim memory")
        if last and self._idle_since() == since:  # otherwise a large request may have started
            self._baseline_bytes = resident_bytes()
