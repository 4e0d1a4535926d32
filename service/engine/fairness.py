"""Which client is next, and how much of the queue each may use. No clock, no locks: `WaitingQueue` has one.

The order is start-time fair queueing over tokens (Goyal, Vin & Cheng 1996), as between the models of a device
(`device.py`): backlogged clients get equal shares of the tokens, a client that was idle rejoins at the
current virtual time, and a light client never waits behind another's backlog.

Space is shared by a dynamic threshold (Choudhury & Hahne 1998): a client may occupy no more of the queue than
it leaves free. So a single client gets half of it, two get a third each, and a newcomer always finds space.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice, repeat
from typing import Generic, Protocol, TypeVar

from service.sharing.board import Ledger, alone

# Idle clients whose recent use is remembered, at most; the others start afresh.
_MAX_REMEMBERED = 4096
# A client is light if the heaviest client has at least this many times its waiting and running tokens, and at
# least _HEAVY of them.
_TIMES_HEAVIER = 4
_HEAVY = 128
_MAX_SCANNED = 32  # clients considered when searching for light or heavy ones


class Sized(Protocol):
    """A waiting item with a length in tokens."""

    @property
    def tokens(self) -> int:
        """Its length in tokens, at least 1."""


SizedT = TypeVar("SizedT", bound=Sized)


class ClientQueue(Generic[SizedT]):
    """One client's sequences in order of arrival. Sizes are in tokens.

    `reserved` is for requests still being tokenized. `tag` is the client's virtual start time, on the same
    scale as the queue's clock.
    """

    __slots__ = ("client", "remembered", "reserved", "running", "tag", "waiting", "waiting_tokens")

    def __init__(self, client: str, tag: float) -> None:
        self.client = client
        self.tag = tag
        self.waiting: deque[SizedT] = deque()
        self.waiting_tokens = 0
        self.reserved = 0
        self.running = 0
        self.remembered = False

    @property
    def occupancy(self) -> int:
        """How much of the queue's capacity the client uses."""
        return self.waiting_tokens + self.reserved

    @property
    def weight(self) -> int:
        """The client's outstanding work: waiting and running."""
        return self.waiting_tokens + self.running

    @property
    def idle(self) -> bool:
        """Whether the client has nothing waiting, reserved or running."""
        return not (self.waiting or self.reserved or self.running)


_Entry = tuple[float, int, ClientQueue[SizedT]]


class ClientQueues(Generic[SizedT]):
    """The queues of all clients. Each operation is logarithmic in their number, per sequence.

    `ledger` counts the tokens that clients occupy in all processes, which share the capacity.
    """

    def __init__(self, ledger: Ledger | None = None) -> None:
        self._ledger = ledger or alone().ledger()
        self.tokens = 0
        """Waiting tokens."""
        self.reserved = 0
        self.inputs = 0
        """Waiting sequences."""
        self._clock = 0.0
        self._queues: dict[str, ClientQueue[SizedT]] = {}
        self._order: list[_Entry[SizedT]] = []
        """A heap of the non-empty queues, by tag."""
        self._idle: list[_Entry[SizedT]] = []
        """A heap of queues that were idle when pushed."""
        self._working: set[ClientQueue[SizedT]] = set()
        """The queues with running sequences."""
        self._heaviest = 0
        """The largest weight among them when the last batch started or finished."""
        self._serial = count()

    def __len__(self) -> int:
        """Count the known clients: those with work, and idle ones still remembered."""
        return len(self._queues)

    def may_hold(self, client: str, tokens: int, limit: float, *, returned: bool = False) -> bool:
        """Whether a client may add `tokens` tokens.

        It may as long as it then occupies no more than it leaves free of `limit`. An empty queue takes any
        number, and one that is not full any that `returned` when it was told to.
        """
        taken = self.occupied
        if returned and taken < limit:
            return True
        return taken == 0 or tokens == 0 or self.occupancy(client) + tokens <= limit - taken - tokens

    @property
    def occupied(self) -> int:
        """How many tokens of the capacity all clients use."""
        return self.tokens + self.reserved + self._ledger.elsewhere

    def occupancy(self, client: str) -> int:
        """How many tokens of the capacity a client uses."""
        queue = self._queues.get(client)
        return (queue.occupancy if queue else 0) + self._ledger.elsewhere_of(client)

    def reserve(self, client: str, tokens: int) -> None:
        """Reserve capacity for a request still to be queued; a negative number releases it."""
        queue = self._queue_of(client)
        queue.reserved += tokens
        self.reserved += tokens
        self._ledger.add(client, tokens)
        self._remember_if_idle(queue)

    def add(self, client: str, sequences: Sequence[SizedT]) -> None:
        """Append sequences to a client's queue."""
        queue = self._queue_of(client)
        tokens = sum(sequence.tokens for sequence in sequences)
        if sequences and not queue.waiting:
            queue.tag = max(queue.tag, self._clock)
            heapq.heappush(self._order, (queue.tag, next(self._serial), queue))
        queue.waiting.extend(sequences)
        self._count(queue, tokens, len(sequences))

    def first(self, number: int) -> "list[tuple[ClientQueue[SizedT], SizedT]]":
        """List up to `number` sequences in the order in which they are due, without removing them."""
        if len(self._order) == 1:
            queue = self._order[0][2]
            return [(queue, sequence) for sequence in islice(queue.waiting, number)]
        return list(islice(_merge(islice(_ascending(self._order), number)), number))

    def first_light(self, number: int, lightest: int = 0) -> "list[tuple[ClientQueue[SizedT], SizedT]]":
        """List as `first` does, but only for clients that are light compared with the running ones.

        Clients that are heavy compared with a client of weight `lightest` are left out.
        """
        return list(islice(_merge(self._light(lightest)), number))

    def is_light(self, weight: int) -> bool:
        """Whether a client of this weight is light compared with a running or waiting one."""
        first = islice(_ascending(self._order), _MAX_SCANNED)
        return is_light(weight, max((self._heaviest, *(queue.weight for _, _, queue in first))))

    def has_light(self, lightest: int = 0) -> bool:
        """Whether `first_light` would return anything."""
        return next(self._light(lightest), None) is not None

    def queues(self) -> "Iterator[ClientQueue[SizedT]]":
        """Iterate over the queues in which something waits."""
        return (queue for _, _, queue in self._order)

    def first_by(
        self, key: Callable[[SizedT], float], number: int
    ) -> "list[tuple[ClientQueue[SizedT], SizedT]]":
        """List up to `number` sequences of all clients by a key, in whose order those of a client wait."""
        entries = (zip(repeat(queue), queue.waiting) for queue in self.queues())
        return list(islice(heapq.merge(*entries, key=lambda entry: key(entry[1])), number))

    @property
    def backlogged(self) -> int:
        """Of how many clients something waits."""
        return len(self._order)

    def take(self, taken: "Sequence[tuple[ClientQueue[SizedT], SizedT]]") -> None:
        """Remove sequences that `first` listed, in its order, and count them as running."""
        by_queue: dict[ClientQueue[SizedT], list[SizedT]] = {}
        for queue, sequence in taken:
            by_queue.setdefault(queue, []).append(sequence)
        clients = len(self._order)
        self._clock = max(self._clock, self._order[0][0])
        popped = self._pop(by_queue)
        for queue, sequences in by_queue.items():
            tokens = sum(sequence.tokens for sequence in sequences)
            _remove(queue.waiting, sequences)
            self._count(queue, -tokens, -len(sequences))
            queue.tag += tokens
            queue.running += tokens
            self._working.add(queue)
            # As if there were one more client: a newcomer starts ahead of clients that have used much.
            self._clock += tokens / (clients + 1)
        for serial, queue in popped:
            if queue.waiting:
                heapq.heappush(self._order, (queue.tag, serial, queue))
        self._heaviest = max(queue.weight for queue in self._working)
        self._forget()

    def finish(self, done: Iterable[tuple[str, int]]) -> None:
        """Stop counting clients' tokens as running."""
        for client, tokens in done:
            queue = self._queues[client]
            queue.running -= tokens
            if not queue.running:
                self._working.discard(queue)
                self._remember_if_idle(queue)
        self._heaviest = max((queue.weight for queue in self._working), default=0)

    def drop(self, clients: Iterable[str], unwanted: Callable[[SizedT], bool]) -> None:
        """Drop unwanted waiting sequences of these clients."""
        queues = [queue for client in clients if (queue := self._queues.get(client)) is not None]
        for queue in queues:
            left = [sequence for sequence in queue.waiting if not unwanted(sequence)]
            tokens = sum(sequence.tokens for sequence in left)
            self._count(queue, tokens - queue.waiting_tokens, len(left) - len(queue.waiting))
            queue.waiting = deque(left)
        if any(not queue.waiting for queue in queues):
            self._order = [entry for entry in self._order if entry[2].waiting]
            heapq.heapify(self._order)
        for queue in queues:
            self._remember_if_idle(queue)

    def _queue_of(self, client: str) -> ClientQueue[SizedT]:
        queue = self._queues.get(client)
        if queue is None:
            queue = self._queues[client] = ClientQueue(client, self._clock)
        return queue

    def _count(self, queue: ClientQueue[SizedT], tokens: int, inputs: int) -> None:
        queue.waiting_tokens += tokens
        self.tokens += tokens
        self._ledger.add(queue.client, tokens)
        self.inputs += inputs

    def _pop(self, queues: Iterable[ClientQueue[SizedT]]) -> list[tuple[int, ClientQueue[SizedT]]]:
        """Pop queues off the heap until all of `queues` are out; returns those popped, with their serials."""
        left, popped = set(queues), []
        while left:
            _, serial, queue = heapq.heappop(self._order)
            popped.append((serial, queue))
            left.discard(queue)
        return popped

    def _light(self, lightest: int) -> "Iterator[_Entry[SizedT]]":
        """Iterate over the light clients among the first ones, compared with what is running."""
        if self._heaviest >= _HEAVY:
            for entry in islice(_ascending(self._order), _MAX_SCANNED):
                weight = entry[2].weight
                if is_light(weight, self._heaviest) and not (lightest and is_light(lightest, weight)):
                    yield entry

    def _remember_if_idle(self, queue: ClientQueue[SizedT]) -> None:
        """Remember a queue that has become idle until the clock reaches its tag."""
        if queue.idle and not queue.remembered:
            self._remember(queue)
        self._forget()

    def _remember(self, queue: ClientQueue[SizedT]) -> None:
        queue.remembered = True
        heapq.heappush(self._idle, (queue.tag, next(self._serial), queue))

    def _forget(self) -> None:
        if not (self.inputs or self.reserved or self._working):
            # No client has any work: all start afresh, as equals.
            for everything in (self._queues, self._order, self._idle):
                everything.clear()
            return
        idle = self._idle
        while idle and (idle[0][0] <= self._clock or len(idle) > _MAX_REMEMBERED):
            queue = heapq.heappop(idle)[2]
            queue.remembered = False
            if not queue.idle:
                continue  # it has work again
            if queue.tag > self._clock and len(idle) < _MAX_REMEMBERED:
                self._remember(queue)
            else:
                del self._queues[queue.client]


def companions(
    ahead: "Sequence[tuple[ClientQueue[SizedT], SizedT]]",
) -> "list[tuple[ClientQueue[SizedT], SizedT]]":
    """Keep only the entries that may share a batch with the first.

    All sequences of a batch finish together, so light and heavy clients do not share one.
    """
    first = ahead[0][0].weight if ahead else 0
    weights = {queue: queue.weight for queue, _ in ahead}
    return [
        one for one in ahead if not is_light(first, weights[one[0]]) and not is_light(weights[one[0]], first)
    ]


def is_light(tokens: int, heaviest: int) -> bool:
    """Whether a client with `tokens` tokens should not have to wait for batches of the heaviest one."""
    return heaviest >= _HEAVY and _TIMES_HEAVIER * tokens <= heaviest


def _remove(waiting: "deque[SizedT]", sequences: Sequence[SizedT]) -> None:
    """Remove sequences, given in queue order, from near the head."""
    left, members = [], iter(sequences)
    wanted = next(members, None)
    while wanted is not None:
        sequence = waiting.popleft()
        if sequence is wanted:
            wanted = next(members, None)
        else:
            left.append(sequence)
    waiting.extendleft(reversed(left))


def _ascending(heap: "list[_Entry[SizedT]]") -> "Iterator[_Entry[SizedT]]":
    """Iterate over a heap in ascending order; the first k cost O(k log k), whatever its size."""
    ahead = [(heap[0], 0)] if heap else []
    while ahead:
        entry, place = heapq.heappop(ahead)
        yield entry
        for child in (2 * place + 1, 2 * place + 2):
            if child < len(heap):
                heapq.heappush(ahead, (heap[child], child))


def _merge(entries: "Iterable[_Entry[SizedT]]") -> "Iterator[tuple[ClientQueue[SizedT], SizedT]]":
    """Merge queues by the virtual time at which each of their sequences is due."""
    due = [(tag, serial, queue, iter(queue.waiting)) for tag, serial, queue in entries]
    while due:
        tag, serial, queue, sequences = due[0]
        sequence = next(sequences, None)
        if sequence is None:
            heapq.heappop(due)
        else:
            yield queue, sequence
            heapq.heapreplace(due, (tag + sequence.tokens, serial, queue, sequences))
