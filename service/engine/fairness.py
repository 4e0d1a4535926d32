"""Decides without a clock which client is next and how much of the queue each may use; `WaitingQueue` locks.

The order is start-time fair queueing over tokens (Goyal, Vin & Cheng 1996), as between the models of a
device (`lane_scheduler.py`): backlogged clients get equal shares of the tokens, a client that was idle
rejoins at the current virtual time, and a light client never waits behind another's backlog.

Space is shared by a dynamic threshold (Choudhury & Hahne 1998): a client may occupy no more of the queue than
it leaves free. So a single client gets half of it, two get a third each, and a newcomer always finds space.
"""

import heapq
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from operator import attrgetter, itemgetter
from typing import Generic, Protocol, TypeVar

from service.sharing.scoreboard import ClientTotals, single_process

# The recent use of at least this many clients is remembered; idle ones beyond them start afresh.
_REMEMBERED = 4096
# A client is light if the heaviest client has at least this many times its waiting and running tokens, and at
# least _HEAVY tokens. With a _HEAVY of 128, a client beside forty connections with short texts, all served by
# two processes, waited for batches of a hundred tokens: on a slow core, 20 times as long as alone.
_TIMES_HEAVIER = 4
_HEAVY = 32
_MAX_SCANNED = 32  # clients considered when searching for light or heavy ones


class Sized(Protocol):
    """A waiting item with a length in tokens."""

    @property
    def tokens(self) -> int:
        """Its length in tokens, at least 1."""


SizedT = TypeVar("SizedT", bound=Sized)
_tag = attrgetter("tag")


class ClientQueue(Generic[SizedT]):
    """One client's sequences in order of arrival. Sizes are in tokens.

    `reserved` is for requests still being tokenized. `tag` is the client's virtual start time, on the same
    scale as the queue's clock.
    """

    __slots__ = ("client", "reserved", "running", "tag", "waiting", "waiting_tokens")

    def __init__(self, client: str, tag: float) -> None:
        self.client = client
        self.tag = tag
        self.waiting: deque[SizedT] = deque()
        self.waiting_tokens = 0
        self.reserved = 0
        self.running = 0

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


class ClientQueues(Generic[SizedT]):
    """The queues of all clients.

    `totals` counts the tokens that clients occupy in all processes, which share the capacity.
    """

    def __init__(self, totals: ClientTotals | None = None) -> None:
        self._client_totals = totals or single_process().client_totals()
        self.tokens = 0
        """Waiting tokens."""
        self.reserved = 0
        self.inputs = 0
        """Waiting sequences."""
        self._clock = 0.0
        self._queues: dict[str, ClientQueue[SizedT]] = {}
        self._forget_at = _REMEMBERED
        self._order: list[ClientQueue[SizedT]] = []
        """The queues in which something waits, sorted by tag: most batches look only at the first few."""
        self._working: set[ClientQueue[SizedT]] = set()
        """The queues with running sequences."""
        self._reserving: set[ClientQueue[SizedT]] = set()
        """The queues with requests that are being tokenized."""
        self._heaviest = 0
        """The largest weight of a queue in `_working` when the last batch started or finished."""

    def __len__(self) -> int:
        """Count the known clients: those with work, and idle ones still remembered."""
        return len(self._queues)

    def may_hold(self, client: str, tokens: int, limit: float, *, returned: bool = False) -> bool:
        """Whether a client may add `tokens` tokens.

        It may if it then occupies no more than it leaves free of `limit`. An empty queue takes any number,
        and a queue that is not full takes any request that `returned` when it was told to.
        """
        taken = self.occupied
        if returned and taken < limit:
            return True
        return taken == 0 or tokens == 0 or self.occupancy(client) + tokens <= limit - taken - tokens

    @property
    def occupied(self) -> int:
        """How much of the capacity all clients use together, in tokens."""
        return self.tokens + self.reserved + self._client_totals.elsewhere

    def occupancy(self, client: str) -> int:
        """Return how much of the capacity a client uses, in tokens."""
        queue = self._queues.get(client)
        return (queue.occupancy if queue else 0) + self._client_totals.elsewhere_of(client)

    def reserve(self, client: str, tokens: int) -> None:
        """Reserve capacity for a request still to be queued; a negative number releases it."""
        queue = self._queue_of(client)
        queue.reserved += tokens
        self.reserved += tokens
        (self._reserving.add if queue.reserved else self._reserving.discard)(queue)
        self._client_totals.add(client, tokens)
        self._start_afresh_if_idle()

    def add(self, client: str, sequences: Sequence[SizedT]) -> None:
        """Append sequences to a client's queue."""
        queue = self._queue_of(client)
        tokens = sum(sequence.tokens for sequence in sequences)
        if sequences and not queue.waiting:
            queue.tag = max(queue.tag, self._clock)
            insort(self._order, queue, key=_tag)
        queue.waiting.extend(sequences)
        self._count(queue, tokens, len(sequences))

    def first(self, number: int) -> "list[tuple[ClientQueue[SizedT], SizedT]]":
        """List up to `number` sequences in the order in which they are due, without removing them."""
        if len(self._order) == 1:
            queue = self._order[0]
            return [(queue, sequence) for sequence in islice(queue.waiting, number)]
        return _merge(self._order[:number], number)

    def first_light(self, number: int, lightest: int = 0) -> "list[tuple[ClientQueue[SizedT], SizedT]]":
        """List as `first` does, but only for clients that are light compared with the running ones.

        Clients that are heavy compared with a client of weight `lightest` are left out.
        """
        return _merge(self._light(lightest), number)

    def is_light(self, weight: int) -> bool:
        """Whether a client of this weight is light compared with a running or waiting one."""
        first = self._order[:_MAX_SCANNED]
        return is_light(weight, max((self._heaviest, *(queue.weight for queue in first))))

    @property
    def beside_heaviest(self) -> int:
        """How many tokens wait here or are reserved, without those of the heaviest client."""
        some = chain(self._order[:_MAX_SCANNED], islice(self._reserving, _MAX_SCANNED))
        return self.tokens + self.reserved - max((queue.occupancy for queue in some), default=0)

    def has_light(self, lightest: int = 0) -> bool:
        """Whether `first_light` would return anything."""
        return bool(self._light(lightest))

    def queues(self) -> "Iterator[ClientQueue[SizedT]]":
        """Iterate over the queues in which something waits."""
        return iter(self._order)

    def first_by(
        self, key: Callable[[SizedT], float], number: int
    ) -> "list[tuple[ClientQueue[SizedT], SizedT]]":
        """List up to `number` sequences of all clients by `key`; each client's must wait in that order."""
        entries = (zip(repeat(queue), queue.waiting) for queue in self.queues())
        return list(islice(heapq.merge(*entries, key=lambda entry: key(entry[1])), number))

    @property
    def backlogged(self) -> int:
        """How many clients have something waiting."""
        return len(self._order)

    def take(self, taken: "Sequence[tuple[ClientQueue[SizedT], SizedT]]") -> None:
        """Remove sequences that `first` listed, in its order, and count them as running."""
        by_queue: dict[ClientQueue[SizedT], list[SizedT]] = {}
        for queue, sequence in taken:
            by_queue.setdefault(queue, []).append(sequence)
        clients = len(self._order)
        self._clock = max(self._clock, self._order[0].tag)
        for queue, sequences in by_queue.items():
            tokens = sum(sequence.tokens for sequence in sequences)
            self._order.remove(queue)
            _remove(queue.waiting, sequences)
            self._count(queue, -tokens, -len(sequences))
            queue.tag += tokens
            if queue.waiting:
                insort(self._order, queue, key=_tag)
            queue.running += tokens
            self._working.add(queue)
            # As if there were one more client: a newcomer starts ahead of clients that have used much.
            self._clock += tokens / (clients + 1)
        self._heaviest = max(queue.weight for queue in self._working)

    def finish(self, done: Iterable[tuple[str, int]]) -> None:
        """Stop counting clients' tokens as running."""
        for client, tokens in done:
            queue = self._queues[client]
            queue.running -= tokens
            if not queue.running:
                self._working.discard(queue)
        self._heaviest = max((queue.weight for queue in self._working), default=0)
        self._start_afresh_if_idle()

    def drop(self, clients: Iterable[str], unwanted: Callable[[SizedT], bool]) -> None:
        """Drop unwanted waiting sequences of these clients."""
        queues = [queue for client in clients if (queue := self._queues.get(client)) is not None]
        for queue in queues:
            left = [sequence for sequence in queue.waiting if not unwanted(sequence)]
            tokens = sum(sequence.tokens for sequence in left)
            self._count(queue, tokens - queue.waiting_tokens, len(left) - len(queue.waiting))
            queue.waiting = deque(left)
        self._order = [queue for queue in self._order if queue.waiting]
        self._start_afresh_if_idle()

    def _queue_of(self, client: str) -> ClientQueue[SizedT]:
        queue = self._queues.get(client)
        if queue is None:
            if len(self._queues) >= self._forget_at:
                self._forget()
            queue = self._queues[client] = ClientQueue(client, self._clock)
        return queue

    def _count(self, queue: ClientQueue[SizedT], tokens: int, inputs: int) -> None:
        queue.waiting_tokens += tokens
        self.tokens += tokens
        self._client_totals.add(queue.client, tokens)
        self.inputs += inputs

    def _light(self, lightest: int) -> "list[ClientQueue[SizedT]]":
        """List the clients among the first ones that are light compared with what is running."""
        if self._heaviest < _HEAVY:
            return []
        return [
            queue
            for queue in self._order[:_MAX_SCANNED]
            if is_light(queue.weight, self._heaviest) and not (lightest and is_light(lightest, queue.weight))
        ]

    def _start_afresh_if_idle(self) -> None:
        """Forget what clients have used once none has any work: all are equal again."""
        if not (self.inputs or self.reserved or self._working):
            self._queues.clear()

    def _forget(self) -> None:
        """Forget idle clients: those that used no more than their share, or all if many used more."""
        busy = {client: queue for client, queue in self._queues.items() if not queue.idle}
        ahead = {client: queue for client, queue in self._queues.items() if queue.tag > self._clock}
        self._queues = busy | (ahead if len(ahead) < _REMEMBERED else {})
        self._forget_at = len(self._queues) + _REMEMBERED


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


def _merge(
    queues: "Iterable[ClientQueue[SizedT]]", number: int
) -> "list[tuple[ClientQueue[SizedT], SizedT]]":
    """List up to `number` sequences of these queues, in order of the virtual time at which each is due."""
    due = heapq.merge(*map(_due, queues), key=itemgetter(0))
    return [(queue, sequence) for _, queue, sequence in islice(due, number)]


def _due(queue: "ClientQueue[SizedT]") -> "Iterator[tuple[float, ClientQueue[SizedT], SizedT]]":
    tag = queue.tag
    for sequence in queue.waiting:
        yield tag, queue, sequence
        tag += sequence.tokens
