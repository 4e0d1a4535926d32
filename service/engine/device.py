"""One device: its engines take turns, shared fairly by tokens."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Turn:
    """A request of `owner` to run, waiting or granted; an `express` turn runs beside the lanes."""

    owner: str
    express: bool = False


class Device:
    """Grants one turn per lane at a time, first to the owner that has used the fewest tokens.

    This is start-time fair queueing (Goyal, Vin & Cheng 1996): an owner that was idle rejoins at the current
    virtual time, and backlogged owners get equal shares of the tokens, however their batches are shaped.
    Beside the lanes, one express turn at a time serves batches too small to wait for a lane; its tokens count
    like all others.
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
    def demand(self) -> int:
        """How many turns are running or waiting."""
        return len(self._running) + len(self._waiting)

    @property
    def idle_since(self) -> float | None:
        """When the last turn ended, in `time.perf_counter` seconds (0 before the first); None while busy."""
        return None if self.demand else self._ended

    @contextmanager
    def turn(self, owner: str, *, express: bool = False) -> Iterator[Turn]:
        """Wait for a turn and hold it inside the `with` block."""
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
        """Charge tokens to the turn's owner."""
        with self._changed:
            self._used[turn.owner] += tokens
            self._changed.notify_all()  # another owner may be next now

    def release(self, turn: Turn) -> None:
        """End a turn; a no-op if it has ended.

        Also called on behalf of a thread that hangs during its turn.
        """
        with self._changed:
            if turn in self._running:
                self._running.remove(turn)
                self._ended = time.perf_counter()
                self._changed.notify_all()

    def _is_next(self, turn: Turn) -> bool:
        running = sum(other.express == turn.express for other in self._running)
        rivals = [other for other in self._waiting if other.express == turn.express]
        # Among owners that have used equally many tokens, `min` returns the one waiting longest.
        free = running < (1 if turn.express else self.lanes)
        return free and min(rivals, key=lambda rival: self._used[rival.owner]) is turn
