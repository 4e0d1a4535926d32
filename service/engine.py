"""One served model: tokenizer, queue, worker thread and backend.

Requests of many clients wait in one queue, sequence by sequence. Whenever the worker is free it takes
the next batch from all that waits then (`service/batching.py`): a lone request never waits on a timer,
and a busy worker collects the next batch by itself. A request of many texts may be spread over batches.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

from model.errors import InferenceError
from model.tokenizer import Text, TextTokenizer, Truncation
from model.types import AttentionWant, Backend, Batch, Encoding, Output, SentenceWant, Want
from service.batching import take_batch
from service.metrics import Metrics

log = logging.getLogger(__name__)


class OverloadedError(Exception):
    """The queue is full; `retry_after` is in whole seconds, from the measured rate."""

    def __init__(self, *, waiting: int, limit: int, retry_after: int) -> None:
        super().__init__(f"{waiting} tokens are waiting and the queue holds {limit}.")
        self.waiting = waiting
        self.limit = limit
        self.retry_after = retry_after


@dataclass(slots=True, eq=False)
class Job:
    """What one request waits for: the outputs of its sequences. Times are `time.perf_counter` seconds."""

    outputs: list[Output | None]
    done: asyncio.Future[None]
    enqueued: float
    remaining: int
    started: float | None = None
    finished: float | None = None
    abandoned: bool = False
    """Set when nobody waits any more; what is left of the job is then skipped."""

    def finish(self, error: Exception | None = None) -> None:
        """Wake the request, from any thread; later calls change nothing."""
        self.finished = self.finished or time.perf_counter()
        try:
            self.done.get_loop().call_soon_threadsafe(_settle, self.done, error)
        except RuntimeError:  # the loop is closed: the service has ended and nobody waits
            log.debug("an output came after the end of the service")


@dataclass(frozen=True, slots=True)
class _Waiting:
    """One sequence in the queue."""

    job: Job
    index: int
    encoding: Encoding
    want: Want


@dataclass(frozen=True, slots=True)
class Result:
    """The outputs of a request, and where its time went, in seconds."""

    outputs: list[Output]
    queue_s: float
    compute_s: float


@dataclass(slots=True)
class _Rate:
    """Tokens per second, smoothed over about the last ten batches."""

    tokens_per_s: float = 0.0
    weight: float = field(default=0.2)

    def add(self, tokens: int, seconds: float) -> None:
        now = tokens / max(seconds, 1e-6)
        self.tokens_per_s += (now - self.tokens_per_s) * (self.weight if self.tokens_per_s else 1.0)


class Engine:
    """Runs one model for many clients. `tokenize` and `submit` are called on the event loop.

    `run_lock` is shared by the engines of one device, which run one at a time.
    """

    def __init__(
        self,
        name: str,
        tokenizer: TextTokenizer,
        backend: Backend,
        metrics: Metrics,
        *,
        max_batch_tokens: int,
        max_queue_tokens: int,
        run_lock: threading.Lock,
    ) -> None:
        self.name = name
        self.info = backend.info
        self.max_batch_tokens = max_batch_tokens
        self.max_queue_tokens = max_queue_tokens
        self._tokenizer = tokenizer
        self._backend = backend
        self._metrics = metrics
        self._run_lock = run_lock
        self._queue: deque[_Waiting] = deque()
        self._queue_tokens = 0
        self._rate = _Rate()
        self._closing = False
        self._changed = threading.Condition()
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix=f"tokenize-{name}")
        self._worker = threading.Thread(target=self._work, name=f"run-{name}", daemon=True)

    def start(self) -> None:
        """Warm the backend up, in the caller's thread, and start the worker."""
        self._warm_up()
        self._worker.start()

    @property
    def alive(self) -> bool:
        """Whether the worker can still answer."""
        return self._worker.is_alive()

    def close(self) -> None:
        """Let the worker finish what waits, and end it."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._worker.is_alive():
            self._worker.join(timeout=5)
        self._tokenizing.shutdown(wait=False)

    async def tokenize(
        self, texts: Sequence[Text], truncation: Truncation, prompt: str
    ) -> tuple[list[Encoding], float]:
        """Tokenize off the event loop; returns the encodings and the seconds it took.

        Raises InputTooLong.
        """
        start = time.perf_counter()
        loop = asyncio.get_running_loop()
        encodings = await loop.run_in_executor(
            self._tokenizing, self._tokenizer.encode, texts, truncation, prompt
        )
        seconds = time.perf_counter() - start
        self._metrics.stage("tokenize", self.name, seconds)
        return encodings, seconds

    async def submit(self, encodings: Sequence[Encoding], wants: Sequence[Want]) -> Result:
        """Queue the sequences of one request and wait for their outputs.

        Raises OverloadedError at once when they do not fit the queue, InferenceError when a sequence
        could not be computed. A cancelled wait abandons what has not run.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        job = Job([None] * len(encodings), done, enqueued=time.perf_counter(), remaining=len(encodings))
        self._enqueue([_Waiting(job, i, e, w) for i, (e, w) in enumerate(zip(encodings, wants, strict=True))])
        try:
            await done
        finally:
            job.abandoned = True
        started, finished = job.started or job.enqueued, job.finished or job.enqueued
        self._metrics.stage("queue", self.name, started - job.enqueued)
        self._metrics.stage("compute", self.name, finished - started)
        return Result(
            [output for output in job.outputs if output is not None],
            queue_s=started - job.enqueued,
            compute_s=finished - started,
        )

    def _enqueue(self, waiting: Sequence[_Waiting]) -> None:
        tokens = sum(len(w.encoding) for w in waiting)
        with self._changed:
            if self._queue_tokens + tokens > self.max_queue_tokens:
                self._drop_abandoned()
            if self._queue and self._queue_tokens + tokens > self.max_queue_tokens:
                seconds = self._queue_tokens / self._rate.tokens_per_s if self._rate.tokens_per_s else 1.0
                raise OverloadedError(
                    waiting=self._queue_tokens,
                    limit=self.max_queue_tokens,
                    retry_after=max(1, min(60, round(seconds))),
                )
            self._queue.extend(waiting)
            self._count_queue(tokens)
            self._changed.notify()

    def _count_queue(self, tokens: int) -> None:
        self._queue_tokens += tokens
        self._metrics.queue(self.name, inputs=len(self._queue), tokens=self._queue_tokens)

    def _work(self) -> None:
        while batch := self._next_batch():
            try:
                self._run(batch)
            except Exception as error:
                # Nothing is left waiting, whatever went wrong between the batch and its requests.
                log.exception("a batch of %s failed", self.name)
                for waiting in batch:
                    waiting.job.finish(InferenceError(f"The batch failed: {type(error).__name__}."))

    def _next_batch(self) -> list[_Waiting]:
        """Wait for work and take a batch; empty when the engine is closing and nothing waits."""
        with self._changed:
            while True:
                self._drop_abandoned()
                # No more than `budget` sequences fit, since each has a token at least.
                lengths = [len(w.encoding) for w in islice(self._queue, self.max_batch_tokens)]
                count = take_batch(lengths, self.max_batch_tokens, self._backend.cost)
                if count or self._closing:
                    batch = [self._queue.popleft() for _ in range(count)]
                    self._count_queue(-sum(lengths[:count]))
                    return batch
                self._changed.wait()

    def _drop_abandoned(self) -> None:
        if any(w.job.abandoned for w in self._queue):
            self._queue = deque(w for w in self._queue if not w.job.abandoned)
            self._count_queue(sum(len(w.encoding) for w in self._queue) - self._queue_tokens)

    def _run(self, batch: Sequence[_Waiting]) -> None:
        """Run a batch; where it fails, halve it until the fault stands alone with its request."""
        start = time.perf_counter()
        for waiting in batch:
            waiting.job.started = waiting.job.started or start
        try:
            with self._run_lock:
                outputs = self._backend.run(Batch.pack([w.encoding for w in batch], [w.want for w in batch]))
        except Exception:
            if len(batch) == 1:
                log.exception("a sequence of %s failed", self.name)
                self._metrics.inference_failure(self.name)
                detail = "This input could not be computed; the others of its batch were."
                batch[0].job.finish(InferenceError(detail))
                return
            middle = len(batch) // 2
            self._run(batch[:middle])
            self._run(batch[middle:])
            return
        lengths = [len(w.encoding) for w in batch]
        tokens = sum(lengths)
        self._rate.add(tokens, time.perf_counter() - start)
        padding = self._backend.cost(lengths) - tokens
        self._metrics.batch(self.name, inputs=len(batch), tokens=tokens, padding=padding)
        for waiting, output in zip(batch, outputs, strict=True):
            job = waiting.job
            job.outputs[waiting.index] = output
            job.remaining -= 1
            if not job.remaining:
                job.finish()

    def _warm_up(self) -> None:
        """Run each kind of work once, short and long, so that no client pays for a first time."""
        for text in ("warm", "warm up " * 200):
            encodings = self._tokenizer.encode([text] * 2)
            want = Want(
                sentence=SentenceWant(modes=self.info.pooling, layers=(self.info.layers,)),
                attention=AttentionWant(layers=(self.info.layers - 1,), heads=(0,)),
            )
            self._backend.run(Batch.pack(encodings, [want, want]))


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
