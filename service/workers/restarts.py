"""Decides when a worker that ended is replaced, and when the service ends instead."""

FRUITLESS = 5
"""This many workers that end in a row, while no other serves, end the service."""
# What passes before a worker is replaced, in seconds: the first at once, later ones more and more slowly, so
# that what a restart cures has time to pass.
_PAUSES_S = (0.0, 0.5, 1.0, 2.0, 4.0)
# Workers that served for longer than this did not end in a row.
_IN_A_ROW_S = 60.0


class RestartPolicy:
    """Counts workers that end in a row: while no request is answered in any worker."""

    def __init__(self) -> None:
        self._in_a_row = self._unattended = 0
        """How many ended in a row, and how many of them while no other worker served."""
        self._answered = 0
        self._last = float("-inf")

    def record_exit(self, now: float, answered: int, *, was_ready: bool, attended: bool) -> float | None:
        """Count a worker that ended; returns the seconds until it is replaced, None if the service must end.

        `answered` is how many requests all workers have answered until `now`, in `time.monotonic` seconds;
        `was_ready` says whether it had been ready, and `attended` whether another worker serves.
        """
        soon = now - self._last < _IN_A_ROW_S or not was_ready
        in_a_row = soon and answered == self._answered
        self._in_a_row = self._in_a_row + 1 if in_a_row else 1
        self._unattended = 0 if attended else self._unattended + 1 if in_a_row else 1
        self._answered, self._last = answered, now
        if self._unattended >= FRUITLESS:
            return None
        return _PAUSES_S[min(self._in_a_row, len(_PAUSES_S)) - 1]
