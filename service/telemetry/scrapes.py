"""Scrapes that come close together share one exposition, so that they cannot take the time of requests."""

import asyncio
import time
from collections.abc import Callable

_SHARED_S = 1.0
PAUSE_S = 0.1
"""The least time between two expositions, in seconds, however they are asked for."""


class Scrapes:
    """Answers scrapes on an event loop; the exposition is made in another thread."""

    def __init__(self) -> None:
        self._exposition = b""
        self._begun = -float("inf")
        """When the making of the last exposition began."""
        self._making: asyncio.Task[None] | None = None

    async def answer(self, make: Callable[[], bytes], *, fresh: bool = False) -> bytes:
        """Return an exposition at most a second old; if it must be `fresh`, not older than this call."""
        oldest = time.monotonic() - (0.0 if fresh else _SHARED_S)
        while self._begun < oldest:
            if self._making is None:
                self._making = asyncio.create_task(self._make(make))
            await asyncio.shield(self._making)  # others wait for it, too
        return self._exposition

    async def _make(self, make: Callable[[], bytes]) -> None:
        try:
            await asyncio.sleep(self._begun + PAUSE_S - time.monotonic())
            begun = time.monotonic()
            self._exposition = await asyncio.to_thread(make)
            self._begun = begun
        finally:
            self._making = None
