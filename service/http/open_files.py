"""When the process may open no more files: each connection is one, and idle ones make room for others."""

import errno
import logging
import os
import resource
import time
from collections.abc import Iterable
from typing import Protocol

log = logging.getLogger(__name__)

# So long a connection has said nothing before it is closed for others' sake, in seconds.
_IDLE_S = 1.0
# Of the idle ones so many are closed at a time: some more than one, since others come.
_SHARE = 8
_TOLD_EVERY_S = 60.0


class Connection(Protocol):
    """What is known of a connection here."""

    @property
    def idle_since(self) -> float | None:
        """When it became idle, in `time.monotonic` seconds; None while it is at work."""

    def close_idle(self) -> None:
        """Close it."""


def is_shortage(error: BaseException) -> bool:
    """Tell whether an error says that no file can be opened, here or in the whole system."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


class OpenFiles:
    """Looks, several times a second, whether there is a file left, and makes room where there is none.

    Meanwhile the system takes connections and the event loop closes them at once, without a word.
    """

    def __init__(self) -> None:
        self._told: float | None = None

    def look(self, connections: Iterable[Connection]) -> None:
        """Close the connections that have been idle for longest, if no file can be opened."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            if is_shortage(error):
                self._make_room(list(connections))

    def _make_room(self, connections: list[Connection]) -> None:
        now = time.monotonic()
        idle = sorted((since, i) for i, c in enumerate(connections) if (since := c.idle_since) is not None)
        ready = [i for since, i in idle if now - since >= _IDLE_S]
        chosen = ready[: len(ready) // _SHARE + 1]
        for i in chosen:
            connections[i].close_idle()
        if self._told is None or now - self._told > _TOLD_EVERY_S:
            self._told = now
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            log.warning(
                "no file is left to open for another connection: %d connections are open, %d of them idle, "
                "and the limit of open files is %d; raise it (ulimit -n, LimitNOFILE=, --ulimit nofile=), or "
                "run more replicas. The connections that were idle for longest are closed.",
                len(connections),
                len(idle),
                limit,
            )
