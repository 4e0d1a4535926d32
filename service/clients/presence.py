"""Knows whether a client is the only one that sends requests, to any process of the service."""

import time

from service.sharing.scoreboard import (
    LAST_CLIENT,
    LAST_SEEN,
    PREVIOUS_CLIENT,
    PREVIOUS_SEEN,
    Counters,
    single_process,
)

PRESENT_S = 0.2
"""A client is present for this long after a request."""


class Presence:
    """The two clients that were seen last, in each process."""

    def __init__(self, counters: Counters | None = None) -> None:
        counters = counters or single_process()
        self._own = counters.own
        self._all = (counters.own, *counters.others)

    def note(self, client: str) -> None:
        """Note that a client has sent something."""
        own, number = self._own, hash(client)
        if own[LAST_CLIENT] != number:
            own[PREVIOUS_CLIENT], own[PREVIOUS_SEEN] = own[LAST_CLIENT], own[LAST_SEEN]
            own[LAST_CLIENT] = number
        own[LAST_SEEN] = time.monotonic_ns()

    def has_others(self, client: str) -> bool:
        """Whether other clients are present."""
        number, since = hash(client), time.monotonic_ns() - int(1e9 * PRESENT_S)
        return any(
            (counters[LAST_SEEN] > since and counters[LAST_CLIENT] != number)
            or (counters[PREVIOUS_SEEN] > since and counters[PREVIOUS_CLIENT] != number)
            for counters in self._all
        )
