"""One device: its engines take turns, shared fairly by tokens."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from service.engine.admission import Backlog
from service.sharing.scoreboard import LANES, LANES_ENDED, Counters, single_process

# A sibling process that ended a batch this recently is about to start another, so its cores are not free.
_RECENT_NS = 10_000_000
# How often a waiting turn checks whether siblings have become idle, in seconds.
_POLL_S = 0.05


@dataclass(slots=True, eq=False)
class Turn:
    """A turn that `owner` waits for or holds; an `express` turn runs beside the lanes."""

    owner: str
    express: bool = False


class LaneScheduler:
    """Grants one turn per lane at a time, first to the owner that has used the fewest tokens.

    This is start-time fair queueing (Goyal, Vin & Cheng 1996): an owner that was idle rejoins at the current
    virtual time, and backlogged owners get equal shares of the tokens, however their batches are shaped.
    Beside the lanes, one express turn at a time serves batches too small to wait for a lane; its tokens count
    like all others.

    With several processes, each has its share of the lanes, and may use more while its siblings are idle.
    """

    def __init__(self, lanes: int = 1, counters: Counters | None = None) -> None:
        self.lanes = lanes
        self._counters = counters or single_process()
        self.backlog = Backlog(self._counters)
        """The work that waits for the device or runs on it."""
        self._own_lanes = max(1, lanes // self._counters.processes)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting: list[Turn] = []
        self._running: list[Turn] = []
        self._used: dict[str, int] = {}
        self._clock = 0
        self._ended = 0.0
        self._end_helpers: Callable[[], None] | None = None

    @property
    def demand(self) -> int:
        """How many turns are running or waiting."""
        return len(self._running) + len(self._waiting)

    @property
    def siblings_idle(self) -> bool:
        """Whether no other process of the service uses its cores."""
        if not self._counters.others:
            return True
        recently = time.monotonic_ns() - _RECENT_NS
        return not any(other[LANES] or other[LANES_ENDED] > recently for other in self._counters.others)

    @property
    def shares(self) -> int:
        """How many shares the cores are divided into now: a lane gets one of them."""
        return self.lanes if self.siblings_idle else max(self.lanes, self._counters.processes)

    def allows(self, lane: int) -> bool:
        """Whether a lane may run: always if it is in this process's share, else while siblings are idle."""
        return lane < self._own_lanes or (lane < self.lanes and self.siblings_idle)

    @property
    def idle_since(self) -> float | None:
        """When the last turn ended, in `time.perf_counter` seconds (0 before the first); None while busy."""
        return None if self.demand else self._ended

    @contextmanager
    def turn(self, owner: str, *, express: bool = False) -> Iterator[Turn]:
        """Wait for a turn and hold it inside the `with` block."""
        turn = Turn(owner, express)
        with self._lock:
            self._used[owner] = max(self._used.get(owner, 0), self._clock)
            self._waiting.append(turn)
            # Siblings become idle without a notification.
            poll_s = _POLL_S if self._counters.others else None
            while not self._changed.wait_for(lambda: self._is_next(turn), poll_s):
                pass
            self._waiting.remove(turn)
            self._running.append(turn)
            if self._counters.others:
                self._publish(turn)
            self._clock = self._used[owner]
            self._changed.notify_all()
        try:
            yield turn
        finally:
            self.release(turn)

    def try_turn(self, owner: str, tokens: int, end_helpers: Callable[[], None]) -> Turn | None:
        """Grant a turn on the event loop, or return None if anything else of this process runs or waits.

        Its tokens are charged at once; the caller must `release` it. `end_helpers` ends the threads that it
        may start.
        """
        with self._lock:
            if self._running or self._waiting:
                return None
            turn = Turn(owner)
            self._end_helpers = end_helpers
            self._clock = max(self._used.get(owner, 0), self._clock)
            self._used[owner] = self._clock + tokens
            self._running.append(turn)
            if self._counters.others:
                self._publish(turn)
            return turn

    def end_helpers(self) -> None:
        """End the threads that turns on the event loop have started; called there when a runner gets work.

        A runner has threads of its own. With more threads than cores, all would sleep after each pass instead
        of spinning until the next.
        """
        if self._end_helpers is not None:
            self._end_helpers()
            self._end_helpers = None

    def charge(self, turn: Turn, tokens: int) -> None:
        """Charge tokens to the turn's owner."""
        with self._lock:
            self._used[turn.owner] += tokens
            self._changed.notify_all()  # another owner may be next now

    def release(self, turn: Turn) -> None:
        """End a turn."""
        with self._lock:
            self._running.remove(turn)
            self._ended = time.perf_counter()
            if self._counters.others:
                self._publish(turn)
            if self._waiting:
                self._changed.notify_all()

    def _publish(self, changed: Turn) -> None:
        if not changed.express:
            self._counters.own[LANES_ENDED] = time.monotonic_ns()
            self._counters.own[LANES] = sum(not turn.express for turn in self._running)

    def _is_next(self, turn: Turn) -> bool:
        running = sum(other.express == turn.express for other in self._running)
        rivals = [other for other in self._waiting if other.express == turn.express]
        # Among owners that have used equally many tokens, `min` returns the one waiting longest.
        free = running < 1 if turn.express else self.allows(running)
        return free and min(rivals, key=lambda rival: self._used[rival.owner]) is turn
