"""One replica in a simulation: the cost of a batch, and how batches are made when a lane becomes free.

It models the service (`queueing`, `batching` and `runner` in `service/engine/`): one queue, bounded in
tokens. A batch is made of the waiting requests at the moment it can run, up to a budget of tokens. The first
lane takes any amount, another lane only enough to be worthwhile. A single request uses all cores. All
requests are from one client, and the queue is `queue_batches` long: the service shares its queue between
clients (`service/engine/fairness.py`), which is not simulated. Two things are simplified: all texts of a
request have the same length, and a batch is filled to its last token, where the service leaves a gap of less
than a text. `tests/benchmarks/test_replica.py` compares it with a replica that is fed text by text through
the service's own `take_batch`.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from service.engine.queueing import WORTH_A_LANE

_LONG_S = 0.1

Batch = list[tuple[int, int]]
"""The requests that run together, and how many tokens of each."""


@dataclass(frozen=True)
class Costs:
    """Seconds that work takes, and the sizes of batch and queue in tokens.

    A batch takes `batch_s`, and more for each of its tokens and texts; a batch on all cores takes the times
    that begin with `alone`. `request_s` is the core time of reading and answering a request, during which no
    batch uses that core; `fixed_s` is added only to the latency of the request.
    """

    lanes: int
    budget: int
    batch_s: float
    token_s: float
    text_s: float
    alone_batch_s: float
    alone_token_s: float
    alone_text_s: float
    request_s: float
    fixed_s: float
    worth_a_lane: int = WORTH_A_LANE
    queue_batches: int = 64

    @property
    def max_queue_tokens(self) -> int:
        """How many tokens may wait."""
        return self.queue_batches * self.budget

    def capacity(self, tokens: float, texts: float) -> float:
        """How many requests per second one replica can answer, given their mean tokens and texts."""
        batches = tokens / self.budget
        seconds = batches * self.batch_s + tokens * self.token_s + texts * self.text_s + self.request_s
        return self.lanes / seconds


class Work:
    """The requests of a simulation and their costs: tokens, and seconds for each of their tokens."""

    def __init__(self, tokens: Sequence[int], texts: Sequence[int], costs: Costs) -> None:
        self.tokens = list(tokens)
        per_text = [count / size for count, size in zip(texts, tokens, strict=True)]
        self.token_s = [costs.token_s + costs.text_s * share for share in per_text]
        self.alone_token_s = [costs.alone_token_s + costs.alone_text_s * share for share in per_text]
        self.untaken = list(self.tokens)
        self.unfinished = list(self.tokens)


class Replica:
    """A queue and its lanes. Times are seconds of the simulation; requests are known by their index."""

    __slots__ = ("_costs", "_idle", "_queued", "_waiting", "_work", "waiting_tokens")

    def __init__(self, costs: Costs, work: Work) -> None:
        self._costs = costs
        self._work = work
        self._waiting: deque[int] = deque()
        self._queued: deque[float] = deque()
        self._idle = list(range(costs.lanes))
        self.waiting_tokens = 0

    def accept(self, request: int, now: float) -> bool:
        """Add a request to the queue; False if the queue is full. An empty queue accepts any request."""
        tokens = self._work.tokens[request]
        if self.waiting_tokens and self.waiting_tokens + tokens > self._costs.max_queue_tokens:
            return False
        self._waiting.append(request)
        self._queued.append(now)
        self.waiting_tokens += tokens
        return True

    def start(self, now: float) -> tuple[float, int, Batch] | None:
        """Start a batch if a lane is free: returns when it will end, its lane, and its content."""
        if not self._idle or not self.waiting_tokens:
            return None
        lane = self._idle[0]
        if lane and self.waiting_tokens < self._costs.worth_a_lane and now - self._queued[0] <= _LONG_S:
            return None
        undisturbed = len(self._idle) == self._costs.lanes
        del self._idle[0]
        batch = self._take()
        alone = undisturbed and len(batch) == 1 and not self._waiting
        return now + self._seconds(batch, alone=alone), lane, batch

    def finish(self, lane: int, batch: Batch) -> list[int]:
        """End a batch; returns the requests that are now complete."""
        self._idle.append(lane)
        self._idle.sort()
        unfinished, ended = self._work.unfinished, []
        for request, tokens in batch:
            unfinished[request] -= tokens
            if not unfinished[request]:
                ended.append(request)
        return ended

    def _take(self) -> Batch:
        """Take the next batch from the head of the queue; of a large request what fits."""
        room, batch = self._costs.budget, []
        untaken, waiting = self._work.untaken, self._waiting
        while room and waiting:
            request = waiting[0]
            tokens = untaken[request]
            if tokens <= room:
                waiting.popleft()
                self._queued.popleft()
            else:
                tokens = room
            untaken[request] -= tokens
            room -= tokens
            batch.append((request, tokens))
        self.waiting_tokens -= self._costs.budget - room
        return batch

    def _seconds(self, batch: Batch, *, alone: bool) -> float:
        costs, untaken = self._costs, self._work.untaken
        token_s = self._work.alone_token_s if alone else self._work.token_s
        seconds = costs.alone_batch_s if alone else costs.batch_s
        for request, tokens in batch:
            seconds += tokens * token_s[request]
            if not untaken[request]:
                seconds += costs.request_s
        return seconds
