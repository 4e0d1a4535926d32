"""Runs one model's batches in a watched thread: whatever fails there, every request is answered."""

import logging
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from model.contract import Backend, Batch, Output, Want
from model.errors import InferenceError, NotFinite, OutOfMemory, Stopped
from model.progress import Progress
from service.engine.jobs import Job, Waiting
from service.engine.lane_scheduler import LaneScheduler, Turn
from service.engine.queueing import EXPRESS, WaitingQueue
from service.engine.throughput import Throughput
from service.system.priority import lower_priority
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

FAILED = "The computation failed for this input; the other inputs of its batch were computed."
TOO_LARGE = "The device does not have enough memory for this input: shorten it."
NOT_FINITE = "The model produced NaN or infinity for this input."
STUCK = "The computation did not finish."

# Express batches share the cores with the lanes' batches, so they are kept small and short.
_EXPRESS_TOKENS = 64
# Niceness of a heavy batch's thread: a thread of a light batch, or of the event loop, gets 28 times its share
# of a core. With 10 steps it gets nine times its share, and a client with short texts beside forty other
# connections that ask for explanations waits nearly twice as long.
_BACKGROUND = 15
STALL_S = 4.0
"""A pass hangs after this many seconds, plus several times what a step takes, without a finished step."""
_STALL_STEPS, _BACKGROUND_STALL_STEPS = 4.0, 60.0


class Runner:
    """One lane of an engine: takes batches from a queue and runs them on a device.

    The EXPRESS lane runs small batches of light clients while the other lanes are busy with heavy ones; the
    operating system schedules it beside them.

    A pass ends between two steps once no client waits for any of its sequences. A thread that hangs
    cannot be killed: when its pass makes no progress the batch fails, and the process must end.
    """

    def __init__(
        self,
        name: str,
        backend: Backend,
        queue: WaitingQueue,
        scheduler: LaneScheduler,
        metrics: Metrics,
        throughput: Throughput,
        *,
        lane: int,
        stall_s: float = STALL_S,
    ) -> None:
        self._name = name
        self._backend = backend
        self._queue = queue
        self._scheduler = scheduler
        self._metrics = metrics
        self._throughput = throughput
        self._stall_s = stall_s
        self._lane = lane
        self._express = lane == EXPRESS
        self._background: ThreadPoolExecutor | None = None
        self._turn: Turn | None = None
        self._batch: Sequence[Waiting] = ()
        self._yields = False
        """Whether the batch runs at low priority, yielding to light clients."""
        self._progress: Progress | None = None
        """The progress of the running pass."""
        self._steps = 0
        """The finished steps of the pass when it was last checked."""
        self._progressed = 0.0
        """When it was last seen to make progress, in `time.perf_counter` seconds."""
        self._step_s = 0.0
        """How long one of its steps should take."""
        self._thread = threading.Thread(target=self._work, name=f"run-{name}-{lane}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait for the thread to end after the queue was closed."""
        if self._thread.is_alive():
            self._thread.join(timeout)

    def supervise(self, stopped_s: float = 0.0) -> bool:
        """Fail the requests of a pass that hangs, and return whether it did; called several times a second.

        It also returns True if the thread has ended: nothing runs its batches any more. `stopped_s` is how
        long the whole process was suspended since the last call; it does not count against the pass.
        """
        self._progressed += stopped_s
        if not self._is_stuck():
            return self._thread.ident is not None and not (self._thread.is_alive() or self._queue.closed)
        self._progress = None  # reported only once
        self._metrics.inference_failure(self._name, "stuck")
        for waiting in self._batch:
            self._end(waiting.job, InferenceError(STUCK))
        return True

    def stop_unwanted(self) -> None:
        """End the running pass if no client waits for any of its sequences."""
        progress, batch = self._progress, self._batch
        if progress is not None and batch and not any(waiting.job.wanted for waiting in batch):
            progress.stop()

    def _is_stuck(self) -> bool:
        """Whether the running pass has made no progress for too long, as far as the checks have seen."""
        progress, now = self._progress, time.perf_counter()
        if progress is None:
            return False
        if progress.steps != self._steps:
            self._steps, self._progressed = progress.steps, now
        # At low priority, a step takes 57 times as long beside two busy threads of normal priority.
        steps = _BACKGROUND_STALL_STEPS if self._yields else _STALL_STEPS
        return now - self._progressed > self._stall_s + steps * self._step_s

    def _work(self) -> None:
        while self._queue.wait(self._lane):
            with self._scheduler.turn(self._name, express=self._express) as self._turn:
                # Taken inside the turn, so the batch includes sequences that arrived while waiting for it.
                budget = (
                    min(self._throughput.budget, _EXPRESS_TOKENS)
                    if self._express
                    else self._throughput.budget
                )
                self._batch, self._yields = self._queue.take(
                    budget, self._backend.cost, only_light=self._express
                )
                try:
                    self._run(self._batch)
                except BaseException:  # a panic of a Rust library is not an Exception
                    # Whatever went wrong, no request is left waiting, and the next batch runs.
                    log.exception("a batch of %s failed", self._name)
                    for waiting in self._batch:
                        self._fail(waiting, "exception", FAILED)
                self._queue.finish(self._batch)
                self._batch = ()

    def _run(self, batch: Sequence[Waiting]) -> None:
        """Run a batch; if it fails, bisect it until only the failing sequence is left."""
        if not batch:  # another lane took the work first
            return
        start = time.perf_counter()
        for waiting in batch:
            waiting.job.started = waiting.job.started or start
        try:
            outputs = self._compute(batch)
        except Stopped:
            return  # no client waits for its outputs
        except Exception as error:
            self._recover(batch, error)
            return
        for waiting, output in zip(batch, outputs, strict=True):
            if is_finite(output):
                waiting.job.complete(waiting.index, output)
            else:
                # With interventions, they may be the cause, and the model is not at fault.
                if waiting.want.interventions is None:
                    self._metrics.inference_failure(self._name, "not-finite")
                self._end(waiting.job, NotFinite(NOT_FINITE))

    def _compute(self, batch: Sequence[Waiting]) -> list[Output]:
        packed = Batch.pack([w.encoding for w in batch], [w.want for w in batch])
        tokens = len(packed.input_ids)
        # A batch that runs alone gets all cores, otherwise its lane's share. Only the first lane has helper
        # threads: with more threads than cores they would sleep between products instead of spinning.
        has_all_cores = (
            self._lane == 0
            and not self._yields
            and self._queue.empty
            and self._scheduler.demand == 1
            and self._scheduler.siblings_idle
            and all(waiting.job is batch[0].job for waiting in batch)
        )
        lanes = 1 if has_all_cores else self._scheduler.shares
        if self._turn is not None:
            self._scheduler.charge(self._turn, sum(w.tokens for w in batch))
        lengths = [len(w.encoding) for w in batch]
        progress = self._watch(batch, lanes)
        start = time.perf_counter()
        try:
            outputs = self._run_packed(packed, lanes, progress, background=self._yields)
        finally:
            self._progress = None
        if not self._express and all(_is_ordinary(waiting.want) for waiting in batch):
            # How long all tokens would have taken: those of the next batch may share nothing.
            whole_s = (time.perf_counter() - start) * tokens / max(1, tokens - progress.shared_tokens)
            self._throughput.record_batch(lengths, whole_s, lanes=lanes)
        padding = self._backend.cost(lengths) - tokens
        self._metrics.batch(self._name, inputs=len(batch), tokens=tokens, padding=padding)
        return outputs

    def _watch(self, batch: Sequence[Waiting], lanes: int) -> Progress:
        """Start watching the progress of a pass, and return it."""
        info = self._backend.info
        # ONNX Runtime says nothing until a pass has ended.
        steps = 1 if info.backend == "onnx" else info.layers
        self._step_s = lanes * sum(w.seconds for w in batch) / max(1, steps)
        self._steps, self._progressed = 0, time.perf_counter()
        self._progress = progress = Progress()
        if not any(waiting.job.wanted for waiting in batch):  # they may have gone before it was set
            progress.stop()
        return progress

    def _run_packed(self, packed: Batch, lanes: int, progress: Progress, *, background: bool) -> list[Output]:
        """Run a batch; with `background`, in a thread of lower priority.

        A thread may lower its priority but not raise it again, so one thread is reserved for such batches.
        """
        run = partial(self._backend.run, packed, lanes=lanes, progress=progress)
        if not (background and sys.platform == "linux"):
            return run()
        if self._background is None:
            name = f"background-{self._name}"
            self._background = ThreadPoolExecutor(1, name, lower_priority, (_BACKGROUND,))
        return self._background.submit(run).result()

    def _recover(self, batch: Sequence[Waiting], error: Exception) -> None:
        """Split a failed batch in half and retry; if it ran out of memory, halve the budget too."""
        exhausted = isinstance(error, OutOfMemory)
        if exhausted and len(batch) > 1:
            tokens = sum(w.tokens for w in batch)
            self._throughput.halve_budget(tokens)
            self._metrics.inference_failure(self._name, "out-of-memory")
            budget = self._throughput.budget
            log.warning(
                "%s ran out of memory with %d tokens: the batch budget is now %d", self._name, tokens, budget
            )
        if len(batch) == 1:
            log.error("a sequence of %s failed", self._name, exc_info=error)
            self._fail(batch[0], *(("out-of-memory", TOO_LARGE) if exhausted else ("exception", FAILED)))
            return
        middle = len(batch) // 2
        self._run(batch[:middle])
        self._run(batch[middle:])

    def _fail(self, waiting: Waiting, reason: str, detail: str) -> None:
        self._metrics.inference_failure(self._name, reason)
        self._end(waiting.job, InferenceError(detail))

    def _end(self, job: Job, error: InferenceError) -> None:
        """Fail a request, and drop its waiting sequences now, not once the event loop tells its client."""
        self._queue.abandon(job)
        job.finish(error)


def _is_ordinary(want: Want) -> bool:
    """Whether its pass takes the usual time: not if it runs backward, has a lens, or may share layers."""
    return want.passes == 1 and want.interventions is None and want.lens is None


def is_finite(output: Output) -> bool:
    """Whether no number is NaN or infinite: those are failures, not outputs.

    In maps, −inf is a valid output: the score of a key that is hidden from a query.
    """
    if not output.finite:
        return False
    top, summary = output.top, output.summary
    maps = [output.attention, output.thumbnails, *((top.weights, top.residual) if top else ())]
    arrays = [output.sentence, output.tokens, *output.heads.values(), *(summary.values() if summary else ())]
    # Arrays of other types were checked before they were rounded.
    floats = [one for one in arrays if one is not None and one.dtype == np.float32]
    floats_of_maps = [one for one in maps if one is not None and one.dtype == np.float32]
    for array in floats:
        if not np.minimum.reduce(array, axis=None, initial=np.inf) > -np.inf:
            return False
    for array in (*floats, *floats_of_maps):
        if not np.maximum.reduce(array, axis=None, initial=-np.inf) < np.inf:
            return False
    return True
