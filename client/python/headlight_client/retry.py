"""Decides whether and when to retry a request. Nothing here sleeps: the callers do.

Both routes only compute and store nothing, so retrying is safe. Each failed attempt is logged as
`headlight_client`: a 429 at INFO, everything else at WARNING.
"""

import logging
import random
import time
from dataclasses import dataclass, field

import httpx

from headlight_client.errors import HeadlightError

log = logging.getLogger("headlight_client")

OVERLOADED = 429
RETRIED = frozenset({OVERLOADED, 503})
_FIRST_S = 0.1
_LONGEST_S = 5.0
# What is added by chance to a time that the service named, which has spread its clients already.
_SPREAD = 0.1
_SPREAD_S = 0.25


@dataclass(frozen=True)
class Retries:
    """The seconds since the first attempt in which retries may start, and their maximum number.

    Those at a time that the service named do not count, except that there are none at all if `count` is 0.
    """

    count: int
    seconds: float

    def __post_init__(self) -> None:
        if self.count < 0 or self.seconds < 0:
            raise ValueError("retries and retry_for must not be negative; retries=0 sends each request once")


@dataclass
class Progress:
    """When the latest request of a call was answered, by `time.monotonic`."""

    at: float = 0.0

    def made(self) -> None:
        """Record a response."""
        self.at = time.monotonic()


@dataclass
class Attempts:
    """The attempts at one request to `url`.

    If a call has several requests, attempts before the latest response to another do not count: a busy
    service is retried for as long as it keeps answering.
    """

    policy: Retries
    url: str
    progress: Progress = field(default_factory=Progress)
    made: int = 1
    counted: int = 0
    start: float = field(default_factory=time.monotonic)

    def wait_after(self, error: HeadlightError | httpx.TransportError) -> float:
        """Count a failure; returns the seconds until the next attempt, or raises the error."""
        if self.progress.at > self.start:
            self.start, self.counted = self.progress.at, 0
        elapsed = time.monotonic() - self.start
        wait = decide(error, self.policy, self.counted, elapsed, random.random())  # noqa: S311 (spreads load)
        if wait is None:
            raise error
        self.made += 1
        self.counted += _named(error) is None
        self._log(error, wait)
        return wait

    def _log(self, error: HeadlightError | httpx.TransportError, wait: float) -> None:
        busy = isinstance(error, HeadlightError) and error.status == OVERLOADED
        log.log(
            logging.INFO if busy else logging.WARNING,
            "%s: attempt %d in %.1f s, after: %s",
            self.url,
            self.made,
            wait,
            str(error) or type(error).__name__,
        )


def decide(
    error: HeadlightError | httpx.TransportError,
    policy: Retries,
    counted: int,
    elapsed: float,
    chance: float,
) -> float | None:
    """Return the seconds to wait before the next attempt, or None to give up.

    The first attempt was `elapsed` seconds ago, and `counted` retries were at times of our own choice.
    `chance`, in [0, 1), adds jitter, so that clients that failed together do not retry together. The wait is
    the time that the service named or little more, else 0.1 s, doubled each time up to 5 s, half of it
    random. If it would end after `policy.seconds`, give up: retrying earlier only adds load.
    """
    if policy.count == 0 or not _is_temporary(error):
        return None
    remaining = policy.seconds - elapsed
    named = _named(error)
    if named is not None:
        if named > remaining:
            return None
        return min(remaining, named + chance * min(_SPREAD_S, _SPREAD * named))
    if counted >= policy.count:
        return None
    wait = min(_LONGEST_S, _FIRST_S * 2**counted) * (1 + chance) / 2
    return wait if wait <= remaining else None


def _named(error: HeadlightError | httpx.TransportError) -> float | None:
    """Return the seconds after which the service says to come back.

    None also for 0 seconds: to be told to come back at once must not lead to retries without a pause or end.
    """
    return (error.retry_after or None) if isinstance(error, HeadlightError) else None


def _is_temporary(error: HeadlightError | httpx.TransportError) -> bool:
    """Whether a retry may succeed: after overload, a restart or a broken connection.

    Not after a timeout: the service may still be working on the first attempt.
    """
    if isinstance(error, HeadlightError):
        return error.status in RETRIED
    return isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError)
