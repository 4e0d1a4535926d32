"""Gives memory back to the system when there is nothing to run, and when it runs short."""

import gc
import logging
import sys
import time
from collections.abc import Callable, Collection
from concurrent.futures import Executor

from service.engine.engine import Engine
from service.process import give_back_memory, resident_bytes

log = logging.getLogger(__name__)

REST_S = 3.0
"""After so long without a batch or a request nothing is worth keeping for the next one."""
# Less of it is not worth that the next batch has to fetch it again.
_MUCH_BYTES = 16 * 2**20
# Under continuous load, freed memory is trimmed once this share of the process's memory is in use, at most
# this often, in seconds. Trimming takes ten milliseconds for each hundred megabytes, in a worker thread.
_SHORT = 0.65
_AGAIN_S = 1.0


class Resting:
    """Keeps a process that has nothing to run as small as it was when it began.

    What libraries keep of freed memory is fast to have again, and as much as the worst coincidence of large
    answers took so far: without this, it would only ever grow.
    """

    def __init__(
        self,
        engines: Collection[Engine],
        executor: Executor,
        ended: Callable[[], float] = lambda: 0.0,
        *,
        given: int = sys.maxsize,
    ) -> None:
        """Look after what runs on engines; `ended` says when the last request did, run or refused.

        `given` is how many bytes the process may have.
        """
        self._engines = engines
        self._executor = executor
        self._ended = ended
        self._small_bytes = resident_bytes()
        self._rested = 0.0
        self._short_bytes = _SHORT * given
        self._trimmed = 0.0

    def look(self) -> None:
        """Give back, off the event loop, what has grown, once in each rest; called several times a second."""
        if resident_bytes() > self._short_bytes and time.perf_counter() - self._trimmed > _AGAIN_S:
            self._trimmed = time.perf_counter()
            self._executor.submit(self._trim)
        since = self._idle_since()
        if since is None or since == self._rested or time.perf_counter() - since < REST_S:
            return
        self._rested = since
        if resident_bytes() - self._small_bytes > _MUCH_BYTES:
            self._executor.submit(self._give_back, since)

    @staticmethod
    def _trim() -> None:
        gc.collect()  # errors and what they hold, in cycles that are looked for too seldom
        give_back_memory()

    def _idle_since(self) -> float | None:
        """Say when the last batch, text and request of all ended; None while any batch runs."""
        last = self._ended()
        for engine in self._engines:
            if engine.idle_since is None:
                return None
            last = max(last, engine.idle_since)
        return last

    def _give_back(self, since: float) -> None:
        try:
            for engine in self._engines:
                engine.give_back()
            self._trim()
        except Exception:
            log.exception("memory could not be given back")
        if self._idle_since() == since:  # else something large may have begun
            self._small_bytes = resident_bytes()
