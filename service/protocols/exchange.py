"""Processes one request within its deadline: tokenize, check limits, run and answer."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from model.contract import Encoding, Output, Role, Want
from model.errors import InputTooLong, InputTooSlow, NotFinite, NoTokens
from model.tokenization.tokenizer import Text, Truncation
from service.engine.admission import DeadlineTooShort, OverloadedError
from service.engine.engine import Arrivals, Engine, Result
from service.http.delivery import Delivery, Work
from service.http.request_body import ParsedRequest
from service.http.request_context import RequestContext, context_of
from service.http.size_limits import check_repeated, check_response
from service.lifecycle import ServiceState
from service.memory_limits import ARRIVING, TEXT, TOKEN_BYTES
from service.problems import Problem, changed_too_much
from service.refusals import deadline_too_short, overloaded
from service.replies.answer_size import bound, waiting_bytes
from service.replies.style import AnswerStyle, Frame
from service.replies.too_large import TooLarge, Ways
from service.system.off_loop import off_loop
from service.tasks.chunking.windows import WINDOW_BYTES, LongWindows, windows_over
from service.tasks.errors import OptionError
from service.tasks.heads import has_query_table
from service.tasks.interventions import Changes
from service.tasks.precision import Precision
from service.tasks.prompts import check_prompt
from service.tasks.results import Expected, Item
from service.tasks.view import Sequences, View

T = TypeVar("T")

# Planning runs on the event loop for small requests of at most this many tokens, in about 0.5 ms: a thread
# takes 0.1 ms to start and to end. Lists of options and of chunks are long only in large bodies.
_FEW_TOKENS, _SMALL_BYTES = 1000, 8192


@dataclass(frozen=True, slots=True)
class Holding:
    """Memory that planning needs, and that is reserved before anything is planned."""

    most: Callable[[Sequence[Encoding]], tuple[int, Sequence[Expected]]]
    """Bounds this memory, given the tokens of all inputs; also returns what to expect of items, if known."""
    kept: Callable[[Sequence[View]], int]
    """Counts the bytes that the finished plans really hold."""


@dataclass
class Exchange:
    """A request, its engine and its timeout of `seconds`, which ends at `until` on the event loop's clock."""

    request: Request
    context: RequestContext
    state: ServiceState
    engine: Engine
    parsed: ParsedRequest[Any]
    seconds: float
    until: float
    value: Callable[[Item], Any] | None = None
    """What the protocol writes for an item, if its responses are values without names."""
    frame: Frame | None = None
    """What stands before and after these values, given the number of tokens run."""
    cutting: str = 'leave out "truncate": false'
    """What to change so that too long a text is cut, for errors; "" where texts never are."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Option of a task -> the name that it has in the request, where that is another."""
    copies: int = 1
    """How many times the response contains each value."""
    decimals: int | None = None
    """Decimals of maps and statistics in JSON; None for all that a float32 has."""
    alone: bool = False
    """Whether the value of the only item is the response, without a list around it."""
    tokenize_s: float = 0.0
    _changes: Changes | None = None
    _body_charged: bool = False
    _transient: int = 0

    @classmethod
    def open(cls, request: Request, parsed: ParsedRequest[Any]) -> "Exchange":
        """Find the model and the deadline; raises Problem."""
        context = context_of(request.scope)
        state, own_s = context.state, context.timeout_s
        engine = state.engine(parsed.body.model)
        seconds = min(engine.timeout_s, own_s)
        left_s = seconds - context.waited_s
        until = asyncio.get_running_loop().time() + left_s
        context.permit.within_s, context.permit.until = seconds, time.perf_counter() + left_s
        context.record.model = engine.name
        context.record.inputs = len(getattr(parsed.body, parsed.body.listed))
        return cls(request, context, state, engine, parsed, seconds, until, _transient=parsed.transient)

    async def in_time(self, work: Awaitable[T]) -> T:
        """Await the work, but cancel it when the request times out (504)."""
        try:
            async with asyncio.timeout_at(self.until):
                return await work
        except TimeoutError:
            raise Problem(
                "deadline-exceeded",
                f"The response was not ready within {self.seconds:g} s: send fewer texts or allow more time.",
                members={"limit": self.seconds},
            ) from None
        except OverloadedError as error:
            permit = self.context.permit
            permit.retry = permit.promised or error.retry()
            raise overloaded(error, permit.retry) from None
        except DeadlineTooShort as error:
            raise deadline_too_short(error) from None
        except NotFinite:
            if self._changes is None:
                raise
            raise changed_too_much() from None
        except OptionError as error:
            members = {"field": self.name(error.option), **error.members}
            raise Problem(error.kind, error.say(self.name), members=members) from None

    def name(self, option: str) -> str:
        """Return what the request calls an option, or an item of one, such as `texts.3`."""
        first, dot, rest = option.partition(".")
        return self.names.get(first, first) + dot + rest

    async def off_loop(self, work: Callable[[], T], tokens: int) -> T:
        """Run work on this number of tokens in a thread, or directly if they are few in a small body."""
        small = tokens <= _FEW_TOKENS and self.context.permit.body_bytes <= _SMALL_BYTES
        return work() if small else await off_loop(work)

    async def tokenize(
        self,
        texts: Sequence[Text],
        truncation: Truncation,
        prompt: str = "",
        place: Callable[[int], str] = "inputs.{}".format,
        query: str = "",
        role: Role | None = None,
        *,
        runs: bool = True,
    ) -> list[Encoding]:
        """Tokenize texts, each preceded by the prompt; raises the 413 if the prompt makes them too large.

        `place` names the option that has the text of an index. `query` is a text that the request has once
        but that is part of each of the texts: the 413 applies to it as to the prompt. `role` is the role of
        the texts in late interaction. May be called several times. Raises OptionError if the texts are pairs
        and cannot have a prompt, and, if the texts will be run (`runs`), NoTokens for a text that has no
        tokens left to run.
        """
        repeated, tokenizer = 0, self.engine.tokenizer_of(role)
        prompt = prompt or tokenizer.own_prompt or ""
        check_prompt(self.engine.info, texts, prompt)
        if prompt or query:
            repeated = len(prompt.encode()) * len(texts) + len(query.encode()) * (len(texts) - 1)
            check_repeated("query" if query else "prompt", repeated, self.state.settings)
        given = getattr(self.parsed.body, "interventions", None) if runs else None
        if given is not None and self._changes is None:
            self._changes = Changes(given, self.engine.info)
        permit, memory, record = self.context.permit, self.state.memory, self.context.record
        body_bytes = 0 if self._body_charged else permit.body_bytes
        self._body_charged = True
        permit.body_bytes += repeated
        # At most one token per byte plus what a role adds, and no more than are kept of each input.
        tokens = permit.body_bytes + len(texts) * tokenizer.added
        kept = len(texts) * (truncation.most or self.engine.info.max_length)
        most = TOKEN_BYTES * min(tokens, kept)
        memory.take(permit, TEXT * body_bytes + (ARRIVING + TEXT) * repeated + most, self._unused())
        record.stages.begin("tokenize")
        try:
            encodings, seconds = await self.engine.tokenize(
                texts, truncation, prompt, permit, lambda size: memory.tokenizing(permit, size), role
            )
        except (InputTooLong, InputTooSlow) as error:
            error.field = self.name(place(int(error.field.rpartition(".")[2])))
            if isinstance(error, InputTooLong):
                error.advice = self.cutting
            raise
        self.tokenize_s += seconds
        tokens = sum([len(encoding.token_ids) for encoding in encodings])
        record.tokens = (record.tokens or 0) + tokens
        self._transient = most - TOKEN_BYTES * tokens
        # A query whose words are weighed by a table may have none.
        if runs and not (role == "query" and has_query_table(self.engine.info)):
            self._check_tokens(encodings, place)
        if (changes := self._changes) is not None:
            self.reserve(changes.held_bytes(encodings))
            await self.off_loop(lambda: changes.take(encodings, place), tokens * len(given or ()))
        return encodings

    async def tokenize_whole(
        self,
        texts: Sequence[Text],
        truncation: Truncation,
        prompt: str,
        overlap: int | None,
        place: Callable[[int], str] = "inputs.{}".format,
    ) -> tuple[list[Encoding], list[LongWindows | None]]:
        """Tokenize texts as `tokenize` does, but whole; also returns the windows over those that are long.

        Each window repeats `overlap` tokens of the one before. Raises the errors of `windows_over`, and
        OptionError if the request has interventions and a text is read in windows.
        """
        info, most = self.engine.info, self.state.settings.most_inputs
        whole = replace(truncation, most=most * info.max_length)
        encodings = await self.tokenize(texts, whole, prompt, place)
        left = self.engine.cuts_left(truncation)
        found = windows_over(encodings, info.max_length, overlap, most, place, left=left)
        if self._changes is not None:
            self._changes.check_whole(found, place)
        tokens = sum([windows.tokens for windows in found if windows is not None])
        self.state.memory.take(self.context.permit, WINDOW_BYTES * tokens)
        return encodings, found

    def _check_tokens(self, encodings: Sequence[Encoding], place: Callable[[int], str]) -> None:
        if not self.engine.info.layers:
            return  # a table of token vectors gives even a text without tokens a vector: 0
        pools_prompt = self.engine.info.include_prompt
        for index, encoding in enumerate(encodings):
            if len(encoding.token_ids) <= (0 if pools_prompt else encoding.prompt_length):
                raise NoTokens(field=self.name(place(index)))

    def tokenized(self, seconds: float) -> None:
        """Record how long the tokenizer took for work other than that of `tokenize`."""
        self.tokenize_s = seconds
        self.state.metrics.stages(self.engine.name, tokenize=seconds)

    def style(
        self,
        *,
        unit: bool = True,
        axes: Sequence[str] | None = None,
        listed: bool = True,
        precision: Precision = "float32",
        method: str | None = None,
    ) -> AnswerStyle:
        """Return how to write the response, in the negotiated format."""
        return AnswerStyle(
            self.engine.name,
            self.parsed.format,
            self.parsed.dtype,
            self.decimals,
            unit,
            None if axes is None else tuple(axes),
            listed and not self.alone,
            precision,
            method,
            self.value,
            self.frame,
        )

    async def answer(
        self,
        style: AnswerStyle,
        encodings: Sequence[Encoding],
        view: Callable[[int, Encoding], View],
        ways: Ways | str,
        holding: Holding | None = None,
    ) -> Response:
        """Compute what is to be returned for each input, and answer with an item for each.

        `view` plans an input, given its index and its tokens. Before anything is computed, the 413 is raised
        if the response could be too large: `ways` say how to make it smaller. Also raises what `view` raises,
        OverloadedError, InferenceError and Problem.
        """
        work, most = Work.of(encodings), 0
        if holding is not None:
            most, known = await self.off_loop(lambda: holding.most(encodings), work.tokens)
            await self._check_items(style, known, bound(style, known), ways)
            self.state.memory.take(self.context.permit, most, self._unused())

        def plan() -> tuple[Sequences, list[Expected], list[View], int, int]:
            views = [view(index, encoding) for index, encoding in enumerate(encodings)]
            expected = [one.expected for one in views]
            size, waiting = bound(style, expected), waiting_bytes(style, expected)
            sequences = Sequences(encodings, views, self.engine.finish)
            return sequences, expected, views, size, waiting

        sequences, expected, views, size, waiting = await self.off_loop(plan, work.tokens)
        await self._check_items(style, expected, size, ways)
        unused = 0 if holding is None else most - holding.kept(views)
        self.reserve_answer(style, size, waiting=waiting, unused=unused)
        delivery = self.delivery(style, self._windowed(work, sequences), size + waiting)
        if style.format == "ndjson":
            stream = self.stream(sequences.encodings, sequences.wants)
            lines = sequences.gathered(stream) if sequences.windowed else stream
            return await delivery.deliver_lines(lines, self.in_time, sequences.item)
        result = await self.run(sequences.encodings, sequences.wants)
        return await delivery.deliver(sequences.items(result.outputs))

    def _windowed(self, work: Work, sequences: Sequences) -> Work:
        """Count the tokens of windows instead of those of the texts."""
        if not sequences.windowed:
            return work
        tokens, record = sum(map(len, sequences.encodings)), self.context.record
        record.tokens = (record.tokens or 0) + tokens - work.tokens
        return replace(Work.of(sequences.read), tokens=tokens)

    def delivery(self, style: AnswerStyle, work: Work, size: int) -> Delivery:
        """Prepare the delivery of a response of at most `size` bytes, or made from arrays of that size."""
        self.context.record.stages["tokenize"] = self.tokenize_s
        return Delivery(self.request, self.context, self.state, self.engine.name, style, work, size)

    def stream(self, encodings: Sequence[Encoding], wants: Sequence[Want]) -> AsyncGenerator[Arrivals, None]:
        """Compute outputs, and return a stream of them as they arrive."""
        self._begin_queue()
        return self.engine.stream(encodings, self._changed(wants), self.context.permit)

    def take_changes(self) -> Changes | None:
        """Take the request's interventions, if any: from then on, `run` and `stream` do not apply them."""
        changes, self._changes = self._changes, None
        return changes

    def _changed(self, wants: Sequence[Want]) -> Sequence[Want]:
        """Have the sequences run with the interventions of the request, if it has any."""
        return wants if self._changes is None else self._changes.add_to(wants)

    async def run(self, encodings: Sequence[Encoding], wants: Sequence[Want]) -> Result:
        """Compute all outputs that a response will be made of; raises as `answer` does."""
        self._begin_queue()
        result = await self.engine.submit(encodings, self._changed(wants), self.context.permit)
        self._computed(result)
        return result

    async def run_each(
        self, encodings: Sequence[Encoding], wants: Sequence[Want], take: Callable[[int, Output], None]
    ) -> None:
        """Do what `run` does, but pass each output to `take` as it arrives, so that only few are kept."""
        start, waited_s = time.perf_counter(), None
        async with aclosing(self.stream(encodings, wants)) as stream:
            async for arrivals in stream:
                waited_s = arrivals.queue_s if waited_s is None else waited_s
                for index, output in arrivals.outputs:
                    take(index, output)
        queue_s = waited_s or 0.0
        self._computed(Result([], queue_s, time.perf_counter() - start - queue_s))

    def _begin_queue(self) -> None:
        """Begin to wait, and release the memory that is not needed any more."""
        self.context.record.stages.begin("queue")
        if unused := self._unused():
            self.state.memory.release_part(self.context.permit, unused)

    def _computed(self, result: Result) -> None:
        """Record how long the outputs took."""
        stages = self.context.record.stages
        stages.begin("compute", stages.begun["queue"] + result.queue_s)
        for stage, seconds in (("queue", result.queue_s), ("compute", result.compute_s)):
            stages[stage] = stages.get(stage, 0.0) + seconds

    def reserve(self, size: int) -> None:
        """Reserve memory for what is not part of the response; raises the 429."""
        self.state.memory.take(self.context.permit, size)

    def reserve_arrays(self, shape: tuple[int, ...], *, copies: int) -> None:
        """Reserve memory for float32 arrays that are not part of the response; raises the 429."""
        self.reserve(4 * copies * math.prod(shape))

    def reserve_answer(
        self, style: AnswerStyle, size: int, *ways: str, waiting: int = 0, unused: int = 0
    ) -> None:
        """Reserve memory for a response of at most `size` bytes; `ways` say how to make it smaller.

        `waiting` counts further bytes, of arrays that items are made from while they are written. `unused`
        bytes of what was reserved before are released. Raises the 413 if `size` exceeds the limit, and the
        429 if requests hold too much memory.
        """
        check_response(self.state, size, ways)
        memory, permit = self.state.memory, self.context.permit
        try:
            memory.take_answer(permit, style.growth * size + waiting, unused + self._unused())
        except Problem:
            self.state.readers.make_room()
            raise

    def _unused(self) -> int:
        """Return how many reserved bytes are not needed any more; the caller has to release them."""
        unused, self._transient = self._transient, 0
        return unused

    async def _check_items(
        self, style: AnswerStyle, expected: Sequence[Expected], size: int, ways: Ways | str
    ) -> None:
        """Raise the 413 if the items, of at most `size` bytes in all, could exceed the limit."""
        limit = self.state.max_response_bytes
        if size > limit:
            refused = TooLarge(style, expected, limit)
            found = [ways] if isinstance(ways, str) else await off_loop(ways, refused)
            check_response(self.state, size, found)
