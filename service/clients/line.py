"""Steps that wait for the event loop, in the order in which their clients have turns."""

import heapq
import math
import time
from collections import deque
from collections.abc import Callable
from itertools import count

Step = Callable[[], None]
"""Takes a fraction of a millisecond, and raises nothing."""


class Client:
    """How much of the event loop a client has used, and whether it rests."""

    __slots__ = ("name", "read_s", "rests_until", "tag")

    def __init__(self, name: str, tag: float) -> None:
        self.name = name
        self.tag = tag
        """Its virtual start time: how much of the event loop it has used, on the scale of the clock."""
        self.read_s = 0.0
        """How long it took to read those of its requests that are not served yet."""
        self.rests_until = 0.0
        """Until when it has no turn, in `time.monotonic` seconds."""

    @property
    def rests(self) -> bool:
        """Whether it has no turn now."""
        if self.rests_until and self.rests_until <= time.monotonic():
            self.rests_until = 0.0
        return bool(self.rests_until)


class Line:
    """The waiting steps, each client's in order of arrival; without `rests`, no client rests."""

    def __init__(self, *, rests: bool = True) -> None:
        self._rests = rests
        self.steps: dict[Client, deque[Step]] = {}
        self.waiting = 0
        self._order: list[tuple[float, int, Client]] = []
        """A heap of the clients that have turns, by tag."""
        self._resting: list[tuple[float, int, Client]] = []
        """A heap of the clients that rest, by the time until which they do."""
        self._serial = count()

    @property
    def ready(self) -> bool:
        """Whether any of the waiting clients may have a turn."""
        return bool(self._order)

    @property
    def rests_until(self) -> float:
        """When the first of the resting clients has turns again; infinite without any."""
        return self._resting[0][0] if self._resting else math.inf

    def append(self, client: Client, step: Step) -> None:
        """Add a step."""
        steps = self.steps.get(client)
        if steps is None:
            steps = self.steps[client] = deque()
            self._push(client)
        steps.append(step)
        self.waiting += 1

    def take(self) -> tuple[Client, Step] | None:
        """Remove the oldest step of the client that has used the loop least; None if all rest."""
        self._wake()
        while self._order:
            tag, _, client = heapq.heappop(self._order)
            if client.tag > tag or (self._rests and client.rests):
                self._push(client)  # it was charged, or told to rest, meanwhile
                continue
            steps = self.steps[client]
            step = steps.popleft()
            self.waiting -= 1
            if steps:
                self._push(client)
            else:
                del self.steps[client]
            return client, step
        return None

    def _wake(self) -> None:
        if self._resting:
            now = time.monotonic()
            while self._resting and self._resting[0][0] <= now:
                self._push(heapq.heappop(self._resting)[2])

    def _push(self, client: Client) -> None:
        if self._rests and client.rests:
            heapq.heappush(self._resting, (client.rests_until, next(self._serial), client))
        else:
            heapq.heappush(self._order, (client.tag, next(self._serial), client))
