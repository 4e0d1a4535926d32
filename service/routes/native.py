"""`POST /encode` and `POST /attention`."""

from fastapi import APIRouter, Request, Response

from service.exchange import Exchange
from service.intake import take_in
from service.planning import plan_attention, plan_encode
from service.schemas import AttentionRequest, AttentionResponse, EncodeRequest, EncodeResponse
from service.serialize import attention_bound, attention_items, encode_bound, encode_items

router = APIRouter(tags=["inference"])


@router.post("/encode", summary="Sentence and token embeddings", responses={200: {"model": EncodeResponse}})
async def encode(request: Request) -> Response:
    """Turn texts into sentence vectors, contextual token vectors, or both."""
    body, size = await take_in(request, EncodeRequest)
    exchange = Exchange.open(request, body, size)
    return await exchange.in_time(_encode(exchange, body))


@router.post("/attention", summary="Per-head attention maps", responses={200: {"model": AttentionResponse}})
async def attention(request: Request) -> Response:
    """Return the attention of chosen layers, heads, queries and keys.

    Axes are (layer, head, query, key). A row of probabilities is a query and sums to 1.
    """
    body, size = await take_in(request, AttentionRequest)
    exchange = Exchange.open(request, body, size)
    return await exchange.in_time(_attention(exchange, body))


async def _encode(exchange: Exchange, body: EncodeRequest) -> Response:
    info = exchange.engine.info
    plan = plan_encode(body, info)
    encodings = await exchange.tokenize()
    exchange.check_size(
        encode_bound(
            encodings,
            sentence_size=plan.pooled_size,
            layers=len(plan.token_layers),
            hidden_size=info.hidden_size,
        ),
        "ask for fewer inputs, fewer `layers` or `pooling_layers`, or no `tokens` in `outputs`",
    )
    wants = [plan.want(encoding, include_prompt=info.include_prompt) for encoding in encodings]
    result = await exchange.run(encodings, wants)
    return await exchange.respond(encodings, result, encode_items(encodings, result.outputs))


async def _attention(exchange: Exchange, body: AttentionRequest) -> Response:
    plan = plan_attention(body, exchange.engine.info)
    encodings = await exchange.tokenize()
    listed = sum(len(rows) for rows in (body.queries, body.keys) if rows != "all")
    wants = await exchange.off_loop(
        lambda: [plan.want(encoding, i) for i, encoding in enumerate(encodings)],
        steps=listed * len(encodings),
    )
    exchange.check_size(
        attention_bound(encodings, wants, body.decimals),
        "choose fewer `layers`, `heads`, `queries` or `keys`, `aggregate` the heads, lower `decimals`, or "
        "send fewer inputs",
    )
    result = await exchange.run(encodings, wants)
    axes = ["layer", "head", "query", "key"] if body.aggregate == "none" else ["layer", "query", "key"]
    items = attention_items(encodings, wants, result.outputs, body.decimals)
    return await exchange.respond(encodings, result, items, axes=axes)
