"""`POST /similarity`: how similar texts are to one text, or all to all."""

from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field, StrictStr
from starlette.requests import Request
from starlette.responses import Response

from model.contract import FloatArray, Output, Similarity
from model.heads.similarity import similarity_blocks
from model.tokenization.tokenizer import Truncation
from service.endpoints import Endpoint
from service.http.delivery import Delivery, Work
from service.http.negotiation import refuse_uint8
from service.http.request_body import read_request
from service.protocols.exchange import Exchange, check_count
from service.protocols.native.encode_plan import choose_prompt, choose_task, plan_encode
from service.protocols.native.examples import EXAMPLES
from service.protocols.native.fields import TextList
from service.protocols.native.responses import Usage
from service.protocols.native.schemas import OWN_VECTORS, TaskRequest
from service.serialization.answer_size import bound_alone
from service.serialization.items import Format, Item

_ARRAY = "similarities"
# Products that take less time than handing them to a thread.
_FEW_PRODUCTS = 2**18
# Copies of the vectors while they are compared: those of the batches, an array of them, two of unit length.
_COPIES = 4


class SimilarityRequest(TaskRequest):
    """Texts to compare."""

    listed: ClassVar[str] = "texts"
    example: ClassVar[str] = '{"texts": ["a text", "another"]}'
    elsewhere: ClassVar[dict[str, str]] = {"inputs": "/tei/similarity"}
    formats: ClassVar[tuple[Format, ...]] = ("json", "npz", "safetensors")

    source: StrictStr | None = Field(
        None, description="The text that each of `texts` is compared with; without it, all with all."
    )
    texts: TextList = Field(description="The texts to compare.", examples=[["One text.", "Another text."]])
    function: Similarity | None = Field(
        None,
        description="How vectors are compared; the model's own function by default. `euclidean` and "
        "`manhattan` are negative distances, so that larger is always more similar.",
    )


class SimilarityResponse(BaseModel):
    """The response of `/similarity`."""

    model: str
    function: Similarity
    similarities: list[float] | list[list[float]] = Field(
        description="(texts,) with `source`, otherwise (texts, texts)."
    )
    usage: Usage


async def similarity(request: Request) -> Response:
    """Compare the sentence vectors of texts: with that of one text, or all with all."""
    parsed = await read_request(request, SimilarityRequest)
    refuse_uint8(parsed.dtype, "dtype is uint8, which applies only to maps, and this response has none")
    check_count(parsed.count, request.app.state.service.settings, SimilarityRequest.listed)
    exchange = Exchange.open(request, parsed)
    return await exchange.in_time(compare(exchange, parsed.body))


async def compare(exchange: Exchange, body: SimilarityRequest) -> Response:
    """Answer with the similarities of the texts."""
    info = exchange.engine.info
    plan = plan_encode(OWN_VECTORS, info, choose_task(body, info))
    prompt = choose_prompt(body, info)
    texts = len(body.texts)
    shape = (texts, texts) if body.source is None else (texts,)
    style = exchange.style(listed=False)
    size = bound_alone(style, {_ARRAY: shape})
    exchange.reserve_answer(style, size, _way_out(body, binary=style.binary))
    first = () if body.source is None else (body.source,)
    exchange.reserve_arrays((texts + len(first), plan.sentence_size), copies=_COPIES)
    encodings = await exchange.tokenize(
        [*first, *body.texts],
        Truncation(allowed=body.truncate, side=body.truncation_side),
        prompt,
        lambda i: f"texts.{i - len(first)}" if i >= len(first) else "source",
    )
    delivery = exchange.delivery(style, Work.of(encodings), size)
    result = await exchange.run(delivery, encodings, [plan.want(encoding) for encoding in encodings])
    function = body.function or info.similarity
    similarities = await _compare(delivery, function, result.outputs, len(first))
    item = Item({"function": function}, {_ARRAY: similarities.reshape(shape)})
    return await delivery.deliver([item])


async def _compare(
    delivery: Delivery, function: Similarity, outputs: list[Output], sources: int
) -> FloatArray:
    """Compare the first vectors, or all if `sources` is 0, with the others; a step at a time."""
    vectors = np.stack([output.sentence for output in outputs if output.sentence is not None])
    rows, others = vectors[: sources or None], vectors[sources:]
    similarities = np.empty((len(rows), len(others)), np.float32)
    blocks = similarity_blocks(function, rows, others)
    short, done = len(rows) * others.size <= _FEW_PRODUCTS, 0
    while (block := await delivery.serialize(lambda: next(blocks, None), short=short)) is not None:
        similarities[done : done + len(block)] = block
        done += len(block)
    return similarities


def _way_out(body: SimilarityRequest, *, binary: bool) -> str:
    """Suggest what would make this request's response smaller."""
    ways = ["send fewer `texts`"]
    ways += ["compare them with one `source`"] if body.source is None else []
    ways += [] if binary else ["accept application/x-npz"]
    return ", or ".join(ways)


ENDPOINTS = (
    Endpoint(
        "/similarity",
        similarity,
        ("POST",),
        summary="Similarity of texts",
        request=SimilarityRequest,
        examples=EXAMPLES["/similarity"],
        responses={200: {"model": SimilarityResponse}},
        guarded=True,
    ),
)
