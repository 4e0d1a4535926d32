"""Notices whether one connection has the service to itself."""

import math
import time

# For this long after requests on different connections, more of them are expected.
_APART_S = 0.1


class Company:
    """Tells the requests of a connection that is the only one in use from those that have company.

    Which requests wait at the same time would not tell: while one runs on the event loop, no other is read.
    """

    def __init__(self) -> None:
        self._last: int | None = None
        self._changed = -math.inf

    def alone(self, connection: object) -> bool:
        """Note a request, and return whether all of late came on the same connection."""
        now = time.monotonic()
        if id(connection) != self._last:
            self._last, self._changed = id(connection), now
        return now - self._changed > _APART_S
