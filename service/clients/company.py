"""Notices whether one connection has the service to itself."""

import math
import time
import weakref

# For this long after requests on different connections, more of them are expected.
_APART_S = 0.1


class Company:
    """Tells the requests of a connection that is the only one in use from those that have company.

    Counting the requests that wait would not do: while one runs on the event loop, no other is read.
    """

    def __init__(self) -> None:
        self._last: weakref.ref[object] | None = None
        self._changed = -math.inf

    def alone(self, connection: object) -> bool:
        """Note a request, and return whether all of late came on the same connection."""
        now = time.monotonic()
        if self._last is None or self._last() is not connection:
            self._last, self._changed = weakref.ref(connection), now
        return now - self._changed > _APART_S
