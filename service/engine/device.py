"""One device: the engines on it take turns, fair by tokens."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Turn:
    """A wish of `owner` to run, waiting or granted; `express` beside all lanes."""

    owner: str
    express: bool = False


class Device:
    """Grants as many turns at a time as it has lanes, first to the owner that had the fewest tokens.

    This is start-time fair queueing (Goyal, Vin & Cheng 1996): an owner that was idle begins where the
    others are, and owners that always have work get equal shares of the tokens, whatever their batches
    are like. Beside the lanes there is one express turn at a time, for what is too small to wait for a lane;
    its tokens count like all others.
    """

    def __init__(self, lanes: int = 1) -> None:
        self.lanes = lanes
        self._changed = threading.Condition()
        self._waiting: list[Turn] = []
        self._running: list[Turn] = []
        self._used: dict[str, int] = {}
        self._clock = 0
        self._ended = 0.0

    @property
    def asked(self) -> int:
        """How many turns are running or waited for."""
        return len(self._running) + len(self._waiting)

    @property
    def idle_since(self) -> float | None:
        """When the last turn ended, in `time.perf_counter` seconds (0: there was none); None while any is."""
        return None if self.asked else self._ended

    @contextmanager
    def turn(self, owner: str, *, express: bool = False) -> Iterator[Turn]:
        """Wait for a turn; hold it meanwhile."""
        turn = Turn(owner, express)
        with self._changed:
            self._used[owner] = max(self._used.get(owner, 0), self._clock)
            self._waiting.append(turn)
            self._changed.wait_for(lambda: self._is_next(turn))
            self._waiting.remove(turn)
            self._running.append(turn)
            self._clock = self._used[owner]
            self._changed.notify_all()
        try:
            yield turn
        finally:
            self.release(turn)

    def charge(self, turn: Turn, tokens: int) -> None:
        """Count the tokens that the turn's owner runs."""
        with self._changed:
            self._used[turn.owner] += tokens
            self._changed.notify_all()  # it may be somebody else's turn now

    def release(self, turn: Turn) -> None:
        """End a turn; nothing when it has ended already.

        Also called in the place of a thread that hangs within its turn.
        """
        with self._changed:
            if turn in self._running:
                self._running.remove(turn)
                self._ended = time.perf_counter()
                self._changed.notify_all()

    def _is_next(self, turn: Turn) -> bool:
        running = sum(other.express == turn.express for other in self._running)
        rivals = [other for other in self._waiting if other.express == turn.express]
        # Among those with the same share, `min` takes the one that has waited longest.
        free = running < (1 if turn.express else self.lanes)
        return free and min(rivals, key=lambda rival: self._used[rival.owner]) is turn
