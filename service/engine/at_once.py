"""Runs a short text at once, on the event loop, for a client that has the service to itself."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from model.contract import Backend, Batch, Encoding, Output, Want
from service.engine.device import Device
from service.engine.runner import is_finite
from service.engine.throughput import Throughput
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

# The event loop does nothing else meanwhile. As long may it wait for the interpreter (`service/process.py`).
_BRIEF_S = 0.003


_SAMPLES = 10  # of which the fastest counts: other workers start, too


@dataclass(slots=True)
class AtOnce:
    """Saves handing a batch to a runner's thread and its outputs back, which takes as long as a short pass.

    Only passes that are one call of the native kernels run here: of PyTorch's steps each would wake threads
    that another thread started. `most_tokens` is how many take so little time that others may wait for them.
    """

    name: str
    backend: Backend
    device: Device
    metrics: Metrics
    throughput: Throughput
    most_tokens: int = 0
    _has_helpers: bool = False

    def measure(self, encoding: Encoding, want: Want) -> None:
        """Set `most_tokens` by the time that a text takes in this thread; 0 without native kernels."""
        if self.backend.info.kernels in (None, "amx"):  # with the latter, PyTorch multiplies
            return
        seconds = []
        for _ in range(_SAMPLES):
            start = time.perf_counter()
            self.backend.run(Batch.pack([encoding], [want]))
            seconds.append(time.perf_counter() - start)
        self.most_tokens = int(_BRIEF_S * len(encoding) / min(seconds))

    def run(self, encodings: Sequence[Encoding], wants: Sequence[Want]) -> list[Output] | None:
        """Run the sequences of a request; None if a runner must run them.

        That is so if they take long, if something else runs or waits, or if they fail: the runner finds out
        which one it was, and counts the failure.
        """
        tokens = sum(len(encoding) for encoding in encodings)
        most = min(self.most_tokens, self.throughput.budget)
        if tokens > most or not all(_is_plain(want) for want in wants):
            return None
        turn = self.device.turn_at_once(self.name)
        if turn is None:
            return None
        self.device.charge(turn, tokens)
        self._has_helpers = True
        start = time.perf_counter()
        try:
            outputs = self.backend.run(Batch.pack(encodings, wants))
        except Exception:
            log.debug("a batch of %s failed on the event loop", self.name, exc_info=True)
            return None
        finally:
            self.device.release(turn)
        if not all(is_finite(output) for output in outputs):
            return None
        self.throughput.record_batch(tokens, time.perf_counter() - start, lanes=1)
        padding = self.backend.cost([len(encoding) for encoding in encodings]) - tokens
        self.metrics.batch(self.name, inputs=len(outputs), tokens=tokens, padding=padding)
        return outputs

    def rest(self) -> None:
        """End the threads that help, since there are others for a runner.

        With more threads than cores, all would sleep after each pass instead of spinning for the next.
        """
        if self._has_helpers:
            self._has_helpers = False
            self.backend.give_back()


def _is_plain(want: Want) -> bool:
    """Whether a sequence wants only hidden states, pooled or not, which takes one pass and no other step."""
    return want.attention is None and want.summary is None and want.task is None and not want.heads
