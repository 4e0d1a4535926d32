"""`POST /encode` and `POST /attention`."""

from fastapi import APIRouter, Request, Response

from model.types import Output
from service.exchange import Exchange
from service.intake import take_in
from service.items import Expected, Item, columns, labels, map_shape, present
from service.negotiation import refuse_uint8
from service.planning import plan_attention, plan_encode
from service.schemas import AttentionRequest, AttentionResponse, EncodeRequest, EncodeResponse

router = APIRouter(tags=["inference"])


@router.post("/encode", summary="Sentence and token embeddings", responses={200: {"model": EncodeResponse}})
async def encode(request: Request) -> Response:
    """Turn texts into sentence vectors, contextual token vectors, or both."""
    taken = await take_in(request, EncodeRequest)
    refuse_uint8(taken.dtype, "uint8 is for maps, and there are none in this answer")
    exchange = Exchange.open(request, taken)
    return await exchange.in_time(_encode(exchange, taken.body))


@router.post("/attention", summary="Per-head attention maps", responses={200: {"model": AttentionResponse}})
async def attention(request: Request) -> Response:
    """Return the attention of chosen layers, heads, queries and keys.

    Axes are (layer, head, query, key). A row of probabilities is a query and sums to 1.
    """
    taken = await take_in(request, AttentionRequest)
    exchange = Exchange.open(request, taken)
    return await exchange.in_time(_attention(exchange, taken.body))


async def _encode(exchange: Exchange, body: EncodeRequest) -> Response:
    info = exchange.engine.info
    plan = plan_encode(body, info)
    encodings = await exchange.tokenize()
    shapes: dict[str, tuple[int, ...]] = {}
    if plan.sentence is not None:
        shapes["embedding"] = (max(plan.pooled_size, plan.sentence_size),)
    expected = [
        Expected(shapes | {"token_embeddings": (len(plan.token_layers), len(e), info.hidden_size)})
        if plan.token_layers
        else Expected(shapes)
        for e in encodings
    ]
    style = exchange.style()
    size = exchange.check_size(
        style,
        encodings,
        expected,
        "ask for fewer inputs, fewer `layers` or `pooling_layers`, or no `tokens` in `outputs`",
    )
    wants = [plan.want(encoding, include_prompt=info.include_prompt) for encoding in encodings]

    def item(index: int, output: Output) -> Item:
        arrays = present(embedding=output.sentence, token_embeddings=output.tokens)
        return Item(columns(index, encodings[index]), arrays)

    return await exchange.answer(style, encodings, wants, item, size=size)


async def _attention(exchange: Exchange, body: AttentionRequest) -> Response:
    plan = plan_attention(body, exchange.engine.info)
    encodings = await exchange.tokenize()
    listed = sum(len(rows) for rows in (body.queries, body.keys) if rows != "all")
    wants = await exchange.off_loop(
        lambda: [plan.want(encoding, i) for i, encoding in enumerate(encodings)],
        steps=listed * len(encodings),
    )
    axes = ["layer", "head", "query", "key"] if body.aggregate == "none" else ["layer", "query", "key"]
    style = exchange.style(decimals=body.decimals, axes=axes)
    shapes = [map_shape(want.attention, len(e)) for e, want in zip(encodings, wants, strict=True)]
    expected = [Expected({"attention": shape}, labels=sum(shape)) for shape in shapes]
    size = exchange.check_size(
        style,
        encodings,
        expected,
        "choose fewer `layers`, `heads`, `queries` or `keys`, `aggregate` the heads, lower `decimals`, or "
        "send fewer inputs",
    )

    def item(index: int, output: Output) -> Item:
        head = columns(index, encodings[index]) | labels(wants[index].attention, len(encodings[index]))
        return Item(head, present(attention=output.attention))

    return await exchange.answer(style, encodings, wants, item, size=size)
