"""`POST /encode` and `POST /attention`."""

from typing import Any

from fastapi import APIRouter, Request, Response

from model.contract import Output
from service.answers import AttentionResponse, EncodeResponse
from service.attention_planning import plan_attention
from service.exchange import Exchange
from service.intake import Taken, take_in
from service.items import Expected, Item, columns, present
from service.negotiation import BINARY, refuse_uint8
from service.planning import plan_encode
from service.schemas import AttentionRequest, EncodeRequest

router = APIRouter(tags=["inference"])

# Of Python, to find the word that a token belongs to and the tokens that are kept.
_STEPS_PER_TOKEN = 5
_NO_MAPS = "uint8 is for maps, and there are none in this answer"


@router.post("/encode", summary="Sentence and token embeddings", responses={200: {"model": EncodeResponse}})
async def encode(request: Request) -> Response:
    """Turn texts into sentence vectors, contextual token vectors, or both."""
    taken = await take_in(request, EncodeRequest)
    refuse_uint8(taken.dtype, _NO_MAPS)
    exchange = Exchange.open(request, taken)
    return await exchange.in_time(_encode(exchange, taken.body))


@router.post("/attention", summary="Per-head attention maps", responses={200: {"model": AttentionResponse}})
async def attention(request: Request) -> Response:
    """Return the attention of chosen layers, heads, queries and keys.

    Axes are (layer, head, query, key). A row of probabilities is a query and sums to 1.
    """
    taken = await take_in(request, AttentionRequest)
    if taken.body.weights == "score":
        refuse_uint8(taken.dtype, "uint8 holds no negative numbers, and scores may be negative")
    if not taken.body.maps:
        refuse_uint8(taken.dtype, _NO_MAPS)
    exchange = Exchange.open(request, taken)
    return await exchange.in_time(_attention(exchange, taken.body))


async def _encode(exchange: Exchange, body: EncodeRequest) -> Response:
    info = exchange.engine.info
    plan = plan_encode(body, info)
    encodings = await exchange.tokenize()
    style = exchange.style()
    size = exchange.admit(
        style,
        encodings,
        [Expected(plan.shapes(encoding, info.hidden_size)) for encoding in encodings],
        "ask for fewer inputs, fewer `layers` or `pooling_layers`, or no `tokens` in `outputs`",
    )
    wants = [plan.want(encoding, include_prompt=info.include_prompt) for encoding in encodings]

    def item(index: int, output: Output) -> Item:
        arrays = present(embedding=output.sentence, token_embeddings=output.tokens)
        return Item(columns(index, encodings[index]), arrays)

    return await exchange.answer(style, encodings, wants, item, size=size)


async def _attention(exchange: Exchange, body: AttentionRequest) -> Response:
    plan = plan_attention(body, exchange.engine.info, exchange.taken.dtype)
    encodings = await exchange.tokenize()
    listed = sum(len(rows) for rows in (body.queries, body.keys) if rows != "all")
    tokens = sum(map(len, encodings))
    views = await exchange.off_loop(
        lambda: [plan.view(i, *one) for i, one in enumerate(zip(encodings, body.inputs, strict=True))],
        steps=listed * len(encodings) + _STEPS_PER_TOKEN * tokens,
    )
    style = exchange.style(decimals=body.decimals, unit=plan.unit, axes=plan.axes)
    size = exchange.admit(
        style,
        encodings,
        [view.expected for view in views],
        _way_out(body, exchange.taken),
    )
    wants = [view.want for view in views]
    return await exchange.answer(style, encodings, wants, lambda i, output: views[i].item(output), size=size)


def _way_out(body: AttentionRequest, taken: Taken[Any]) -> str:
    """Say which fields of this request would make its answer smaller."""
    ways = ["send fewer inputs", "choose fewer `layers` or `heads`"]
    if body.maps:
        ways.append("choose fewer `queries` or `keys`")
        ways += ["`aggregate` the heads"] if body.aggregate == "none" else []
        ways += ["ask for the `top_k`"] if body.top_k is None else []
        if taken.format not in BINARY:
            ways += ["lower `decimals`", "accept application/x-npz"]
        elif taken.dtype == "float32":
            ways.append("add ?dtype=float16" if body.weights == "score" else "add ?dtype=uint8")
    return f"{', '.join(ways[:-1])}, or {ways[-1]}"
