"""One request on its way: tokenized, run, written, as long as its time is not over."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from model.tokenizer import Truncation
from model.types import Encoding, Output, Want
from service.engine import Engine, Result
from service.intake import deadline, overloaded
from service.planning import choose_prompt
from service.problems import Problem
from service.queueing import OverloadedError
from service.responses import PiecesResponse
from service.schemas import InputsRequest
from service.serialize import answer, gather
from service.state import ServiceState

T = TypeVar("T")

# Work of up to so many Python steps or numbers is done on the event loop (about a millisecond).
_INLINE_STEPS = 10_000
_INLINE_VALUES = 40_000
# The columns of a token are written as about so many numbers.
_COLUMN_VALUES = 10


@dataclass
class Exchange:
    """A request, its model and its deadline; times are in seconds."""

    request: Request
    state: ServiceState
    engine: Engine
    body: InputsRequest
    body_bytes: int
    seconds: float
    tokenize_s: float = 0.0

    @classmethod
    def open(cls, request: Request, body: InputsRequest, body_bytes: int) -> "Exchange":
        """Find the model and the deadline; raises Problem."""
        state: ServiceState = request.app.state.service
        seconds = deadline(request, state.settings)
        return cls(request, state, state.engine(body.model), body, body_bytes, seconds)

    async def in_time(self, work: Awaitable[Response]) -> Response:
        """Do the work, but drop it when its time is over (504)."""
        try:
            async with asyncio.timeout(self.seconds):
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

    async def tokenize(self) -> list[Encoding]:
        """Tokenize the inputs as the request asks."""
        body = self.body
        truncation = Truncation(allowed=body.truncate, side=body.truncation_side)
        prompt = choose_prompt(body, self.engine.info)
        encodings, self.tokenize_s = await self.engine.tokenize(
            body.inputs, truncation, prompt, self.body_bytes
        )
        return encodings

    def check_size(self, bound: int, way_out: str) -> None:
        """Refuse an answer that could be too large, before anything is computed."""
        limit = self.state.settings.max_response_bytes
        if bound > limit:
            raise Problem(
                "response-too-large",
                f"The answer could have {bound} bytes and the limit is {limit}: {way_out}.",
                members={"limit": limit, "actual": bound},
            )

    async def run(self, encodings: Sequence[Encoding], wants: Sequence[Want]) -> Result:
        """Compute the outputs of all inputs; raises OverloadedError and InferenceError."""
        return await self.engine.submit(encodings, wants, self.body_bytes)

    async def respond(
        self,
        encodings: Sequence[Encoding],
        result: Result,
        items: Iterator[bytes],
        axes: Sequence[str] | None = None,
    ) -> Response:
        """Write the answer, large ones in a thread, and count it."""
        start = time.perf_counter()
        tokens = sum(len(encoding) for encoding in encodings)
        pieces = answer(items, model=self.engine.name, tokens=tokens, axes=axes)
        values = sum(_size(output) for output in result.outputs) + tokens * _COLUMN_VALUES
        large = values > _INLINE_VALUES
        response = PiecesResponse(await asyncio.to_thread(gather, pieces) if large else gather(pieces))
        stages = {
            "tokenize": self.tokenize_s,
            "queue": result.queue_s,
            "compute": result.compute_s,
            "serialize": time.perf_counter() - start,
        }
        response.headers["Server-Timing"] = ", ".join(
            f"{stage};dur={1e3 * seconds:.3f}" for stage, seconds in stages.items()
        )
        self.state.metrics.stage("serialize", self.engine.name, stages["serialize"])
        self.state.metrics.answered(
            self.request.scope["path"],
            self.engine.name,
            inputs=len(encodings),
            truncated=sum(encoding.truncated for encoding in encodings),
            size=response.size,
        )
        return response


def _size(output: Output) -> int:
    arrays = (output.sentence, output.tokens, output.attention)
    return sum(array.size for array in arrays if array is not None)
