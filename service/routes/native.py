"""`POST /encode` and `POST /attention`."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from model.tokenizer import Truncation
from model.types import Encoding, Output, Want
from service.engine import Engine, Result
from service.intake import deadline, overloaded, take_in
from service.planning import choose_prompt, plan_attention, plan_encode
from service.problems import Problem
from service.queueing import OverloadedError
from service.responses import PiecesResponse
from service.schemas import AttentionRequest, AttentionResponse, EncodeRequest, EncodeResponse, InputsRequest
from service.serialize import answer, attention_bound, attention_items, encode_bound, encode_items
from service.state import ServiceState

router = APIRouter(tags=["inference"])
RequestT = TypeVar("RequestT", bound=InputsRequest)

# Up to so many numbers are written on the event loop (about a millisecond); more go to a thread.
_INLINE_VALUES = 40_000


@router.post("/encode", summary="Sentence and token embeddings", responses={200: {"model": EncodeResponse}})
async def encode(request: Request) -> Response:
    """Turn texts into sentence vectors, contextual token vectors, or both."""
    body = await take_in(request, EncodeRequest)
    exchange = Exchange.open(request, body)
    async with exchange.within_deadline():
        info = exchange.engine.info
        plan = plan_encode(body, info)
        encodings = await exchange.tokenize()
        wants = [plan.want(e, include_prompt=info.include_prompt) for e in encodings]
        exchange.check_size(
            encode_bound(
                encodings,
                sentence_size=plan.sentence_size,
                layers=len(plan.token_layers),
                hidden_size=info.hidden_size,
            ),
            "ask for fewer inputs, fewer `layers`, or no `tokens` in `outputs`",
        )
        result = await exchange.run(encodings, wants)
        return await exchange.respond(encodings, result, encode_items(encodings, result.outputs))


@router.post("/attention", summary="Per-head attention maps", responses={200: {"model": AttentionResponse}})
async def attention(request: Request) -> Response:
    """Return the attention of chosen layers, heads, queries and keys.

    Axes are (layer, head, query, key). A row of probabilities is a query and sums to 1.
    """
    body = await take_in(request, AttentionRequest)
    exchange = Exchange.open(request, body)
    async with exchange.within_deadline():
        plan = plan_attention(body, exchange.engine.info)
        encodings = await exchange.tokenize()
        wants = [plan.want(encoding, i) for i, encoding in enumerate(encodings)]
        exchange.check_size(
            attention_bound(encodings, wants, body.decimals),
            "choose fewer `layers`, `heads`, `queries` or `keys`, `aggregate` the heads, "
            "lower `decimals`, or send fewer inputs",
        )
        result = await exchange.run(encodings, wants)
        axes = ["layer", "query", "key"]
        if body.aggregate == "none":
            axes.insert(1, "head")
        items = attention_items(encodings, wants, result.outputs, body.decimals)
        return await exchange.respond(encodings, result, items, axes=axes)


@dataclass
class Exchange:
    """One request on its way through an engine; times are in seconds."""

    request: Request
    state: ServiceState
    engine: Engine
    body: InputsRequest
    expires: float
    tokenize_s: float = 0.0

    @classmethod
    def open(cls, request: Request, body: InputsRequest) -> "Exchange":
        """Find the model and the deadline; raises Problem."""
        state: ServiceState = request.app.state.service
        seconds = deadline(request, state.settings)
        engine = state.engine(body.model)
        return cls(request, state, engine, body, asyncio.get_running_loop().time() + seconds)

    def within_deadline(self) -> "Deadline":
        """Bound what follows; raises the 504."""
        return Deadline(self.expires)

    async def tokenize(self) -> list[Encoding]:
        """Tokenize the inputs as the request asks."""
        body = self.body
        encodings, self.tokenize_s = await self.engine.tokenize(
            body.inputs,
            Truncation(allowed=body.truncate, side=body.truncation_side),
            choose_prompt(body, self.engine.info),
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
        """Compute; raises the 429 when the queue is full, ClientDisconnect when nobody waits any more."""
        work = asyncio.ensure_future(self.engine.submit(encodings, wants))
        # The body is read, so the next message can only be that the client has gone.
        gone = asyncio.ensure_future(self.request.receive())
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ClientDisconnect
            return work.result()
        except OverloadedError as error:
            raise overloaded(error) from None
        finally:
            work.cancel()
            gone.cancel()

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
        large = sum(_size(output) for output in result.outputs) > _INLINE_VALUES
        written = await asyncio.to_thread(list, pieces) if large else list(pieces)
        serialize_s = time.perf_counter() - start
        response = PiecesResponse(written)
        metrics = self.state.metrics
        metrics.stage("serialize", self.engine.name, serialize_s)
        metrics.answered(
            self.request.scope["path"],
            self.engine.name,
            inputs=len(encodings),
            tokens=tokens,
            truncated=sum(encoding.truncated for encoding in encodings),
            size=response.size,
        )
        stages = {
            "tokenize": self.tokenize_s,
            "queue": result.queue_s,
            "compute": result.compute_s,
            "serialize": serialize_s,
        }
        response.headers["Server-Timing"] = ", ".join(
            f"{stage};dur={1e3 * seconds:.3f}" for stage, seconds in stages.items()
        )
        return response


class Deadline:
    """An async context that becomes a 504 when the event loop's clock passes `expires`."""

    def __init__(self, expires: float) -> None:
        self._timeout = asyncio.timeout_at(expires)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *exception: object) -> None:
        try:
            await self._timeout.__aexit__(*exception)  # type: ignore[arg-type]
        except TimeoutError:
            raise Problem(
                "deadline-exceeded",
                "The answer was not ready within the time allowed: send fewer texts, or allow more time.",
            ) from None


def _size(output: Output) -> int:
    arrays = (output.sentence, output.tokens, output.attention)
    return sum(array.size for array in arrays if array is not None)
