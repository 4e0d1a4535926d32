"""One device, one run at a time: the engines on it take turns."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Turn:
    """A wish to run, waiting or granted."""


class Device:
    """Grants turns in the order in which they were asked for.

    An engine asks for its next turn after its last one, so engines that always have work alternate, and
    with batches of one budget each gets its share of the tokens.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._turns: deque[Turn] = deque()

    @property
    def asked(self) -> int:
        """How many turns are running or waited for."""
        return len(self._turns)

    @contextmanager
    def turn(self) -> Iterator[Turn]:
        """Wait for the turn; hold it meanwhile."""
        turn = Turn()
        with self._changed:
            self._turns.append(turn)
            self._changed.wait_for(lambda: self._turns[0] is turn)
        try:
            yield turn
        finally:
            self.release(turn)

    def release(self, turn: Turn) -> None:
        """End a turn; nothing when it has ended already.

        Also called in the place of a thread that hangs within its turn.
        """
        with self._changed:
            if turn in self._turns:
                self._turns.remove(turn)
                self._changed.notify_all()
