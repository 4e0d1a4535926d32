"""Decides when a worker that ended is replaced, and when the service ends instead."""

FRUITLESS = 5
"""When this many workers in a row have ended while no other served, the service ends."""
# How long until a worker is replaced, in seconds: the first is replaced at once, later ones ever more slowly,
# so that a passing cause has time to pass.
_PAUSES_S = (0.0, 0.5, 1.0, 2.0, 4.0)
# Workers that served for longer than this did not end in a row.
_IN_A_ROW_S = 60.0


class RestartPolicy:
    """Counts workers that end in a row, that is, with no request answered in any worker meanwhile."""

    def __init__(self) -> None:
        self._in_a_row = self._unattended = 0
        """How many ended in a row, and how many of them while no other worker served."""
        self._answered = 0
        self._last = float("-inf")

    def record_exit(self, now: float, answered: int, *, was_ready: bool, attended: bool) -> float | None:
        """Count a worker that ended; returns the seconds until it is replaced, None if the service must end.

        `answered` is how many requests all workers have answered until `now`, in `time.monotonic` seconds;
        `was_ready` says whether this worker had been ready, and `attended` whether another worker serves.
        """
        soon = now - self._last < _IN_A_ROW_S or not was_ready
        in_a_row = soon and answered == self._answered
        self._in_a_row = self._in_a_row + 1 if in_a_row else 1
        self._unattended = 0 if attended else self._unattended + 1 if in_a_row else 1
        self._answered, self._last = answered, now
        if self._unattended >= FRUITLESS:
            return None
        return _PAUSES_S[min(self._in_a_row, len(_PAUSES_S)) - 1]
