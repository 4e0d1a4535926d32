"""One request on its way: tokenized, bounded, run and answered, as long as its time is not over."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from model.contract import Encoding, Want
from model.tokenization.tokenizer import Text, Truncation
from service.clients.addresses import CLIENT
from service.engine.engine import Engine
from service.engine.queueing import OverloadedError
from service.http.delivery import Delivery, ItemMaker
from service.http.request_body import Taken, deadline, overloaded
from service.lifecycle import ServiceState
from service.memory_limits import ARRIVING, TEXT, TOKEN_BYTES
from service.problems import Problem
from service.serialization.answer_size import bound
from service.serialization.items import AnswerStyle, Expected
from service.settings import Settings
from service.telemetry.request_record import ACCESS, Access

T = TypeVar("T")

# Work of up to so many Python steps is done on the event loop (about a millisecond).
_INLINE_STEPS = 10_000


@dataclass
class Exchange:
    """A request, its model, and its time in seconds, which is over at `until` on the event loop's clock."""

    request: Request
    state: ServiceState
    engine: Engine
    taken: Taken[Any]
    seconds: float
    until: float
    tokenize_s: float = 0.0
    text_bytes: int = 0
    """The size of the body, with its prompt before each input."""

    @classmethod
    def open(cls, request: Request, taken: Taken[Any]) -> "Exchange":
        """Find the model and the deadline; raises Problem, also where there are too many inputs."""
        state: ServiceState = request.app.state.service
        _check_count(taken.count, state.settings)
        seconds = deadline(request, state.settings)
        until = asyncio.get_running_loop().time() + seconds
        engine = state.engine(taken.body.model)
        access: Access = request.scope["state"][ACCESS]
        access.model, access.inputs = engine.name, len(taken.body.inputs)
        return cls(request, state, engine, taken, seconds, until)

    @property
    def access(self) -> Access:
        """What is taken down of this request."""
        access: Access = self.request.scope["state"][ACCESS]
        return access

    @property
    def client(self) -> str:
        """Whose request it is, for fairness."""
        return str(self.request.scope["state"][CLIENT])

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
        self.text_bytes = self.taken.size + prompts
        held, memory = self.request.scope["state"], self.state.memory
        # Not more tokens than bytes, nor than the model reads of each input.
        most = TOKEN_BYTES * min(self.text_bytes, len(texts) * self.engine.info.max_length)
        memory.take(held, TEXT * self.taken.size + (ARRIVING + TEXT) * prompts + most)
        self.access.stages.begin("tokenize")
        encodings, self.tokenize_s = await self.engine.tokenize(
            texts,
            truncation,
            prompt,
            self.text_bytes,
            lambda size: memory.tokenizing(held, size),
            client=self.client,
        )
        self.access.tokens = sum(map(len, encodings))
        memory.let_go(held, most - TOKEN_BYTES * self.access.tokens)
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

    def admit(
        self,
        style: AnswerStyle,
        encodings: Sequence[Encoding],
        expected: Sequence[Expected],
        way_out: str,
    ) -> int:
        """Refuse an answer that could be too large, before anything is computed; returns its bound.

        Refuses with 429 where too many large ones are on their way.
        """
        limit, size = self.state.max_response_bytes, bound(style, encodings, expected)
        if size > limit:
            raise Problem(
                "response-too-large",
                f"The answer could have {size} bytes and the limit is {limit}: {way_out}.",
                members={"limit": limit, "actual": size},
            )
        try:
            self.state.memory.take_answer(self.request.scope["state"], style.growth * size)
        except Problem:
            self.state.readers.make_room()
            raise
        return size

    async def answer(
        self,
        style: AnswerStyle,
        encodings: Sequence[Encoding],
        wants: Sequence[Want],
        make_item: ItemMaker,
        *,
        size: int,
    ) -> Response:
        """Compute the outputs of all inputs, and make each an item of the answer, which is at most `size`.

        `make_item` takes an input's index and its output; of a long answer it is called in a thread.
        Raises OverloadedError, InferenceError and Problem.
        """
        stages = self.access.stages
        stages["tokenize"] = self.tokenize_s
        stages.begin("queue")
        delivery = Delivery(
            self.request, self.state, self.engine.name, style, encodings, make_item, size, stages
        )
        if style.format == "ndjson":
            stream = self.engine.stream(encodings, wants, self.text_bytes, client=self.client)
            return await delivery.deliver_lines(stream, self.in_time)
        result = await self.engine.submit(encodings, wants, self.text_bytes, client=self.client)
        return await delivery.deliver(result)


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
