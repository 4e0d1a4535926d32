"""Delivers responses: short ones at once, long ones in pieces, ndjson line by line; and counts them."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import chain, islice, starmap
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from model.contract import Encoding, Output
from model.errors import ModelError
from service.engine.engine import Arrivals
from service.http.negotiation import is_short, listed
from service.http.request_context import RequestContext
from service.http.streaming_response import Answer, RawHeaders, StreamedResponse
from service.lifecycle import ServiceState
from service.memory_limits import SMALL_BYTES
from service.problems import Problem, from_model_error, shut_down_too_soon
from service.replies.compression import CODINGS, MIN_BYTES, choose_coding, encoder
from service.replies.formats import FORMATS
from service.replies.json_writer import Piece, last_line, lines
from service.replies.style import AnswerStyle
from service.replies.writing import coded, write
from service.tasks.results import Item, covered

T = TypeVar("T")
ItemMaker = Callable[[int, Output], Item]
InTime = Callable[[Awaitable[Arrivals | None]], Awaitable[Arrivals | None]]

# The most items serialized within two milliseconds; fewer in a file, where each item has arrays of its own.
_MANY_ITEMS, _MANY_ITEMS_IN_FILE = 512, 32
# The most truncated inputs for which a header says what was read: clients limit the size of heads.
_MOST_COVERED = 100


@dataclass(frozen=True, slots=True)
class Work:
    """What is counted for a response: its inputs, how many of them were truncated, and the tokens that ran.

    `covered` is the value of the header that says what was read of the truncated ones.
    """

    inputs: int
    truncated: int = 0
    tokens: int = 0
    covered: bytes = b""

    @classmethod
    def of(cls, encodings: Sequence[Encoding], query: Encoding | None = None) -> "Work":
        """Count inputs that all run; a `query` that runs beside them does not count as an input."""
        truncated = sum([encoding.truncated for encoding in encodings])
        tokens = sum([len(encoding.token_ids) for encoding in encodings])
        named = chain([] if query is None else [("query", query)], enumerate(encodings))
        read = ((name, covered(one)) for name, one in named if one.truncated)
        return cls(len(encodings), truncated, tokens, say_covered(read))


def say_covered(read: Iterable[tuple[object, Sequence[tuple[int, int]]]]) -> bytes:
    """Say which code points of truncated texts were read: `3=0-1024`, or for a pair `3=0-20/0-900`."""
    entries = (
        f"{name}={'/'.join(f'{start}-{end}' for start, end in spans)}"
        for name, spans in islice(read, _MOST_COVERED)
        if spans
    )
    return ", ".join(entries).encode()


@dataclass
class Delivery:
    """One response, of at most `bound` bytes."""

    request: Request
    context: RequestContext
    state: ServiceState
    model: str
    style: AnswerStyle
    work: Work
    bound: int
    codings: tuple[str, ...] = CODINGS
    """The content codings that the protocol's clients know."""
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    """Further headers, or replacements for the usual ones."""
    written_s: float = 0.0
    sent: int = 0

    def __post_init__(self) -> None:
        self.stages = self.context.record.stages

    async def deliver(self, items: Iterable[Item]) -> Response:
        """Build the response once all outputs are available; `items` may be iterated in a thread."""
        if self._short:
            return await self._deliver_whole(items)
        size, pieces = await self.serialize(lambda: write(self.style, items, self.work.tokens))
        coding = self._coding()
        if coding:
            pieces = coded(pieces, encoder(coding), end=True)
        return await self._streamed(self._pieces(pieces), coding, size)

    async def deliver_lines(
        self, stream: AsyncGenerator[Arrivals, None], in_time: InTime, make_item: ItemMaker
    ) -> Response:
        """Build a response with a line for each output as it arrives; raises errors before the first line.

        `make_item` may be called in a thread.
        """
        coding = self._coding()
        pieces = self._lines(stream, in_time, make_item, coding)
        return await self._streamed(pieces, coding, None)

    async def _deliver_whole(self, items: Iterable[Item]) -> Response:
        start = time.perf_counter()
        self.stages.begin("serialize", start)
        _, pieces = write(self.style, items, self.work.tokens, whole=True)
        body = b"".join(pieces)
        coding = self._coding() if len(body) >= MIN_BYTES else None
        if coding:
            body = await self._off_loop(lambda: b"".join(coded([body], encoder(coding), end=True)))
        self.written_s += time.perf_counter() - start
        self.sent = len(body)
        self._count(complete=True)
        return Answer(self._headers(coding), body)

    async def _streamed(
        self, pieces: AsyncGenerator[Piece, None], coding: str | None, size: int | None
    ) -> StreamedResponse:
        """Produce the first piece now: an error there can still become an error response."""
        counted = self._counted(await anext(pieces), pieces)
        return StreamedResponse(counted, self._headers(coding), size)

    async def _pieces(self, pieces: Iterator[Piece]) -> AsyncGenerator[Piece, None]:
        while (piece := await self._next(pieces)) is not None:
            yield piece

    async def _lines(
        self,
        stream: AsyncGenerator[Arrivals, None],
        in_time: InTime,
        make_item: ItemMaker,
        coding: str | None,
    ) -> AsyncGenerator[Piece, None]:
        coder = encoder(coding) if coding else None
        begun = False
        async with aclosing(stream):
            while isinstance(arrived := await self._next_arrivals(stream, in_time), Arrivals):
                self.stages.setdefault("queue", arrived.queue_s)
                pieces = lines(self.style, starmap(make_item, arrived.outputs))
                if coder:
                    pieces = coded(pieces, coder, end=False)
                while (piece := await self._next(pieces)) is not None:
                    begun = True
                    yield piece
        if arrived is not None and not begun:
            raise arrived
        end = last_line(self.style, self.work.tokens) if arrived is None else self._problem_line(arrived)
        yield b"".join(coded([end], coder, end=True)) if coder else end

    async def _next_arrivals(
        self, stream: AsyncGenerator[Arrivals, None], in_time: InTime
    ) -> Arrivals | Problem | None:
        """Wait for the next outputs; None after the last ones."""
        try:
            return await in_time(anext(stream, None))
        except Problem as problem:
            return problem
        except ModelError as error:
            return from_model_error(error)
        except asyncio.CancelledError:
            if not self.state.drain_expired or self.context.gone:
                raise
            return shut_down_too_soon()

    def _problem_line(self, problem: Problem) -> bytes:
        self.state.metrics.reject(problem.kind)
        return bytes(self.context.error(problem).body) + b"\n"

    async def _counted(
        self, first: Piece, pieces: AsyncGenerator[Piece, None]
    ) -> AsyncGenerator[Piece, None]:
        complete = False
        try:
            async with aclosing(pieces):
                yield first
                self.sent += len(first)
                async for piece in pieces:
                    yield piece
                    self.sent += len(piece)
            complete = True
        finally:
            self._count(complete=complete)

    def _count(self, *, complete: bool) -> None:
        """Count the bytes sent and the inputs answered."""
        self.stages["serialize"] = self.written_s
        metrics, route = self.state.metrics, self.context.route
        metrics.sent(route, self.model, self.style.format, self.sent, self.written_s)
        if complete:
            metrics.answered(route, self.model, inputs=self.work.inputs, truncated=self.work.truncated)
            if self.context.key is not None:
                metrics.key_tokens.labels(self.context.key).inc(self.work.tokens)

    @property
    def _short(self) -> bool:
        """Whether to serialize on the event loop, since it takes at most two milliseconds."""
        most = _MANY_ITEMS_IN_FILE if FORMATS[self.style.format].binary else _MANY_ITEMS
        return self.bound <= SMALL_BYTES and self.work.inputs <= most

    async def _next(self, pieces: Iterator[Piece]) -> Piece | None:
        return await self.serialize(lambda: next(pieces, None), short=self._short)

    async def serialize(self, work: Callable[[], T], *, short: bool = False) -> T:
        """Do a part of the serialization, on the event loop if it is `short`."""

        def timed() -> T:
            start = time.perf_counter()
            self.stages.begin("serialize", start)
            try:
                return work()
            finally:
                self.written_s += time.perf_counter() - start

        return timed() if short else await self._off_loop(timed)

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.state.writing, work)

    def _coding(self) -> str | None:
        """Choose the content coding, if the response may be long enough for one."""
        if FORMATS[self.style.format].binary or self.bound < MIN_BYTES:
            return None
        accepted = listed(self.request, b"accept-encoding")
        return choose_coding(accepted, self.codings) if accepted and is_short(accepted) else None

    def _headers(self, coding: str | None) -> RawHeaders:
        timing = ", ".join([f"{stage};dur={1e3 * seconds:.3f}" for stage, seconds in self.stages.items()])
        headers = {
            b"content-type": FORMATS[self.style.format].media_type.encode(),
            b"vary": b"Accept, Accept-Encoding",
            b"server-timing": timing.encode(),
            **self.headers,
        }
        if self.work.truncated:
            headers[b"x-truncated-inputs"] = b"%d" % self.work.truncated
        if self.work.covered:
            headers[b"x-covered"] = self.work.covered
        if coding:
            headers[b"content-encoding"] = coding.encode()
        return [*headers.items()]
