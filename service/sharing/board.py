"""Numbers in memory that the processes of one service share.

Each process writes only its own column, so no lock is needed: a reader sees the last number written, whole
(an aligned 64-bit word). What a process that died has left there is cleared by the supervisor.
"""

import mmap
from collections.abc import Iterable
from dataclasses import dataclass

# Rows of a column. Times are in nanoseconds of `time.monotonic_ns`, sizes in bytes or tokens.
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
ANSWERS = 8
"""Bytes of its large responses."""
GROWTH = 9
"""How much its memory has grown since it was ready, pages of files left out."""
CUT_OFF = 10
"""Requests that had no answer when the drain timed out."""
HANDED_OVER = 11
"""Of the process that greets clients while the models load: 1 once it accepts no more connections."""
WORK = 12
"""How long it would take the service to run what waits in its queues and runs, in nanoseconds."""
RETURNS, WHOLE_RETURNS = 13, 14
"""Until when refused requests were told to come back, in milliseconds and in whole seconds."""
LAST_CLIENT, LAST_SEEN, PREVIOUS_CLIENT, PREVIOUS_SEEN = 15, 16, 17, 18
"""The two clients that sent something last, as hashes, and when."""
_FIXED = 20

# What processes agree on for each model, before the service opens.
PER_TOKEN, PER_PAIR = 0, 1
"""How long a token takes, and attention for each token that it attends to, in femtoseconds."""
_AGREED = 2

# Rows of the column that all share, which is written before the service opens.
_COMPLETE, _OPENED, _AGREED_MEMORY = 0, 1, 2

# Amounts by client are summed in rows chosen by the client's hash: two clients that share a row are, for each
# other, as one client in several processes. With these many rows, that is rare.
_HASHED = 1024


@dataclass(frozen=True, slots=True)
class _Layout:
    models: tuple[str, ...]

    @property
    def rows(self) -> int:
        return _FIXED + (1 + _HASHED) * (1 + len(self.models)) + _AGREED * len(self.models)

    def ledger(self, name: str) -> int:
        """The first row of a model's ledger; "" is that of memory."""
        return _FIXED + (1 + _HASHED) * ("", *self.models).index(name)

    def agreed(self, model: str, what: int) -> int:
        ledgers = (1 + _HASHED) * (1 + len(self.models))
        return _FIXED + ledgers + _AGREED * self.models.index(model) + what


class Board:
    """Columns of numbers for `processes` workers, one for what they agree on, and a spare one.

    Forked processes share it; create it before the fork.
    """

    def __init__(self, processes: int, models: Iterable[str] = ()) -> None:
        self.processes = processes
        self._layout = _Layout(tuple(models))
        self._memory = mmap.mmap(-1, 8 * self._layout.rows * (processes + 2))
        self._numbers = memoryview(self._memory).cast("q")

    def column(self, slot: int) -> "Column":
        """Return the column of a worker, by its number from 0."""
        rows = self._layout.rows
        own = self._numbers[slot * rows : (slot + 1) * rows]
        others = [self._numbers[i * rows : (i + 1) * rows] for i in range(self.processes) if i != slot]
        common = self._numbers[self.processes * rows : (self.processes + 1) * rows]
        return Column(slot, self.processes, own, others, common, self._layout)

    def spare_column(self) -> "Column":
        """Return the column of a process that is no worker: it reads those of all, and none reads it."""
        return self.column(self.processes + 1)

    def clear(self, slot: int) -> None:
        """Forget the numbers of a worker that has ended."""
        own, rows = self.column(slot).own, self._layout.rows
        own[:] = memoryview(bytes(8 * rows)).cast("q")


class Column:
    """The numbers of one process, with a view of the others'."""

    def __init__(
        self,
        slot: int,
        processes: int,
        own: "memoryview[int]",
        others: "list[memoryview[int]]",
        common: "memoryview[int]",
        layout: _Layout,
    ) -> None:
        self.slot = slot
        self.processes = processes
        """How many workers the service has."""
        self.own = own
        self.others = others
        self._common = common
        self._layout = layout

    def elsewhere(self, row: int) -> int:
        """Sum the other processes' numbers in a row."""
        return sum([other[row] for other in self.others])

    def ledger(self, model: str = "") -> "Ledger":
        """Return the ledger of a model's queue, or that of memory."""
        return Ledger(self, self._layout.ledger(model))

    @property
    def complete(self) -> bool:
        """Whether every worker was ready once, so that nobody needs to greet clients any more."""
        return bool(self._common[_COMPLETE])

    def be_complete(self) -> None:
        """Say that every worker is ready."""
        self._common[_COMPLETE] = 1

    @property
    def opened(self) -> bool:
        """Whether the service is open: each worker may listen when it is ready."""
        return bool(self._common[_OPENED])

    def open(self) -> None:
        """Have the workers listen."""
        self._common[_OPENED] = 1

    def agreed(self, model: str, what: int) -> int:
        """Return what the first worker measured of a model; 0 until then."""
        return self._common[self._layout.agreed(model, what)]

    def agree(self, model: str, what: int, value: int) -> None:
        """Set it for all workers."""
        self._common[self._layout.agreed(model, what)] = value

    @property
    def agreed_memory(self) -> int:
        """The limit of all requests' memory that the first worker planned; 0 until then."""
        return self._common[_AGREED_MEMORY]

    def agree_memory(self, limit: int) -> None:
        """Set the limit of all requests' memory for all workers."""
        self._common[_AGREED_MEMORY] = limit


class Ledger:
    """Amounts by client, in this process and in the others. The caller holds a lock."""

    def __init__(self, column: Column, first: int) -> None:
        self._own = column.own
        self._others = column.others
        self._first = first

    def add(self, client: str, amount: int) -> None:
        """Add an amount, or take it back if negative."""
        if self._others:
            self._own[self._first] += amount
            self._own[self._row(client)] += amount

    @property
    def elsewhere(self) -> int:
        """The amounts of all clients in the other processes."""
        return sum([other[self._first] for other in self._others])

    def elsewhere_of(self, client: str) -> int:
        """Return the amounts of a client in the other processes."""
        row = self._row(client)
        return sum([other[row] for other in self._others])

    def _row(self, client: str) -> int:
        # A string's hash is the same in all processes that were forked from one.
        return self._first + 1 + hash(client) % _HASHED


def alone(models: Iterable[str] = ()) -> Column:
    """Return the column of the only process of a service."""
    return Board(1, models).column(0)
