"""One served model: tokenizer, queue, runners and backend, behind a few calls made on the event loop.

Requests of many clients wait in one queue, sequence by sequence. Whenever a runner is free, it takes the next
batch from everything waiting at that moment (`batching.py`): a lone request never waits on a timer, and while
the runners are busy the next batch accumulates. A request of many texts may be spread over several batches.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from model.contract import AttentionWant, Backend, Batch, Encoding, Output, Role, SentenceWant, Want
from model.errors import InferenceError
from model.tokenization.decoding import Decoder
from model.tokenization.long_text import Room
from model.tokenization.tokenizer import Text, TextTokenizer, Truncation
from service.engine.at_once import AtOnce
from service.engine.batch_budget import measure_rates, steady_budget
from service.engine.device import Device
from service.engine.permit import Permit
from service.engine.queueing import EXPRESS, Job, Waiting, WaitingQueue
from service.engine.runner import Runner
from service.engine.throughput import Throughput
from service.engine.tokenizing import Tokenizing
from service.sharing.board import Column
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

_LARGEST_REQUESTS = 4
"""The default queue holds this many of the largest valid request: two of one client (half), and others."""
# Typical lengths of sentences and paragraphs; all different, because equal lengths run faster together.
_SAMPLE_WORDS = (5, 8, 11, 15, 20, 27, 38, 60)
_SHORT_WORDS = 30  # of the text that is measured to find out which ones are short
_WARM_WORDS = 512  # of the longer text that is run before any other
# Tokenized in less time than it takes to hand over to another thread.
_SMALL_BODY_BYTES = 512
_LOST = "An output of this request was lost."


@dataclass(frozen=True, slots=True)
class Result:
    """The outputs of a request, and its time in the queue and in computation, in seconds."""

    outputs: list[Output]
    queue_s: float
    compute_s: float


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Outputs of a request that arrived since the last time, with their indices.

    `queue_s` is how long the first of the request's sequences waited in the queue.
    """

    outputs: list[tuple[int, Output]]
    queue_s: float


class Engine:
    """Runs one model for many clients. `tokenize`, `submit` and `stream` are called on the event loop.

    With `max_batch_tokens` None the budget is measured; `largest_request` is the maximum number of tokens in
    one request, and `max_queue_tokens` None means room for four of those. `device` is shared by the engines
    that run on it. A runner's batch that takes longer than `stuck_after_s` is abandoned. `column` is shared
    with the other processes of the service, if there are any.
    """

    def __init__(
        self,
        name: str,
        tokenizer: TextTokenizer,
        backend: Backend,
        metrics: Metrics,
        *,
        max_batch_tokens: int | None,
        max_queue_tokens: int | None,
        device: Device,
        stuck_after_s: float,
        largest_request: int = 65_536,
        column: Column | None = None,
    ) -> None:
        self.name = name
        self.stuck = 0
        self.info = backend.info
        self.subwords = tokenizer.subwords
        self.keywords = tokenizer.keywords
        self._tokenizer = tokenizer
        self._backend = backend
        self._metrics = metrics
        self._given_budget = max_batch_tokens
        budget = max_batch_tokens or backend.budgets[-1]
        self._largest_request = largest_request
        self._queue = WaitingQueue(
            name,
            metrics,
            max_queue_tokens or _LARGEST_REQUESTS * largest_request,
            ledger=None if column is None else column.ledger(name),
            allows=device.allows,
        )
        self._throughput = Throughput(budget)
        self._device = device
        self._column = column
        self._lanes = device.lanes
        self._runners = [
            Runner(
                name,
                backend,
                self._queue,
                device,
                metrics,
                self._throughput,
                lane=lane,
                stuck_after_s=stuck_after_s,
            )
            for lane in (*range(device.lanes), *((EXPRESS,) if backend.info.device == "cpu" else ()))
        ]
        self._at_once = AtOnce(name, backend, device, metrics, self._throughput)
        self._tokenizing = Tokenizing(name)

    def start(self) -> None:
        """Warm up the backend and measure its budget, in the caller's thread; then start the runners."""
        self._warm_up()
        (encoding,) = self._tokenizer.encode(["word " * min(self.info.max_length // 2, _SHORT_WORDS)])
        self._at_once.measure(encoding, Want(self._sentence_want()))
        if self._given_budget is None:
            self._throughput.budget = self._agreed_budget()
        for runner in self._runners:
            runner.start()

    @property
    def decoder(self) -> Decoder:
        """What turns the model's token ids into text."""
        return self._tokenizer.decoder

    def added_tokens(self, role: Role | None) -> int:
        """The most tokens that a text of a role has beyond one for each of its bytes."""
        return self._tokenizer.of(role).added

    @property
    def max_batch_tokens(self) -> int:
        """The token budget of a batch: configured or measured, and halved each time memory ran out."""
        return self._throughput.budget

    @property
    def max_queue_tokens(self) -> int:
        """How many tokens the queue holds at most."""
        return self._queue.max_tokens

    @property
    def idle_since(self) -> float | None:
        """When the last batch or text was finished, in `time.perf_counter` seconds; None during a batch."""
        since = self._device.idle_since
        return None if since is None else max(since, self._tokenizing.idle_since)

    def trim_memory(self) -> None:
        """Release memory that the backend keeps for further batches."""
        self._backend.give_back()

    @property
    def healthy(self) -> bool:
        """Whether every runner is alive and not stuck."""
        return all(runner.healthy for runner in self._runners)

    def supervise(self, stopped_s: float = 0.0) -> None:
        """Check the runners and the queue; called several times a second.

        `stopped_s` is how long the whole process was suspended since the last call. `stuck` counts how often
        threads had to be abandoned; several at the same check count once.
        """
        relieved = [runner.supervise(stopped_s) for runner in self._runners]
        self.stuck += any(relieved)
        self._queue.wake_idle_lane()

    def close(self, timeout: float = 1.0) -> None:
        """Finish the waiting work and stop; a batch that takes longer than `timeout` seconds is abandoned."""
        self._queue.close()
        for runner in self._runners:
            runner.join(timeout)
        self._tokenizing.close()

    def check_room(self, permit: Permit) -> None:
        """Raise OverloadedError if a request of this size does not fit into the queue now."""
        self._queue.check_room(self._expected_tokens(permit), self._throughput.tokens_per_s, permit.client)

    def _expected_tokens(self, permit: Permit) -> int:
        """Estimate a body's tokens from its size, 0 for small bodies; capped at the largest request."""
        return min(self._throughput.expected_tokens(permit.body_bytes), self._largest_request)

    async def tokenize(
        self,
        texts: Sequence[Text],
        truncation: Truncation,
        prompt: str,
        permit: Permit | None = None,
        room: Room = lambda _: nullcontext(),
        role: Role | None = None,
    ) -> tuple[list[Encoding], float]:
        """Tokenize, off the event loop unless the body is small; returns the encodings and the seconds taken.

        Requests take turns, and a cancelled one stops. Meanwhile the request counts in the queue by the size
        of its body, which includes the prompt once per text; `room` reserves memory for texts that cannot be
        tokenized in pieces; `role` is that of the texts in late interaction. Raises InputTooLong,
        OverloadedError if the queue has no room, and what `room` raises.
        """
        permit, tokenizer = permit or Permit(), self._tokenizer.of(role)
        start = time.perf_counter()
        if 0 < permit.body_bytes <= _SMALL_BODY_BYTES:
            encodings = tokenizer.encode(texts, truncation, prompt)
        else:
            most = len(texts) * self.info.max_length  # longer texts are truncated
            expected = min(self._expected_tokens(permit), most)
            with self._queue.reserve(expected, self._throughput.tokens_per_s, permit.client):
                steps = tokenizer.steps(texts, truncation, prompt, room)
                encodings = await self._tokenizing.run(steps)
        seconds = time.perf_counter() - start
        self._throughput.record_tokens(sum(len(encoding) for encoding in encodings), permit.body_bytes)
        self._metrics.stage("tokenize", self.name, seconds)
        return encodings, seconds

    async def submit(
        self, encodings: Sequence[Encoding], wants: Sequence[Want], permit: Permit | None = None
    ) -> Result:
        """Queue the sequences of one request and wait for their outputs.

        Raises OverloadedError at once if they do not fit into the queue, InferenceError if a sequence could
        not be computed. Cancelling abandons the sequences that have not run. A request that `tokenize`
        admitted on an estimate may exceed the limit slightly: it has already paid for tokenization.
        """
        permit = permit or Permit()
        if permit.among_few and self._queue.empty:
            start = time.perf_counter()
            outputs = self._at_once.run(encodings, wants)
            if outputs is not None:
                return Result(outputs, *self._record_stages(0.0, time.perf_counter() - start))
        job = self._enqueue(encodings, wants, permit)
        try:
            await job.done
        finally:
            self._queue.abandon(job)
        queue_s, compute_s = self._count_stages(job)
        found = [output for output in job.outputs if output is not None]
        if len(found) < len(job.outputs):
            raise InferenceError(_LOST)
        return Result(found, queue_s, compute_s)

    async def stream(
        self, encodings: Sequence[Encoding], wants: Sequence[Want], permit: Permit | None = None
    ) -> AsyncGenerator[Arrivals, None]:
        """Queue the sequences of one request, and yield the outputs as they arrive, in any order.

        Raises as `submit` does; outputs that arrived before a failure are yielded first. Closing the
        generator abandons the sequences that have not run.
        """
        changed, outputs = asyncio.Event(), list[tuple[int, Output]]()

        def arrived(index: int, output: Output) -> None:
            outputs.append((index, output))
            changed.set()

        def settled(done: asyncio.Future[None]) -> None:
            if not done.cancelled():
                done.exception()  # marks it as retrieved: asyncio logs exceptions that never are
            changed.set()

        job = self._enqueue(encodings, wants, permit or Permit(), arrived)
        job.done.add_done_callback(settled)
        left = len(encodings)
        try:
            while left:
                if outputs:
                    arrivals = Arrivals(outputs.copy(), job.waited_s)
                    left -= len(outputs)
                    outputs.clear()
                    yield arrivals
                elif job.done.done():
                    job.done.result()  # raises
                    raise InferenceError(_LOST)
                else:
                    await changed.wait()
                    changed.clear()
            await job.done
            self._count_stages(job)
        finally:
            self._queue.abandon(job)
            job.done.cancel()

    def _enqueue(
        self,
        encodings: Sequence[Encoding],
        wants: Sequence[Want],
        permit: Permit,
        arrived: Callable[[int, Output], None] | None = None,
    ) -> Job:
        """Add the sequences of one request to the queue; raises OverloadedError."""
        if not permit.alone:
            self._device.rest()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        job = Job(
            [None] * len(encodings),
            done,
            enqueued=time.perf_counter(),
            remaining=len(encodings),
            arrived=arrived,
            client=permit.client,
        )
        sequences = [Waiting(job, i, e, w) for i, (e, w) in enumerate(zip(encodings, wants, strict=True))]
        self._queue.add(sequences, self._throughput.tokens_per_s, expected=self._expected_tokens(permit) > 0)
        return job

    def _count_stages(self, job: Job) -> tuple[float, float]:
        """Record how long a finished job waited and ran; returns both in seconds."""
        finished = job.finished or job.enqueued
        return self._record_stages(job.waited_s, finished - job.enqueued - job.waited_s)

    def _record_stages(self, queue_s: float, compute_s: float) -> tuple[float, float]:
        self._metrics.stage("queue", self.name, queue_s)
        self._metrics.stage("compute", self.name, compute_s)
        return queue_s, compute_s

    def _sentence_want(self) -> SentenceWant:
        return SentenceWant(modes=self.info.pooling, layers=(self.info.layers,))

    def _warm_up(self) -> None:
        """Run each kind of work once, short and long, so that no client pays for first-run costs.

        The long text has a bounded number of words: a longer one would prepare nothing more, and on a model
        that reads thousands of tokens it would delay the start by minutes.
        """
        # Not longer than the model reads: the truncator is only created for a client's overlong text.
        for text in ("warm", "warm " * min(self.info.max_length // 2, _WARM_WORDS)):
            encodings = self._tokenizer.encode([text] * 2)
            attention = AttentionWant(layers=(self.info.layers - 1,), heads=(0,))
            wants = [Want(self._sentence_want())]
            wants += [replace(wants[0], attention=attention)] if self.info.exposes_attention else []
            wants += [replace(wants[0], task=task) for task in self.info.tasks[:1]]
            for want in wants:
                for lanes in {1, self._lanes}:
                    self._backend.run(Batch.pack(encodings, [want, want]), lanes=lanes)

    def _agreed_budget(self) -> int:
        """Return the budget that the first process of the service measured, or measure it."""
        if self._column is None:
            return self._measure_budget()
        if not self._column.agreed_budget(self.name):
            self._column.agree_budget(self.name, self._measure_budget())
        return self._column.agreed_budget(self.name)

    def _measure_budget(self) -> int:
        sizes = self._backend.budgets
        if len(sizes) == 1:
            return sizes[0]
        sample = self._tokenizer.encode(["word " * words for words in _SAMPLE_WORDS])
        want = Want(sentence=self._sentence_want())
        rates = measure_rates(self._backend, sample, want, sizes, self._lanes)
        budget = steady_budget(rates)
        measured = ", ".join(f"{tokens}: {rate / 1e3:.1f} k/s" for tokens, rate in rates.items())
        log.info("%s: batch budget of %d tokens (measured tokens/s: %s)", self.name, budget, measured)
        return budget
