"""Handles running out of file descriptors: each connection takes one, and idle ones are closed for others."""

import errno
import logging
import os
import resource
import time
from collections.abc import Iterable
from typing import Protocol

log = logging.getLogger(__name__)

_HOW_TO_RAISE = "ulimit -n, LimitNOFILE=, --ulimit nofile="
# How long a connection must have been idle to be closed, in seconds.
_IDLE_S = 1.0
# One in this many idle connections is closed at a time, since more clients will connect.
_SHARE = 8
_WARN_EVERY_S = 60.0
# Files open in a ready service of one process, and in one worker of several, including those that loading
# opens briefly; further files for each worker (both ends of its channel) and for each model; and the fewest
# connections with which a service is of use.
_ALONE, _WORKER, _PER_WORKER, _PER_MODEL, _CONNECTIONS = 24, 52, 2, 2, 32


class Connection(Protocol):
    """The part of a connection that is used here."""

    @property
    def idle_since(self) -> float | None:
        """When it became idle, in `time.monotonic` seconds; None while it is busy."""

    def close(self) -> None:
        """Close it."""


def is_shortage(error: BaseException) -> bool:
    """Whether an error means that the process or the system has no file descriptors left."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


class FewFilesError(Exception):
    """The limit of open files is too low to serve; the message says which limit is needed."""


def check_limit(processes: int, models: int) -> None:
    """Raise FewFilesError if a process may not open the files that it needs to serve its models."""
    base = _ALONE if processes == 1 else _WORKER + _PER_WORKER * processes
    needed = base + _PER_MODEL * models + _CONNECTIONS
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise FewFilesError(
            f"the limit of open files is {limit}, but {processes} process(es) with {models} model(s) need at "
            f"least {needed} each, {_CONNECTIONS} of them for connections: raise the limit ({_HOW_TO_RAISE})."
        )


class OpenFiles:
    """Checks, several times a second, whether a file descriptor is left, and frees some if not.

    Otherwise the system would accept connections that the event loop closes at once, without a response.
    """

    def __init__(self) -> None:
        self._warned_at: float | None = None

    def check(self, connections: Iterable[Connection]) -> None:
        """Close the longest-idle connections if no file can be opened."""
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
            connections[i].close()
        if self._warned_at is None or now - self._warned_at > _WARN_EVERY_S:
            self._warned_at = now
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            log.warning(
                "too many open files to accept another connection: %d connections are open, %d of them idle, "
                "and the limit of open files is %d; raise it (%s), or run more replicas. The longest-idle "
                "connections are being closed.",
                len(connections),
                len(idle),
                limit,
                _HOW_TO_RAISE,
            )
