"""Requests as the engine sees them: sequences that wait for a batch, and their outputs."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

from model.contract import Encoding, Output, Want
from service.engine.admission import DeadlineTooShort
from service.engine.speed import Speed

log = logging.getLogger(__name__)

_PART_S = 0.25
# Less than this counts as nothing: sums of many numbers do not become exactly 0 again.
_NOTHING_S = 1e-9


@dataclass(slots=True, eq=False)
class Job:
    """One request's sequences and their outputs. Times are `time.perf_counter` seconds."""

    outputs: list[Output | None]
    done: asyncio.Future[None]
    enqueued: float
    remaining: int
    until: float = math.inf
    """When its client stops waiting."""
    waiting_s: float = 0.0
    """How long the sequences that still wait would take to run."""
    started: float | None = None
    finished: float | None = None
    abandoned: bool = False
    """Set when the caller no longer waits; the rest of the job is then skipped."""
    arrived: Callable[[int, Output], None] | None = None
    """Called with each output on the event loop, in order of completion; `outputs` is then not filled."""
    client: str = ""
    """Whose request it is; clients get equal shares."""
    returned: bool = False
    """Whether it was refused before, and has come back when it was told to."""

    @property
    def waited_s(self) -> float:
        """How long the first of its sequences waited in the queue."""
        return (self.started or self.enqueued) - self.enqueued

    @property
    def ran_s(self) -> float:
        """How long its sequences took once the first of them ran, if it is finished."""
        return (self.finished or self.enqueued) - (self.started or self.enqueued)

    @property
    def wanted(self) -> bool:
        """Whether its client still waits for the rest of it."""
        return not (self.abandoned or self.finished)

    def complete(self, index: int, output: Output) -> None:
        """Store the output of one sequence; the last one wakes the request."""
        if self.arrived is None:
            self.outputs[index] = output
        else:
            self._on_loop(self.arrived, index, output)
        self.remaining -= 1
        if not self.remaining:
            self.finish()

    def finish(self, error: Exception | None = None) -> None:
        """Wake the request, from any thread; later calls have no effect."""
        self.finished = self.finished or time.perf_counter()
        self._on_loop(_settle, self.done, error)

    def _on_loop(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            self.done.get_loop().call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop is closed: the service has stopped, so no request waits
            log.debug("an output arrived after the service had stopped")


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


@dataclass(slots=True, eq=False)
class Waiting:
    """One sequence in the queue; `overtaken` counts the batches that took later ones before it."""

    job: Job
    index: int
    encoding: Encoding
    want: Want
    tokens: int
    """Its length times its number of passes; at least 1, so that an empty text counts as work too."""
    seconds: float = 0.0
    """How long it would take to run together with others that keep all cores busy."""
    overtaken: int = 0


def describe(
    job: Job, encodings: Sequence[Encoding], wants: Sequence[Want], speed: Speed, within_s: float
) -> list[Waiting]:
    """Describe the sequences of a job for the queue.

    Raises DeadlineTooShort if the least time that they could take exceeds `within_s` seconds. It changes
    nothing, so it may run off the event loop.
    """
    lengths, passes = [len(encoding) for encoding in encodings], [want.passes for want in wants]
    tokens = [max(1, length) * times for length, times in zip(lengths, passes, strict=True)]
    seconds = speed.least_seconds(chain.from_iterable(map(repeat, lengths, passes)))
    if seconds > within_s:
        raise DeadlineTooShort(sum(tokens), seconds, within_s)
    expected = {length: speed.seconds(length) for length in set(lengths)}
    every = zip(encodings, wants, tokens, lengths, passes, strict=True)
    return [
        Waiting(job, i, encoding, want, size, expected[length] * times)
        for i, (encoding, want, size, length, times) in enumerate(every)
    ]


class Deadlines:
    """How much waiting work is due when, which tells whether other work may run before it.

    Amounts are summed for each interval of `_PART_S` seconds, so looking them up takes the same time however
    many requests wait.
    """

    def __init__(self) -> None:
        self._work: dict[int, float] = {}
        """Seconds of work, by the number of the interval in which it is due."""

    def add(self, until: float, seconds: float) -> None:
        """Add work that is due at a time; a negative amount takes it away."""
        if until < math.inf:
            part = int(until / _PART_S)
            left = self._work.get(part, 0.0) + seconds
            if left > _NOTHING_S:
                self._work[part] = left
            else:
                self._work.pop(part, None)

    def permit(self, seconds: float, until: float, stretch: float) -> bool:
        """Whether work of `seconds` that is due at `until` can run now without making earlier work late.

        Everything is assumed to take `stretch` times as long as if the device did nothing else.
        """
        end = time.perf_counter() + stretch * seconds
        for part in sorted(self._work):
            if (part + 1) * _PART_S > until:
                break
            end += stretch * self._work[part]
            if end > part * _PART_S:
                return False
        return True
