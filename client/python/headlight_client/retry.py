"""Whether a request is sent again, and when. Nothing here waits: the callers do.

Both routes compute and store nothing, so that a request may be sent twice. Each attempt that failed is logged
as `headlight_client`: a refusal because of load as INFO, everything else as WARNING.
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
_SPREAD = 0.25
_SPREAD_S = 1.0


@dataclass(frozen=True)
class Retries:
    """How often a request is sent again at most, and within how many seconds of its first start."""

    count: int
    seconds: float

    def __post_init__(self) -> None:
        if self.count < 0 or self.seconds < 0:
            raise ValueError("retries and retry_for must not be negative; retries=0 sends each request once")


@dataclass
class Progress:
    """When the last of several requests of one call was answered, by `time.monotonic`."""

    at: float = 0.0

    def made(self) -> None:
        """Take note of an answer."""
        self.at = time.monotonic()


@dataclass
class Attempts:
    """The attempts at one request to `url`.

    Among several of one call, those before the last answer to another do not count: a service that is busy,
    and goes on answering, is waited for as long as it does.
    """

    policy: Retries
    url: str
    progress: Progress = field(default_factory=Progress)
    made: int = 1
    start: float = field(default_factory=time.monotonic)

    def wait_after(self, error: HeadlightError | httpx.TransportError) -> float:
        """Count a failure: the seconds until the next attempt, or the error itself, raised."""
        if self.progress.at > self.start:
            self.start, self.made = self.progress.at, 1
        elapsed = time.monotonic() - self.start
        wait = decide(error, self.policy, self.made, elapsed, random.random())  # noqa: S311 (spreads load)
        if wait is None:
            raise error
        self.made += 1
        self._log(error, wait)
        return wait

    def _log(self, error: HeadlightError | httpx.TransportError, wait: float) -> None:
        busy = isinstance(error, HeadlightError) and error.status == OVERLOADED
        log.log(
            logging.INFO if busy else logging.WARNING,
            "%s: attempt %d of %d in %.1f s, after: %s",
            self.url,
            self.made,
            self.policy.count + 1,
            wait,
            str(error) or type(error).__name__,
        )


def decide(
    error: HeadlightError | httpx.TransportError,
    policy: Retries,
    made: int,
    elapsed: float,
    chance: float,
) -> float | None:
    """Seconds to wait before the next attempt, or None if there is to be none.

    `made` attempts took `elapsed` seconds; `chance`, in [0, 1), spreads clients that were refused together.
    The wait is at least what `Retry-After` asks for, else 0.1 s, doubled each time up to 5 s, half of it by
    chance. A wait that would end after `policy.seconds` is none: asking too early only adds to the load.
    """
    if made > policy.count or not _passing(error):
        return None
    remaining = policy.seconds - elapsed
    asked = error.retry_after if isinstance(error, HeadlightError) else None
    if asked is None:
        wait = min(_LONGEST_S, _FIRST_S * 2 ** (made - 1)) * (1 + chance) / 2
        return wait if wait <= remaining else None
    if asked > remaining:
        return None
    return min(remaining, asked + chance * min(_SPREAD_S, _FIRST_S + _SPREAD * asked))


def _passing(error: HeadlightError | httpx.TransportError) -> bool:
    """Whether the next attempt may fare better: overload, a restart, a connection that broke.

    Not a timeout: the service may still be at work on the first attempt.
    """
    if isinstance(error, HeadlightError):
        return error.status in RETRIED
    return isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError)
