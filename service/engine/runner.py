"""Runs the batches of one model in a watched thread: whatever happens there, every request is answered."""

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from model.contract import Backend, Batch, Output
from model.errors import InferenceError, OutOfMemory
from service.engine.device import Device, Turn
from service.engine.queueing import EXPRESS, Waiting, WaitingQueue
from service.engine.throughput import Pace
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

FAILED = "This input could not be computed; the others of its batch were."
TOO_LARGE = "The device has not enough memory for this input: shorten it."
NOT_FINITE = "The model computed a number that is not finite for this input."
STUCK = "The computation did not come to an end."

# The lanes' batches do not stop meanwhile, but share the cores; a small one is soon over.
_EXPRESS_TOKENS = 64
# How far a heavy batch steps back for the threads of light ones and of the service itself (`nice`): these get
# three times its share of a core. Further, it would come to nothing beside other programs.
_BACKGROUND = 5


@dataclass(slots=True, eq=False)
class _Shift:
    """One thread's time at work. `relieved` is set when another has taken its place."""

    relieved: bool = False
    batch: Sequence[Waiting] = ()
    turn: Turn | None = None
    steps_back: bool = False
    """Whether the batch is one that light clients must not wait for."""
    running_since: float | None = None


class Runner:
    """One lane of an engine: takes batches from a queue and runs them on a device.

    That of lane EXPRESS takes small batches of light clients while the lanes are at work for heavy ones; the
    operating system lets it run beside them.

    A thread that hangs in native code cannot be ended: after `stuck_after_s` in one batch it is left
    behind, the batch fails, and a new thread goes on.
    """

    def __init__(
        self,
        name: str,
        backend: Backend,
        queue: WaitingQueue,
        device: Device,
        metrics: Metrics,
        pace: Pace,
        *,
        lane: int,
        stuck_after_s: float,
    ) -> None:
        self._name = name
        self._backend = backend
        self._queue = queue
        self._device = device
        self._metrics = metrics
        self._stuck_after_s = stuck_after_s
        self._pace = pace
        self._lane = lane
        self._express = lane == EXPRESS
        self._background: ThreadPoolExecutor | None = None
        self._shift = _Shift()
        self._thread = self._new_thread()

    @property
    def healthy(self) -> bool:
        """Whether the thread is there and not held up by a batch."""
        return self._thread.is_alive() and not self._overdue()

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait for the thread's end after the queue was closed."""
        if self._thread.is_alive():
            self._thread.join(timeout)

    def supervise(self, stopped_s: float = 0.0) -> bool:
        """Replace a thread that is stuck or has died; called several times a second. Tells whether it was.

        The whole process stood still for `stopped_s` since the last time, which is no fault of the thread.
        """
        shift = self._shift
        if shift.running_since is not None:
            shift.running_since += stopped_s
        if not self._overdue() and (self._thread.is_alive() or self._thread.ident is None):
            return False
        if self._queue.closed and not self._thread.is_alive():
            return False
        shift.relieved = True
        log.error("the worker of %s is stuck or has died: another takes over", self._name)
        self._metrics.inference_failure(self._name, "stuck")
        if shift.turn is not None:
            self._device.release(shift.turn)
        for waiting in shift.batch:
            waiting.job.finish(InferenceError(STUCK))
        self._queue.finish(shift.batch)
        if self._background is not None:  # it may be what hangs
            self._background.shutdown(wait=False, cancel_futures=True)
            self._background = None
        self._shift = _Shift()
        self._thread = self._new_thread()
        self._thread.start()
        return True

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(
            target=self._work, args=(self._shift,), name=f"run-{self._name}-{self._lane}", daemon=True
        )

    def _overdue(self) -> bool:
        since = self._shift.running_since
        return since is not None and time.perf_counter() - since > self._stuck_after_s

    def _work(self, shift: _Shift) -> None:
        while self._queue.wait(self._lane, lambda: not shift.relieved):
            with self._device.turn(self._name, express=self._express) as shift.turn:
                # Taken within the turn: what came while it was waited for is in the batch.
                budget = min(self._pace.budget, _EXPRESS_TOKENS) if self._express else self._pace.budget
                shift.batch, shift.steps_back = self._queue.take(
                    budget, self._backend.cost, only_light=self._express
                )
                try:
                    self._run(shift, shift.batch)
                except Exception:
                    # Nothing is left waiting, whatever went wrong between the batch and its requests.
                    log.exception("a batch of %s failed", self._name)
                    for waiting in shift.batch:
                        self._fail(waiting, "exception", FAILED)
                if not shift.relieved:
                    self._queue.finish(shift.batch)
                shift.batch = ()

    def _run(self, shift: _Shift, batch: Sequence[Waiting]) -> None:
        """Run a batch; where it fails, halve it until the fault stands alone with its request."""
        if not batch:  # another lane was faster
            return
        start = time.perf_counter()
        for waiting in batch:
            waiting.job.started = waiting.job.started or start
        try:
            outputs = self._compute(shift, batch)
        except Exception as error:
            if not shift.relieved:
                self._recover(shift, batch, error)
            return
        if shift.relieved:
            return
        for waiting, output in zip(batch, outputs, strict=True):
            if is_finite(output):
                waiting.job.complete(waiting.index, output)
            else:
                self._fail(waiting, "not-finite", NOT_FINITE)

    def _compute(self, shift: _Shift, batch: Sequence[Waiting]) -> list[Output]:
        packed = Batch.pack([w.encoding for w in batch], [w.want for w in batch])
        tokens = len(packed.input_ids)
        # Alone, a batch has all cores, else its lane's share. Only the first lane has threads to help it:
        # more of them than cores would not spin between products, but sleep.
        alone = (
            self._lane == 0
            and not shift.steps_back
            and self._queue.empty
            and self._device.asked == 1
            and all(waiting.job is batch[0].job for waiting in batch)
        )
        lanes = 1 if alone else self._device.lanes
        if shift.turn is not None:
            self._device.charge(shift.turn, tokens)
        start = shift.running_since = time.perf_counter()
        try:
            outputs = self._run_packed(packed, lanes, background=shift.steps_back)
        finally:
            shift.running_since = None
        if not self._express:
            self._pace.ran(tokens, time.perf_counter() - start, lanes=lanes)
        padding = self._backend.cost([len(w.encoding) for w in batch]) - tokens
        self._metrics.batch(self._name, inputs=len(batch), tokens=tokens, padding=padding)
        return outputs

    def _run_packed(self, packed: Batch, lanes: int, *, background: bool) -> list[Output]:
        """Run a batch, in a thread of lower priority where light clients must not wait for it.

        A thread may lower its priority and not raise it again: that one is kept for such batches.
        """
        if not (background and sys.platform == "linux"):
            return self._backend.run(packed, lanes=lanes)
        if self._background is None:
            self._background = ThreadPoolExecutor(1, f"background-{self._name}", _step_back)
        return self._background.submit(self._backend.run, packed, lanes=lanes).result()

    def _recover(self, shift: _Shift, batch: Sequence[Waiting], error: Exception) -> None:
        """Go on after a failed batch: halve it; out of memory, halve the budget too."""
        exhausted = isinstance(error, OutOfMemory)
        if exhausted and len(batch) > 1:
            tokens = sum(len(w.encoding) for w in batch)
            self._pace.halve(tokens)
            self._metrics.inference_failure(self._name, "out-of-memory")
            budget = self._pace.budget
            log.warning("%s ran out of memory with %d tokens: budget %d", self._name, tokens, budget)
        if len(batch) == 1:
            log.error("a sequence of %s failed", self._name, exc_info=error)
            self._fail(batch[0], *(("out-of-memory", TOO_LARGE) if exhausted else ("exception", FAILED)))
            return
        middle = len(batch) // 2
        self._run(shift, batch[:middle])
        self._run(shift, batch[middle:])

    def _fail(self, waiting: Waiting, reason: str, detail: str) -> None:
        self._metrics.inference_failure(self._name, reason)
        waiting.job.finish(InferenceError(detail))


def _step_back() -> None:
    """Lower the priority of the calling thread, from what the process was started with."""
    thread = threading.get_native_id()
    with contextlib.suppress(OSError):  # where that is forbidden, its batches run like all others
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _BACKGROUND)


def is_finite(output: Output) -> bool:
    """Whether every number is one: NaN and infinity are failures, not answers."""
    if not output.finite:
        return False
    top, summary = output.top, output.summary
    arrays = [output.sentence, output.tokens, output.attention, *(summary.values() if summary else ())]
    if top is not None:
        arrays += [top.weights, top.residual]
    # A sum is finite when its terms are, but for overflow: then every term is looked at. What is not
    # float32 was looked at before it was rounded.
    with np.errstate(invalid="ignore", over="ignore"):
        return all(
            a is None or a.dtype != np.float32 or np.isfinite(a.sum()) or bool(np.isfinite(a).all())
            for a in arrays
        )
