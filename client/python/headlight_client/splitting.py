"""How many inputs go into one request, so that the service takes it and others have room beside it.

Nothing here sends anything.
"""

import logging
import math
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headlight_client.errors import HeadlightError

log = logging.getLogger("headlight_client")

MAX_INPUTS = 256
MAX_BODY_BYTES = 512 * 1024
"""Of one request among several: larger ones save nothing, and hold others up."""
QUEUE_TOKENS = 65536
"""What a service that does not say it is taken to queue."""
SHARE = 2
"""Requests of one call fill at most one part in `SHARE` of the queue."""

_BYTES_PER_TOKEN = 3  # of UTF-8: fewer in English are rare, and a CJK character is one token of three bytes
_MARGIN = 0.9  # of what a refusal says would fit: texts are not all of one length


TOO_LARGE = 413
TOO_LATE = 504


@dataclass(frozen=True)
class Limits:
    """What the service takes, of which `/info` speaks. `max_length` is in tokens, `queue_tokens` too."""

    inputs: int = MAX_INPUTS
    body_bytes: int = MAX_BODY_BYTES
    queue_tokens: int = QUEUE_TOKENS
    max_length: int | None = None

    @classmethod
    def of(cls, info: Mapping[str, Any], model: str | None) -> "Limits":
        """Read what `/info` says of a model, the first by default; what it leaves out is as it is here."""
        said: Mapping[str, Any] = info.get("limits") or {}
        models: Sequence[Mapping[str, Any]] = info.get("models") or []
        served = next((one for one in models if model in (None, one.get("name"))), {})
        return cls(
            inputs=said.get("max_inputs") or MAX_INPUTS,
            body_bytes=min(said.get("max_body_bytes") or MAX_BODY_BYTES, MAX_BODY_BYTES),
            queue_tokens=served.get("max_queue_tokens") or QUEUE_TOKENS,
            max_length=served.get("max_length"),
        )


WHOLE = Limits(queue_tokens=sys.maxsize)
"""Of a call that is small enough to be tried in one request."""


class Parts(Iterator[range]):
    """The parts of a call, each for one request; later ones are smaller when one is refused as too large.

    `sizes` are the bytes of each input as JSON, `frame_bytes` what a body has besides. Parts may be taken by
    `concurrency` tasks of one event loop, so many requests being on their way at a time.
    """

    def __init__(self, sizes: Sequence[int], limits: Limits, frame_bytes: int, concurrency: int) -> None:
        self._sizes = sizes
        self._limits = limits
        self._frame_bytes = frame_bytes
        self._tokens = max(1, limits.queue_tokens // (SHARE * concurrency))
        self._start = 0
        self._again: deque[range] = deque()

    def __next__(self) -> range:
        if self._again:
            return self._again.popleft()
        if self._start == len(self._sizes):
            raise StopIteration
        part = range(self._start, self._start + self._fitting(self._start))
        self._start = part.stop
        return part

    def refused(self, error: HeadlightError, part: range) -> None:
        """Cut a part that was too large, or late, to be sent again; raises the error if it is another."""
        count = self.learn(error, len(part))
        if count is None:
            self.place(error, part)
            raise error
        log.info("%s: inputs %d to %d go in parts of %d", error, part.start, part.stop - 1, count)
        cut = (range(i, min(i + count, part.stop)) for i in range(part.start, part.stop, count))
        self._again.extend(cut)

    def place(self, error: HeadlightError, part: range) -> None:
        """Have an error say to which inputs it belongs, where they are not all of the call."""
        if len(part) < len(self._sizes):
            error.place(part)

    def learn(self, error: HeadlightError, count: int) -> int | None:
        """Say how many inputs to send at a time where `count` were too many; None if it is another error."""
        if error.status not in (TOO_LARGE, TOO_LATE) or count == 1:
            return None
        fitting = _fitting(error, count)
        self._limits = replace(self._limits, inputs=min(self._limits.inputs, fitting))
        return math.ceil(count / math.ceil(count / fitting))  # parts that are alike

    def _fitting(self, start: int) -> int:
        """Count the inputs from `start` that go into one request: at least one, whatever its size."""
        size, tokens = self._frame_bytes, 0.0
        last = min(len(self._sizes), start + self._limits.inputs)
        for i in range(start, last):
            size += self._sizes[i] + 1
            tokens += min(self._limits.max_length or math.inf, self._sizes[i] / _BYTES_PER_TOKEN)
            if size > self._limits.body_bytes or tokens > self._tokens:
                return max(1, i - start)
        return last - start


def _fitting(error: HeadlightError, count: int) -> int:
    """Guess how many inputs of `count` would fit, from what a 413 says: 1 to count - 1."""
    limit, actual = error.limit, error.actual
    if not isinstance(limit, int | float) or not isinstance(actual, int | float) or not 0 < limit < actual:
        return count // 2  # a proxy's own, or late: nothing to reckon with
    margin = 1.0 if error.type.endswith("too-many-inputs") else _MARGIN
    return min(count - 1, max(1, int(margin * count * limit / actual)))
