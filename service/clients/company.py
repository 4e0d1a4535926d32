"""Notices whether a few connections have the service to themselves."""

import time
import weakref

_FEW = 2
# A connection is in use for this long after a request on it.
_USE_S = 0.1


class Company:
    """Tells the requests of a few connections that are the only ones in use from those of many.

    Counting the requests that wait would not do: while one runs on the event loop, no other is read.
    """

    def __init__(self) -> None:
        # The last ones, and when each had a request: as many as show that there are more than a few.
        self._used: list[tuple[weakref.ref[object], float]] = []

    def is_small(self, connection: object) -> bool:
        """Note a request on a connection, and return whether no more than a few have been in use of late."""
        now = time.monotonic()
        others = [(one, used) for one, used in self._used if one() is not connection and now - used < _USE_S]
        self._used = [*others[-_FEW:], (weakref.ref(connection), now)]
        return len(self._used) <= _FEW
