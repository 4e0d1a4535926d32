"""Knows whether a client is the only one that sends requests, to any process of the service."""

import time

from service.sharing.board import LAST_CLIENT, LAST_SEEN, PREVIOUS_CLIENT, PREVIOUS_SEEN, Column, alone

PRESENT_S = 0.2
"""A client is present for this long after a request."""


class Presence:
    """The two clients that were seen last, in each process."""

    def __init__(self, column: Column | None = None) -> None:
        column = column or alone()
        self._own = column.own
        self._columns = (column.own, *column.others)

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
            (column[LAST_SEEN] > since and column[LAST_CLIENT] != number)
            or (column[PREVIOUS_SEEN] > since and column[PREVIOUS_CLIENT] != number)
            for column in self._columns
        )
