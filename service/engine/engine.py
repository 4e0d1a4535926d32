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
from dataclasses import dataclass
from functools import partial

from model.contract import Backend, ChunksWant, Encoding, FloatArray, Output, Role, Want
from model.errors import InferenceError
from model.tokenization.decoding import Decoder
from model.tokenization.long_text import Reserve
from model.tokenization.tokenizer import RoleTokenizing, Text, TextTokenizer, Truncation
from service.engine.admission import Demand, OverloadedError, QueueFull, Retry
from service.engine.inline_passes import InlinePasses
from service.engine.jobs import Job, describe
from service.engine.lane_scheduler import LaneScheduler
from service.engine.measuring import is_shared, measure_speed, share, warm_up
from service.engine.permit import Permit
from service.engine.queueing import EXPRESS, WaitingQueue
from service.engine.runner import STALL_S, Runner
from service.engine.throughput import Throughput
from service.engine.tokenizing import Tokenizing
from service.sharing.scoreboard import Counters
from service.system.off_loop import off_loop
from service.telemetry.metrics import Metrics
from service.telemetry.text_warnings import Vocabulary

log = logging.getLogger(__name__)

_LARGEST_REQUESTS = 4
"""The default queue holds this many of the largest valid request: two of one client (half), and others."""
_TIMEOUT_S = 30.0
"""The default time in which requests must be answered, unless the longest text takes more than half of it."""
# Tokenizing this much takes less time than handing it to another thread; for a table, it takes some 4 ms.
_SMALL_BODY_BYTES, _SMALL_TABLE_BYTES, _FEW_TEXTS = 512, 4096, 256
# Describing this many for the queue takes some two milliseconds.
_MANY_SEQUENCES = 1024
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

    With `max_batch_tokens` None, batches have the backend's budget; `largest_request` is the largest number
    of tokens in one request, and `max_queue_tokens` None means room for four such requests. With `timeout_s`
    None, requests must be answered in half a minute, or in twice the time of the longest text if that is
    more. A pass without progress for `stall_s` seconds counts as hung. `scheduler` is shared by the engines
    of a device, and `counters` with the service's other processes.
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
        scheduler: LaneScheduler,
        timeout_s: float | None = None,
        stall_s: float = STALL_S,
        largest_request: int = 65_536,
        counters: Counters | None = None,
    ) -> None:
        self.name = name
        self.info = backend.info
        self.subwords = tokenizer.subwords
        self.vocabulary = Vocabulary(tokenizer.subwords.unknown)
        """Counts the tokens in clients' texts that the tokenizer does not know."""
        self._tokenizer = tokenizer
        self._backend = backend
        self._metrics = metrics
        self._largest_request = largest_request
        self._throughput = Throughput(max_batch_tokens or backend.budget)
        self._queue = WaitingQueue(
            name,
            metrics,
            self._throughput,
            max_queue_tokens or _LARGEST_REQUESTS * largest_request,
            counters=counters,
            backlog=scheduler.backlog,
            allows=scheduler.allows,
        )
        self._given_timeout_s = timeout_s
        self.timeout_s = timeout_s or _TIMEOUT_S
        """Within how many seconds requests must be answered, unless they ask for less."""
        self.longest_s = 0.0
        """How long the longest text that the model reads takes on an idle service, in seconds; 0 at first."""
        self._scheduler = scheduler
        self._counters = counters
        self._lanes = scheduler.lanes
        self._runners = [
            Runner(
                name,
                backend,
                self._queue,
                scheduler,
                metrics,
                self._throughput,
                lane=lane,
                stall_s=stall_s,
            )
            for lane in (*range(scheduler.lanes), *((EXPRESS,) if backend.info.device == "cpu" else ()))
        ]
        self._inline = InlinePasses(name, backend, scheduler, metrics, self._throughput)
        self._tokenizing = Tokenizing(name)

    def start(self) -> None:
        """Warm up the backend and measure it, in the caller's thread; then start the runners."""
        warm_up(self._backend, self._tokenizer, self._lanes)
        self._measure()
        for runner in self._runners:
            runner.start()

    @property
    def decoder(self) -> Decoder:
        """What turns the model's token ids into text."""
        return self._tokenizer.decoder

    def tokenizer_of(self, role: Role | None) -> RoleTokenizing:
        """Return the tokenizer for texts with this role, or for texts without one."""
        return self._tokenizer.of(role)

    @property
    def max_batch_tokens(self) -> int:
        """The token budget of a batch: configured or the backend's, and halved each time memory ran out."""
        return self._throughput.budget

    @property
    def queue_limit(self) -> int:
        """How many tokens the queue takes now: no more than can be run in time."""
        return self._queue.limit

    @property
    def max_queue_tokens(self) -> int:
        """How many tokens the queue holds at most."""
        return self._queue.max_tokens

    @property
    def idle_since(self) -> float | None:
        """When the last batch or text was finished, in `time.perf_counter` seconds; None during a batch."""
        since = self._scheduler.idle_since
        return None if since is None else max(since, self._tokenizing.idle_since)

    def cuts_left(self, truncation: Truncation) -> bool:
        """Whether truncation cuts off the beginning of a text and keeps its end."""
        return (truncation.side or self._tokenizer.side) == "left"

    def finish(self, means: FloatArray, want: ChunksWant) -> FloatArray:
        """Turn the means that the backend returned into vectors of chunks; may be called in a thread."""
        return self._backend.finish(means, want)

    def trim_memory(self) -> None:
        """Release memory that the backend keeps for further batches."""
        self._backend.trim_memory()

    def supervise(self, stopped_s: float = 0.0) -> bool:
        """Check the queue and the threads, and return whether one has failed; called several times a second.

        `stopped_s` is how long the whole process was suspended since the last call.
        """
        self._queue.refresh()
        hung = [runner.supervise(stopped_s) for runner in self._runners]
        return any((*hung, self._tokenizing.supervise(stopped_s)))

    def close(self, timeout: float = 1.0) -> None:
        """Finish the waiting work and stop; a batch that takes longer than `timeout` seconds is abandoned."""
        self._queue.close()
        for runner in self._runners:
            runner.join(timeout)
        self._tokenizing.close()

    @property
    def loaded(self) -> bool:
        """Whether so much waits that there may be no room for another request."""
        return self._queue.loaded

    def refusal(self, client: str, body_bytes: int, *, returned: bool = False) -> QueueFull | None:
        """Return why a request of this size is refused, None if there is room; `returned` ones need less."""
        return self._queue.refusal(self._first_demand(client, body_bytes, returned=returned))

    def overloaded(self, client: str, body_bytes: int, retry: Callable[[], Retry]) -> OverloadedError:
        """Return an error that says why there is no room for such a request."""
        return self._queue.overloaded(self._first_demand(client, body_bytes), retry)

    def _expected_tokens(self, body_bytes: int) -> int:
        """Estimate a body's tokens from its size, 0 for small bodies; capped at the largest request."""
        return min(self._throughput.expected_tokens(body_bytes), self._largest_request)

    def _first_demand(self, client: str, body_bytes: int, *, returned: bool = False) -> Demand:
        """Estimate what a request will need before its body is read.

        Even a large body may be a single text, most of which is cut off, so no more than one text's time is
        assumed until it is parsed. A small body may be mostly options, so its tokens are not estimated.
        """
        tokens = min(int(body_bytes * self._throughput.tokens_per_byte), self.info.max_length)
        seconds = self._throughput.seconds(max(1, tokens))
        return Demand(client, max(1, self._expected_tokens(body_bytes)), seconds, returned=returned)

    async def tokenize(
        self,
        texts: Sequence[Text],
        truncation: Truncation,
        prompt: str,
        permit: Permit | None = None,
        reserve: Reserve = lambda _: nullcontext(),
        role: Role | None = None,
    ) -> tuple[list[Encoding], float]:
        """Tokenize, off the event loop unless the body is small; returns the encodings and the seconds taken.

        Requests take turns, and a cancelled one stops. Meanwhile, the queue counts the request by the size of
        its body, which includes the prompt once per text. `reserve` reserves memory for texts that cannot be
        tokenized in pieces; `role` is the role of the texts in late interaction. Raises InputTooLong,
        OverloadedError if the queue has no room, and what `reserve` raises.
        """
        permit, tokenizer = permit or Permit(), self._tokenizer.of(role)
        start = time.perf_counter()
        small = _SMALL_BODY_BYTES if self.info.layers else _SMALL_TABLE_BYTES
        if 0 < permit.body_bytes <= small and len(texts) <= _FEW_TEXTS:
            encodings = tokenizer.encode(texts, truncation, prompt)
        else:
            most = len(texts) * (truncation.most or self.info.max_length)  # longer texts are truncated
            expected = max(1, min(self._expected_tokens(permit.body_bytes), most))
            seconds = self._throughput.seconds(expected)
            demand = Demand(permit.client, expected, seconds, permit.until - start, permit.returned)
            wait_s = self._tokenizing.wait_s(permit.client, permit.body_bytes)
            if wait_s > demand.within_s:
                late_s = wait_s - demand.within_s
                raise self._queue.overloaded(demand, partial(Retry.after, late_s))
            with self._queue.reserve(demand):
                steps = tokenizer.encode_in_steps(texts, truncation, prompt, reserve)
                encodings = await self._tokenizing.run(steps, permit.client, permit.body_bytes)
            tokens = sum(map(len, encodings))
            permit.keep(encodings, (), tokens)
            permit.keep_long(encodings, self.info.max_length)
            self._throughput.record_tokens(tokens, permit.body_bytes)
        seconds = time.perf_counter() - start
        self.vocabulary.note(encodings)
        self._metrics.stages(self.name, tokenize=seconds)
        return encodings, seconds

    async def submit(
        self, encodings: Sequence[Encoding], wants: Sequence[Want], permit: Permit | None = None
    ) -> Result:
        """Queue the sequences of one request and wait for their outputs.

        Raises OverloadedError at once if they do not fit into the queue, and DeadlineTooShort if they could
        not be run in time at all; InferenceError if a sequence could not be computed. Cancelling abandons the
        sequences that have not run. A request that `tokenize` admitted on an estimate may exceed the limit
        slightly: it has already paid for tokenization.
        """
        permit = permit or Permit()
        start, outputs = time.perf_counter(), await self._inline.look_up(encodings, wants)
        # A table of token vectors runs each text in microseconds, so it gains nothing from large batches.
        if outputs is None and (permit.few_connections or not self.info.layers) and self._queue.empty:
            outputs = self._inline.run(encodings, wants)
        if outputs is not None:
            permit.queued = True
            compute_s = time.perf_counter() - start
            self._metrics.stages(self.name, queue=0.0, compute=compute_s)
            return Result(outputs, 0.0, compute_s)
        job = await self._enqueue(encodings, wants, permit)
        try:
            await job.done
        finally:
            self._abandon(job)
        queue_s, compute_s = job.waited_s, job.ran_s
        self._metrics.stages(self.name, queue=queue_s, compute=compute_s)
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

        job = await self._enqueue(encodings, wants, permit or Permit(), arrived)
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
            self._metrics.stages(self.name, queue=job.waited_s, compute=job.ran_s)
        finally:
            self._abandon(job)
            job.done.cancel()

    def _abandon(self, job: Job) -> None:
        """Have the rest of a job dropped, and end a pass that runs only for it."""
        self._queue.abandon(job)
        if job.remaining:
            for runner in self._runners:
                runner.stop_unwanted()

    async def _enqueue(
        self,
        encodings: Sequence[Encoding],
        wants: Sequence[Want],
        permit: Permit,
        arrived: Callable[[int, Output], None] | None = None,
    ) -> Job:
        """Add the sequences of one request to the queue; raises OverloadedError or DeadlineTooShort."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        job = Job(
            [None] * len(encodings),
            done,
            enqueued=time.perf_counter(),
            remaining=len(encodings),
            until=permit.until,
            arrived=arrived,
            client=permit.client,
            returned=permit.returned,
        )
        queued = partial(describe, job, encodings, wants, self._throughput.speed, permit.within_s)
        sequences = await off_loop(queued) if len(encodings) > _MANY_SEQUENCES else queued()
        if not permit.only_connection:
            self._scheduler.end_helpers()
        permit.keep(encodings, wants, sum(map(len, encodings)))
        self._queue.add(sequences, expected=self._expected_tokens(permit.body_bytes) > 0)
        permit.queued = True
        return job

    def _measure(self) -> None:
        """Measure the speed, or take over what the first process of the service measured."""
        throughput = self._throughput
        if not is_shared(self._counters, self.name):
            throughput.speed = measure_speed(self._backend, self._tokenizer)
        share(self._counters, self.name, throughput)
        self.longest_s = throughput.speed.seconds(self.info.max_length)
        timeout_s = self._given_timeout_s or max(_TIMEOUT_S, 2 * self.longest_s)
        self.timeout_s = self._queue.timeout_s = timeout_s
        most = self.info.max_length
        log.info(
            "%s: a text of %d tokens takes about %.2g s; requests must be answered within %.3g s",
            *(self.name, most, self.longest_s, timeout_s),
        )
        if self.longest_s > self.timeout_s:
            log.warning("%s: long texts cannot be answered in that time and will be refused", self.name)
