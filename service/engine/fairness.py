"""Which client is next, and how much of a queue each may hold. No threads, no time: `WaitingQueue` locks it.

The order is start-time fair queueing over tokens (Goyal, Vin & Cheng 1996), as between the models of a device
(`device.py`): clients that always have work get equal shares of the tokens, a client that was idle
begins where the others are, and one that asks for little is never behind what another has piled up.

The room is shared by a dynamic threshold (Choudhury & Hahne 1998): a client may hold no more of the queue
than it leaves free. So one alone gets half of it, two a third each, and one that comes later finds some.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Generic, Protocol, TypeVar

# So many clients that have no work are remembered by what they used of late; the others begin anew.
_MOST_REMEMBERED = 4096
# A client of which several times less waits and runs than of the heaviest one is a light one beside it, where
# that one is long at work.
_TIMES_HEAVIER = 4
_HEAVY = 128
_LOOKED_AT = 32


class Sized(Protocol):
    """What waits: of so many tokens."""

    @property
    def tokens(self) -> int:
        """How many tokens it has, one at least."""


SizedT = TypeVar("SizedT", bound=Sized)


class Line(Generic[SizedT]):
    """What one client has in the queue, in order of arrival. Sizes are in tokens.

    `reserved` is for requests that are still being tokenized. `tag` is what the client has been given so far,
    counted like the queue's clock.
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
    def held(self) -> int:
        """How much of the queue's room the client takes."""
        return self.waiting_tokens + self.reserved

    @property
    def weight(self) -> int:
        """How much work of the client there is to wait for."""
        return self.waiting_tokens + self.running

    @property
    def idle(self) -> bool:
        """Whether there is nothing of the client."""
        return not (self.waiting or self.reserved or self.running)


_Entry = tuple[float, int, Line[SizedT]]


class FairLines(Generic[SizedT]):
    """The lines of all clients. Each operation costs the logarithm of their number for each sequence."""

    def __init__(self) -> None:
        self.tokens = 0
        """What waits, in tokens."""
        self.reserved = 0
        self.inputs = 0
        """How many sequences wait."""
        self._clock = 0.0
        self._lines: dict[str, Line[SizedT]] = {}
        self._order: list[_Entry[SizedT]] = []
        """A heap of the lines in which something waits, by their tags."""
        self._idle: list[_Entry[SizedT]] = []
        """A heap of lines that were idle when they were put there."""
        self._working: set[Line[SizedT]] = set()
        """The lines of which something runs."""
        self._heaviest = 0
        """The weight of the heaviest of them when the last batch began or ended."""
        self._serial = count()

    def __len__(self) -> int:
        """Count the clients that are known, by work or by what they used of late."""
        return len(self._lines)

    def may_hold(self, client: str, tokens: int, limit: float) -> bool:
        """Whether a client may take the room of so many more tokens.

        It holds then no more than it leaves free of `limit`. Where there is nothing at all, any number fits.
        """
        taken = self.tokens + self.reserved
        line = self._lines.get(client)
        held = line.held if line else 0
        return taken == 0 or tokens == 0 or held + tokens <= limit - taken - tokens

    def held(self, client: str) -> int:
        """How many tokens of the room a client has taken."""
        line = self._lines.get(client)
        return line.held if line else 0

    def reserve(self, client: str, tokens: int) -> None:
        """Take room for a request that is yet to come; a negative number gives it back."""
        line = self._line(client)
        line.reserved += tokens
        self.reserved += tokens
        self._rest(line)

    def add(self, client: str, sequences: Sequence[SizedT]) -> None:
        """Let sequences of a client wait behind its others."""
        line = self._line(client)
        tokens = sum(sequence.tokens for sequence in sequences)
        if sequences and not line.waiting:
            line.tag = max(line.tag, self._clock)
            heapq.heappush(self._order, (line.tag, next(self._serial), line))
        line.waiting.extend(sequences)
        self._count(line, tokens, len(sequences))

    def first(self, number: int) -> "list[tuple[Line[SizedT], SizedT]]":
        """List up to so many sequences in the order in which they are due; nothing is removed."""
        if len(self._order) == 1:
            line = self._order[0][2]
            return [(line, sequence) for sequence in islice(line.waiting, number)]
        return list(islice(_merge(islice(_ascending(self._order), number)), number))

    def first_light(self, number: int, lightest: int = 0) -> "list[tuple[Line[SizedT], SizedT]]":
        """List as `first` does, of the clients alone that are light beside those of which something runs.

        Not of those that are heavy beside a client of so much work as `lightest`.
        """
        return list(islice(_merge(self._light(lightest)), number))

    def is_light(self, weight: int) -> bool:
        """Whether a client of so much work is light beside one of those of which something runs or waits."""
        first = islice(_ascending(self._order), _LOOKED_AT)
        return is_light(weight, max((self._heaviest, *(line.weight for _, _, line in first))))

    def has_light(self, lightest: int = 0) -> bool:
        """Whether `first_light` would list anything."""
        return next(self._light(lightest), None) is not None

    def oldest(self) -> Iterator[SizedT]:
        """Go through the clients' oldest sequences."""
        return (line.waiting[0] for _, _, line in self._order)

    def take(self, taken: "Sequence[tuple[Line[SizedT], SizedT]]") -> None:
        """Remove sequences that `first` listed, in its order: they run from now on."""
        by_line: dict[Line[SizedT], list[SizedT]] = {}
        for line, sequence in taken:
            by_line.setdefault(line, []).append(sequence)
        clients = len(self._order)
        self._clock = max(self._clock, self._order[0][0])
        popped = self._pop(by_line)
        for line, sequences in by_line.items():
            tokens = sum(sequence.tokens for sequence in sequences)
            _remove(line.waiting, sequences)
            self._count(line, -tokens, -len(sequences))
            line.tag += tokens
            line.running += tokens
            self._working.add(line)
            # As if one more had its share: who comes now is before those that had much.
            self._clock += tokens / (clients + 1)
        for serial, line in popped:
            if line.waiting:
                heapq.heappush(self._order, (line.tag, serial, line))
        self._heaviest = max(line.weight for line in self._working)
        self._forget()

    def finish(self, done: Iterable[tuple[str, int]]) -> None:
        """Count tokens of clients as running no more."""
        for client, tokens in done:
            line = self._lines[client]
            line.running -= tokens
            if not line.running:
                self._working.discard(line)
                self._rest(line)
        self._heaviest = max((line.weight for line in self._working), default=0)

    def drop(self, clients: Iterable[str], unwanted: Callable[[SizedT], bool]) -> None:
        """Drop what is unwanted of what waits of these clients."""
        lines = [line for client in clients if (line := self._lines.get(client)) is not None]
        for line in lines:
            left = [sequence for sequence in line.waiting if not unwanted(sequence)]
            tokens = sum(sequence.tokens for sequence in left)
            self._count(line, tokens - line.waiting_tokens, len(left) - len(line.waiting))
            line.waiting = deque(left)
        if any(not line.waiting for line in lines):
            self._order = [entry for entry in self._order if entry[2].waiting]
            heapq.heapify(self._order)
        for line in lines:
            self._rest(line)

    def _line(self, client: str) -> Line[SizedT]:
        line = self._lines.get(client)
        if line is None:
            line = self._lines[client] = Line(client, self._clock)
        return line

    def _count(self, line: Line[SizedT], tokens: int, inputs: int) -> None:
        line.waiting_tokens += tokens
        self.tokens += tokens
        self.inputs += inputs

    def _pop(self, lines: Iterable[Line[SizedT]]) -> list[tuple[int, Line[SizedT]]]:
        """Take the first lines out of the order until these are out; returns all, with their serials."""
        left, popped = set(lines), []
        while left:
            _, serial, line = heapq.heappop(self._order)
            popped.append((serial, line))
            left.discard(line)
        return popped

    def _light(self, lightest: int) -> "Iterator[_Entry[SizedT]]":
        """Go through the light clients among the first ones, beside what runs."""
        if self._heaviest >= _HEAVY:
            for entry in islice(_ascending(self._order), _LOOKED_AT):
                weight = entry[2].weight
                if is_light(weight, self._heaviest) and not (lightest and is_light(lightest, weight)):
                    yield entry

    def _rest(self, line: Line[SizedT]) -> None:
        """Remember a line that has become idle until the clock is where it is."""
        if line.idle and not line.remembered:
            self._remember(line)
        self._forget()

    def _remember(self, line: Line[SizedT]) -> None:
        line.remembered = True
        heapq.heappush(self._idle, (line.tag, next(self._serial), line))

    def _forget(self) -> None:
        if not (self.inputs or self.reserved or self._working):
            # There is nothing of any client: all begin anew, as equals.
            for everything in (self._lines, self._order, self._idle):
                everything.clear()
            return
        idle = self._idle
        while idle and (idle[0][0] <= self._clock or len(idle) > _MOST_REMEMBERED):
            line = heapq.heappop(idle)[2]
            line.remembered = False
            if not line.idle:
                continue  # it is at work again
            if line.tag > self._clock and len(idle) < _MOST_REMEMBERED:
                self._remember(line)
            else:
                del self._lines[line.client]


def companions(
    ahead: "Sequence[tuple[Line[SizedT], SizedT]]",
) -> "list[tuple[Line[SizedT], SizedT]]":
    """Leave in the list those alone that may be in one batch with the first.

    A batch lasts as long as all of it: a light client is not put into one with a heavy one.
    """
    first = ahead[0][0].weight if ahead else 0
    weights = {line: line.weight for line, _ in ahead}
    return [
        one for one in ahead if not is_light(first, weights[one[0]]) and not is_light(weights[one[0]], first)
    ]


def is_light(tokens: int, heaviest: int) -> bool:
    """Whether a client with so many tokens should not have to wait for batches of the heaviest."""
    return heaviest >= _HEAVY and _TIMES_HEAVIER * tokens <= heaviest


def _remove(waiting: "deque[SizedT]", sequences: Sequence[SizedT]) -> None:
    """Remove sequences, in the order in which they wait, from near the head."""
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
    """Go through a heap from its least on; the first k cost k steps of log(k), however large it is."""
    ahead = [(heap[0], 0)] if heap else []
    while ahead:
        entry, place = heapq.heappop(ahead)
        yield entry
        for child in (2 * place + 1, 2 * place + 2):
            if child < len(heap):
                heapq.heappush(ahead, (heap[child], child))


def _merge(entries: "Iterable[_Entry[SizedT]]") -> "Iterator[tuple[Line[SizedT], SizedT]]":
    """Merge lines by what each will have been given when a sequence of it is due."""
    due = [(tag, serial, line, iter(line.waiting)) for tag, serial, line in entries]
    while due:
        tag, serial, line, sequences = due[0]
        sequence = next(sequences, None)
        if sequence is None:
            heapq.heappop(due)
        else:
            yield line, sequence
            heapq.heapreplace(due, (tag + sequence.tokens, serial, line, sequences))
