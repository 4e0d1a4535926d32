"""Notices how many connections a process serves."""

import time
import weakref

FEW = 2
"""With no more connections than this, batching gains nothing."""
# A connection is in use for this long after a request on it.
_USE_S = 0.1


class RecentConnections:
    """Counts the connections in use.

    Counting waiting requests would not do: while one runs on the event loop, no other is read.
    """

    def __init__(self) -> None:
        # The last connections, and when each had a request: just enough to show that there are more than FEW.
        self._used: list[tuple[weakref.ref[object], float]] = []

    def note(self, connection: object) -> int:
        """Note a request on a connection; returns how many have been in use of late, at most FEW + 1."""
        now = time.monotonic()
        others = [(one, used) for one, used in self._used if one() is not connection and now - used < _USE_S]
        self._used = [*others[-FEW:], (weakref.ref(connection), now)]
        return len(self._used)
