"""How many inputs to send per request, so that the service accepts it and other clients have room.

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
"""Of one request of a call with several: larger ones gain nothing, and delay other clients."""
QUEUE_TOKENS = 65536
"""The assumed queue size of a service that does not report it."""
SHARE = 2
"""The requests of one call fill at most 1/SHARE of the queue."""

_BYTES_PER_TOKEN = 3  # in UTF-8: English rarely has fewer, and a CJK character is one token of three bytes
_MARGIN = 0.9  # of the number that should fit according to a refusal: texts differ in length
_TOO_MUCH = frozenset({413, 504})
_TOO_SHORT = "urn:headlight:deadline-too-short"


@dataclass(frozen=True)
class Limits:
    """The service's limits, from `/info`. `max_length` and `queue_tokens` are in tokens."""

    inputs: int = MAX_INPUTS
    body_bytes: int = MAX_BODY_BYTES
    queue_tokens: int = QUEUE_TOKENS
    max_length: int | None = None

    @classmethod
    def of(cls, info: Mapping[str, Any], model: str | None) -> "Limits":
        """Read the limits of a model, the first by default, from `/info`; missing ones get our defaults."""
        limits: Mapping[str, Any] = info.get("limits") or {}
        models: Sequence[Mapping[str, Any]] = info.get("models") or []
        served = next((one for one in models if model in (None, one.get("name"))), {})
        return cls(
            inputs=limits.get("max_inputs") or MAX_INPUTS,
            body_bytes=min(limits.get("max_body_bytes") or MAX_BODY_BYTES, MAX_BODY_BYTES),
            queue_tokens=served.get("max_queue_tokens") or QUEUE_TOKENS,
            max_length=served.get("max_length"),
        )


WHOLE = Limits(queue_tokens=sys.maxsize)
"""For a call that is small enough to be tried in one request."""


class Parts(Iterator[range]):
    """The parts of a call, one per request; after one is refused as too large, later ones are smaller.

    `sizes` are the bytes of each input as JSON, `frame_bytes` those of the rest of a body. `concurrency`
    tasks of one event loop may take parts concurrently. `called` is the caller's name of the inputs, for
    errors, if that is another than the service's.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        limits: Limits,
        frame_bytes: int,
        concurrency: int,
        called: str | None = None,
    ) -> None:
        self._sizes = sizes
        self._limits = limits
        self._frame_bytes = frame_bytes
        self._tokens = max(1, limits.queue_tokens // (SHARE * concurrency))
        self._called = called
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
        """Split a part that was too large or too slow, to be resent; raises any other error."""
        count = self.learn(error, len(part))
        if count is None:
            self.place(error, part)
            raise error
        log.info("%s: inputs %d to %d are sent again, %d at a time", error, part.start, part.stop - 1, count)
        cut = (range(i, min(i + count, part.stop)) for i in range(part.start, part.stop, count))
        self._again.extend(cut)

    def place(self, error: HeadlightError, part: range) -> None:
        """Record in an error which inputs it concerns, unless they are all of the call."""
        if len(part) < len(self._sizes):
            error.place(part)
        if self._called is not None:
            error.rename(self._called)

    def learn(self, error: HeadlightError, count: int) -> int | None:
        """Return how many inputs to send per request if `count` were too many; None for any other error."""
        if not is_too_much(error) or count == 1:
            return None
        fitting = _fitting(error, count)
        self._limits = replace(self._limits, inputs=min(self._limits.inputs, fitting))
        return math.ceil(count / math.ceil(count / fitting))  # parts of equal size

    def _fitting(self, start: int) -> int:
        """Count the inputs from `start` that fit into one request: at least one, whatever its size."""
        size, tokens = self._frame_bytes, 0.0
        last = min(len(self._sizes), start + self._limits.inputs)
        for i in range(start, last):
            size += self._sizes[i] + 1
            tokens += min(self._limits.max_length or math.inf, self._sizes[i] / _BYTES_PER_TOKEN)
            if size > self._limits.body_bytes or tokens > self._tokens:
                return max(1, i - start)
        return last - start


def is_too_much(error: HeadlightError) -> bool:
    """Whether the service may do a part of what it refused: it was too large, or takes too long."""
    return error.status in _TOO_MUCH or error.type == _TOO_SHORT


def _fitting(error: HeadlightError, count: int) -> int:
    """Estimate how many of `count` inputs would fit, from the limits in a refusal: 1 to count - 1."""
    limit, actual = error.limit, error.actual
    if not isinstance(limit, int | float) or not isinstance(actual, int | float) or not 0 < limit < actual:
        return count // 2  # a proxy's 413, or a timeout: no numbers to calculate with
    margin = 1.0 if error.type.endswith("too-many-inputs") else _MARGIN
    return min(count - 1, max(1, int(margin * count * limit / actual)))
