"""Numbers in memory that the processes of one service share, as on a web server's scoreboard.

Each process writes only its own counters, so no lock is needed: a reader sees the last number written, whole
(an aligned 64-bit word). The supervisor clears what a process that died has left there.
"""

import mmap
from collections.abc import Iterable

# Counters of a process. Times are in nanoseconds of `time.monotonic_ns`, sizes in bytes or tokens.
HEARTBEAT = 0
"""When its event loop last made progress; 0 until it is ready."""
CONNECTIONS = 1
"""Connections with a request in the last second."""
IN_FLIGHT = 2
"""Requests that it has received and not answered."""
ANSWERED = 3
"""Inference requests that it has answered."""
LANES = 4
"""Lanes that run a batch."""
LANES_ENDED = 5
"""When it last ended a batch."""
MEMORY = 6
"""Bytes that its requests hold."""
LARGE = 7
"""How many of its requests hold much memory."""
GROWTH = 8
"""How much its memory has grown since it was ready, without pages of files."""
CUT_OFF = 9
"""Requests that had no answer when the drain timed out."""
HANDED_OVER = 10
"""1 once the placeholder, which answers while the models load, accepts no more connections."""
WORK = 11
"""How long what waits in its queues and runs would take, in nanoseconds."""
RETRY_AT, RETRY_AT_WHOLE = 12, 13
"""Until when refused requests were told to come back, in milliseconds and in whole seconds."""
LAST_CLIENT, LAST_SEEN, PREVIOUS_CLIENT, PREVIOUS_SEEN = 14, 15, 16, 17
"""The two clients that sent something last, as hashes, and when."""

# Counters that all processes have in common. Each is set once, before the service opens.
COMPLETE = 0
"""1 once every worker was ready, so that the placeholder is no longer needed."""
OPENED = 1
"""1 once the service is open: each worker may listen when it is ready."""
MEMORY_LIMIT = 2
"""The limit of all requests' memory that the first worker planned."""

# The counters of each model, and of memory, follow these.
_FIXED = 20
PER_TOKEN, PER_PAIR = 0, 1
"""How long a token takes, and attending to one token, in femtoseconds; common to all processes."""
INPUTS, TRUNCATED, UNFAMILIAR = 2, 3, 4
"""Inputs that a process answered, how many of them were truncated, and whether it warned of the tokenizer."""
_TOTAL, _BY_CLIENT = 5, 6
# Amounts by client are summed in counters chosen by the client's hash: two clients that share a counter look
# like one client to the other processes. With this many counters, that is rare.
_HASHED = 1024
_PART = _BY_CLIENT + _HASHED


class Scoreboard:
    """The counters of `processes` workers, the ones that they have in common, and spare ones.

    Forked processes share it; create it before the fork.
    """

    def __init__(self, processes: int, models: Iterable[str] = ()) -> None:
        self.processes = processes
        self._parts = {name: _FIXED + _PART * i for i, name in enumerate(("", *models))}
        size = _FIXED + _PART * len(self._parts)
        numbers = memoryview(mmap.mmap(-1, 8 * size * (processes + 2))).cast("q")
        self._all = [numbers[i * size : (i + 1) * size] for i in range(processes + 2)]

    def counters(self, slot: int) -> "Counters":
        """Return the counters of a worker, by its number from 0."""
        others = [self._all[i] for i in range(self.processes) if i != slot]
        common = self._all[self.processes]
        return Counters(slot, self.processes, self._all[slot], others, common, self._parts)

    def spare_counters(self) -> "Counters":
        """Return counters for a process that is no worker: it reads all workers', and they do not read it."""
        return self.counters(self.processes + 1)

    def clear(self, slot: int) -> None:
        """Forget the numbers of a worker that has ended."""
        own = self._all[slot]
        own[:] = memoryview(bytes(own.nbytes)).cast("q")


class Counters:
    """The counters that one process writes, those of the other processes, and those in common."""

    def __init__(
        self,
        slot: int,
        processes: int,
        own: "memoryview[int]",
        others: "list[memoryview[int]]",
        common: "memoryview[int]",
        parts: dict[str, int],
    ) -> None:
        self.slot = slot
        self.processes = processes
        """How many workers the service has."""
        self.own = own
        self.others = others
        self.common = common
        self.parts = parts
        """Where the counters of each model begin, and, under "", those of memory."""

    def elsewhere(self, counter: int) -> int:
        """Sum a counter over the other processes."""
        return sum([other[counter] for other in self.others]) if self.others else 0

    def note(self, model: str, counter: int, number: int) -> None:
        """Set a counter of a model in this process."""
        self.own[self.parts[model] + counter] = number

    def of_model(self, model: str, counter: int) -> int:
        """Sum a counter of a model over all processes."""
        return sum([own[self.parts[model] + counter] for own in (self.own, *self.others)])

    def client_totals(self, model: str = "") -> "ClientTotals":
        """Return the amounts that clients have in a model's queue, or of memory if no model is named."""
        return ClientTotals(self, self.parts[model])


class ClientTotals:
    """Amounts by client, in this process and in the others. The caller holds a lock."""

    def __init__(self, counters: Counters, part: int) -> None:
        self._own = counters.own
        self._others = counters.others
        self._total, self._first = part + _TOTAL, part + _BY_CLIENT

    def add(self, client: str, amount: int) -> None:
        """Add an amount, or take it back if negative."""
        if self._others:
            self._own[self._total] += amount
            self._own[self._counter(client)] += amount

    @property
    def elsewhere(self) -> int:
        """The sum of all clients' amounts in the other processes."""
        return sum([other[self._total] for other in self._others]) if self._others else 0

    def elsewhere_of(self, client: str) -> int:
        """Return the sum of a client's amounts in the other processes."""
        counter = self._counter(client)
        return sum([other[counter] for other in self._others])

    def _counter(self, client: str) -> int:
        # A string's hash is the same in all processes that were forked from one.
        return self._first + hash(client) % _HASHED


def single_process(models: Iterable[str] = ()) -> Counters:
    """Return the counters of the only process of a service."""
    return Scoreboard(1, models).counters(0)
