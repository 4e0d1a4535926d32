"""One request on its way: tokenized, bounded, run and answered, as long as its time is not over."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from model.contract import Encoding
from model.tokenization.tokenizer import Text, Truncation
from service.engine.engine import Engine
from service.engine.queueing import OverloadedError
from service.http.delivery import Delivery
from service.http.request_body import ParsedRequest, deadline, overloaded
from service.http.request_context import RequestContext, context_of
from service.lifecycle import ServiceState
from service.memory_limits import ARRIVING, TEXT, TOKEN_BYTES
from service.problems import Problem
from service.protocols.view import View
from service.serialization.answer_size import bound
from service.serialization.items import AnswerStyle, Expected
from service.settings import Settings

T = TypeVar("T")

# Work of up to so many Python steps is done on the event loop (about a millisecond).
_INLINE_STEPS = 10_000


@dataclass
class Exchange:
    """A request, its model, and its time in seconds, which is over at `until` on the event loop's clock."""

    request: Request
    context: RequestContext
    state: ServiceState
    engine: Engine
    taken: ParsedRequest[Any]
    seconds: float
    until: float
    tokenize_s: float = 0.0

    @classmethod
    def open(cls, request: Request, taken: ParsedRequest[Any]) -> "Exchange":
        """Find the model and the deadline; raises Problem, also where there are too many inputs."""
        state: ServiceState = request.app.state.service
        _check_count(taken.count, state.settings)
        seconds = deadline(request, state.settings)
        until = asyncio.get_running_loop().time() + seconds
        engine = state.engine(taken.body.model)
        context = context_of(request.scope)
        context.record.model, context.record.inputs = engine.name, len(taken.body.inputs)
        return cls(request, context, state, engine, taken, seconds, until)

    async def in_time(self, work: Awaitable[T]) -> T:
        """Do the work, but drop it when the request's time is over (504)."""
        try:
            async with asyncio.timeout_at(self.until):
                return await work
        except TimeoutError:
            raise Problem(
                "deadline-exceeded",
                f"The answer was not ready within {self.seconds:g} s: send fewer texts, or allow more time.",
                members={"limit": self.seconds},
            ) from None
        except OverloadedError as error:
            raise overloaded(error) from None

    async def off_loop(self, work: Callable[[], T], *, steps: int) -> T:
        """Do work of many steps in a thread, and of few at once."""
        return await asyncio.to_thread(work) if steps > _INLINE_STEPS else work()

    async def tokenize(
        self, texts: Sequence[Text], truncation: Truncation, prompt: str = ""
    ) -> list[Encoding]:
        """Tokenize texts, each behind the prompt; raises the 413 of a prompt that makes them too large."""
        prompts = len(prompt.encode()) * len(texts)
        _check_prompts(prompts, self.state.settings)
        permit, memory, record = self.context.permit, self.state.memory, self.context.record
        body_bytes = permit.body_bytes
        permit.body_bytes += prompts
        # Not more tokens than bytes, nor than the model reads of each input.
        most = TOKEN_BYTES * min(permit.body_bytes, len(texts) * self.engine.info.max_length)
        memory.take(permit, TEXT * body_bytes + (ARRIVING + TEXT) * prompts + most)
        record.stages.begin("tokenize")
        encodings, self.tokenize_s = await self.engine.tokenize(
            texts, truncation, prompt, permit, lambda size: memory.tokenizing(permit, size)
        )
        record.tokens = sum(map(len, encodings))
        memory.release_part(permit, most - TOKEN_BYTES * record.tokens)
        return encodings

    def style(
        self, *, decimals: int | None = None, unit: bool = True, axes: Sequence[str] | None = None
    ) -> AnswerStyle:
        """Say how the answer is written, in the format that was negotiated."""
        return AnswerStyle(
            self.engine.name,
            self.taken.format,
            self.taken.dtype,
            decimals,
            unit,
            None if axes is None else tuple(axes),
        )

    async def answer(
        self, style: AnswerStyle, encodings: Sequence[Encoding], views: Sequence[View], way_out: str
    ) -> Response:
        """Compute what was planned of each input, and answer with an item for each.

        Raises the 413 of an answer that could be too large before anything is computed: `way_out` says how
        to make it smaller. Raises OverloadedError, InferenceError and Problem.
        """
        size = self._reserve_answer(style, encodings, [view.expected for view in views], way_out)
        stages = self.context.record.stages
        stages["tokenize"] = self.tokenize_s
        stages.begin("queue")
        delivery = Delivery(
            self.request,
            self.context,
            self.state,
            self.engine.name,
            style,
            encodings,
            lambda index, output: views[index].item(output),
            size,
        )
        wants = [view.want for view in views]
        if style.format == "ndjson":
            stream = self.engine.stream(encodings, wants, self.context.permit)
            return await delivery.deliver_lines(stream, self.in_time)
        result = await self.engine.submit(encodings, wants, self.context.permit)
        return await delivery.deliver(result)

    def _reserve_answer(
        self,
        style: AnswerStyle,
        encodings: Sequence[Encoding],
        expected: Sequence[Expected],
        way_out: str,
    ) -> int:
        """Hold the memory of the answer; returns the most bytes that it can have.

        Raises the 413 where that is more than an answer may have, and the 429 where too many large ones are
        on their way.
        """
        limit, size = self.state.max_response_bytes, bound(style, encodings, expected)
        if size > limit:
            raise Problem(
                "response-too-large",
                f"The answer could have {size} bytes and the limit is {limit}: {way_out}.",
                members={"limit": limit, "actual": size},
            )
        try:
            self.state.memory.take_answer(self.context.permit, style.growth * size)
        except Problem:
            self.state.readers.make_room()
            raise
        return size


def _check_prompts(size: int, settings: Settings) -> None:
    """Refuse a prompt that, before each input, has more bytes in all than a body may have."""
    if size > settings.max_body_bytes:
        raise Problem(
            "body-too-large",
            f"The prompt before each input makes {size} bytes and the limit is {settings.max_body_bytes}: "
            "shorten the prompt, or send fewer inputs.",
            members={"field": "prompt", "limit": settings.max_body_bytes, "actual": size},
        )


def _check_count(count: int, settings: Settings) -> None:
    if count > settings.max_inputs:
        raise Problem(
            "too-many-inputs",
            f"There are {count} inputs and the limit is {settings.max_inputs}: "
            "split them over several requests.",
            members={"field": "inputs", "limit": settings.max_inputs, "actual": count},
        )
