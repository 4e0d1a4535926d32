"""Runs a short text at once, on the event loop, while the process serves only one or two connections."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from model.choices import ContributionsWant
from model.contract import Backend, Batch, Encoding, LogitsWant, Output, Want
from model.static.queries import table_want
from service.engine.lane_scheduler import LaneScheduler
from service.engine.runner import is_finite
from service.engine.throughput import Throughput
from service.system.off_loop import off_loop
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

# The event loop does nothing else for this long: it may wait as long for the interpreter anyway
# (`system/process.py`). A pass takes longer if another process still has all cores, for a batch that it began
# while this one was idle.
_BRIEF_S = 0.003
# Looking up this many takes a millisecond.
_FEW_QUERIES = 32
# Heads of a layer or two on the pooled or last hidden states. Weights of all words outlast a short pass.
_FEW_NUMBERS = (LogitsWant, ContributionsWant)


@dataclass(slots=True)
class InlinePasses:
    """Runs short passes on the event loop: to hand one to a runner and back would take as long as the pass.

    Only backends that prepare short passes run here: in others, PyTorch would wake helper threads at each
    step. No supervisor ends such a pass: if it hung, the event loop would stand still, and with it the
    process.
    """

    name: str
    backend: Backend
    scheduler: LaneScheduler
    metrics: Metrics
    throughput: Throughput

    async def look_up(self, encodings: Sequence[Encoding], wants: Sequence[Want]) -> list[Output] | None:
        """Return what a table holds for the tokens of queries; None for requests that need a pass.

        That takes some microseconds per text, so it needs no lane and no turn.
        """
        if not all(map(table_want, wants)):
            return None

        def run() -> list[Output]:
            return self.backend.run(Batch.pack(encodings, wants))

        return run() if len(encodings) <= _FEW_QUERIES else await off_loop(run)

    def run(self, encodings: Sequence[Encoding], wants: Sequence[Want]) -> list[Output] | None:
        """Run the sequences of a request; None if a runner must run them.

        That is so if they would take long, if something else of this process runs or waits, or if one of them
        fails: the runner finds out which one, and counts the failure.
        """
        if not (self.backend.prepares_short and all(map(_is_plain, wants))):
            return None
        lengths = [len(encoding.token_ids) for encoding in encodings]
        tokens = max(1, len(lengths), sum(lengths))
        # All cores help, unless other processes use theirs.
        lanes = 1 if self.scheduler.siblings_idle else self.scheduler.shares
        # Only so few tokens run here, on all cores, that others may wait for them.
        if tokens * lanes > min(_BRIEF_S * self.throughput.tokens_per_s, self.throughput.budget):
            return None
        turn = self.scheduler.try_turn(self.name, tokens, self.backend.end_helpers)
        if turn is None:
            return None
        start = time.perf_counter()
        try:
            outputs = self.backend.run(Batch.pack(encodings, wants), lanes=lanes)
        except Exception:
            log.debug("a batch of %s failed on the event loop", self.name, exc_info=True)
            return None
        finally:
            self.scheduler.release(turn)
        if not all(map(is_finite, outputs)):
            return None
        self.throughput.record_batch(lengths, time.perf_counter() - start, lanes=lanes)
        padding = self.backend.cost(lengths) - tokens
        self.metrics.batch(self.name, inputs=len(outputs), tokens=tokens, padding=padding)
        return outputs


def _is_plain(want: Want) -> bool:
    """Whether a sequence wants only hidden states or a few numbers made of them, in one pass."""
    if want.task is not None or want.interventions is not None or want.gradient is not None:
        return False
    if want.attention is not None or want.summary is not None or want.lens is not None:
        return False
    return all(isinstance(head, _FEW_NUMBERS) for head in want.heads)
