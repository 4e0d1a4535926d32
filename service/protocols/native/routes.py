"""`POST /encode` and `POST /attention`."""

from collections.abc import Sequence
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from model.contract import Encoding
from model.tokenization.tokenizer import Text, Truncation
from service.endpoints import Endpoint
from service.http.negotiation import BINARY, FORMATS, refuse_uint8
from service.http.request_body import ParsedRequest, read_request
from service.problems import Problem
from service.protocols.exchange import Exchange, check_count
from service.protocols.native.attention_plan import plan_attention
from service.protocols.native.encode_plan import EncodePlan, choose_prompt, choose_task, plan_encode
from service.protocols.native.examples import EXAMPLES
from service.protocols.native.responses import AttentionResponse, EncodeResponse
from service.protocols.native.schemas import AttentionRequest, EncodeRequest, InputsRequest
from service.protocols.view import View

NativeT = TypeVar("NativeT", bound=InputsRequest)

# Python steps to find a token's word and whether it is kept.
_STEPS_PER_TOKEN = 5
# Python steps to find a chunk's tokens, and the bytes of its two pairs of numbers (measured).
_STEPS_PER_CHUNK = 30
_CHUNK_BYTES = 400
_NO_MAPS = "dtype is uint8, which applies only to maps, and this response has none"


async def encode(request: Request) -> Response:
    """Encode texts as sentence vectors, contextual token vectors, or both."""
    parsed = await _read(request, EncodeRequest)
    refuse_uint8(parsed.dtype, _NO_MAPS)
    exchange = Exchange.open(request, parsed)
    return await exchange.in_time(_encode(exchange, parsed.body))


async def attention(request: Request) -> Response:
    """Return the attention of selected layers, heads, queries and keys.

    Axes are (layer, head, query, key). A row of probabilities is a query and sums to 1.
    """
    parsed = await _read(request, AttentionRequest)
    if parsed.body.weights == "score":
        refuse_uint8(parsed.dtype, "dtype is uint8, and scores may be negative")
    if not parsed.body.maps:
        refuse_uint8(parsed.dtype, _NO_MAPS)
    exchange = Exchange.open(request, parsed)
    return await exchange.in_time(_attention(exchange, parsed.body))


async def _read(request: Request, schema: type[NativeT]) -> ParsedRequest[NativeT]:
    """Read a request; raises the 422 of `decimals` for a format that is not rounded, then the 413."""
    parsed = await read_request(request, schema)
    if parsed.format in BINARY and parsed.body.is_overridden("decimals"):
        raise Problem(
            "invalid-request",
            f"decimals has no effect on {FORMATS[parsed.format]}, whose numbers are not rounded: leave it "
            "out.",
            members={"field": "decimals"},
        )
    check_count(parsed.count, request.app.state.service.settings, schema.listed)
    return parsed


async def _tokenize(exchange: Exchange, body: InputsRequest) -> list[Encoding]:
    prompt = choose_prompt(body, exchange.engine.info)
    truncation = Truncation(allowed=body.truncate, side=body.truncation_side)
    return await exchange.tokenize(body.inputs, truncation, prompt)


async def _encode(exchange: Exchange, body: EncodeRequest) -> Response:
    info = exchange.engine.info
    plan = plan_encode(body.embeddings, info, choose_task(body, info))
    encodings = await _tokenize(exchange, body)
    views = await _plan_items(exchange, plan, encodings, body.inputs)
    way_out = "send fewer inputs, choose fewer `layers` or `pooling_layers`, "
    way_out += "choose fewer `chunks`, " if plan.chunks is not None else ""
    way_out += "or leave `tokens` out of `outputs`"
    return await exchange.answer(exchange.style(precision=plan.precision), encodings, views, way_out)


async def _plan_items(
    exchange: Exchange, plan: EncodePlan, encodings: Sequence[Encoding], texts: Sequence[Text]
) -> list[View]:
    """Plan each input; texts are split into chunks, in memory that is reserved first."""
    inputs = [*enumerate(zip(encodings, texts, strict=True))]
    if plan.chunks is None:
        return [plan.view(i, *one) for i, one in inputs]
    most = sum(map(plan.chunks.most, encodings))
    memory, permit = exchange.state.memory, exchange.context.permit
    memory.take(permit, _CHUNK_BYTES * most)
    steps = _STEPS_PER_TOKEN * sum(map(len, encodings)) + _STEPS_PER_CHUNK * most
    if plan.chunks.chunking == "sentences":
        steps += sum(map(len, texts))
    views = await exchange.off_loop(lambda: [plan.view(i, *one) for i, one in inputs], steps=steps)
    found = sum(len(view.columns["chunks"]["offsets"]) for view in views)
    memory.release_part(permit, _CHUNK_BYTES * (most - found))
    return views


async def _attention(exchange: Exchange, body: AttentionRequest) -> Response:
    info = exchange.engine.info
    embeddings = plan_encode(body.embeddings, info, choose_task(body, info))
    plan = plan_attention(body, info, embeddings, exchange.parsed.dtype)
    encodings = await _tokenize(exchange, body)
    listed = sum(len(rows) for rows in (body.queries, body.keys) if rows != "all")
    tokens = sum(map(len, encodings))
    views = await exchange.off_loop(
        lambda: [plan.view(i, *one) for i, one in enumerate(zip(encodings, body.inputs, strict=True))],
        steps=listed * len(encodings) + _STEPS_PER_TOKEN * tokens,
    )
    style = exchange.style(decimals=body.decimals, unit=plan.unit, axes=plan.axes)
    return await exchange.answer(style, encodings, views, _way_out(body, exchange.parsed))


def _way_out(body: AttentionRequest, parsed: ParsedRequest[Any]) -> str:
    """Suggest fields that would make this request's response smaller."""
    ways = ["send fewer inputs", "choose fewer `layers` or `heads`"]
    if body.maps:
        ways.append("choose fewer `queries` or `keys`")
        ways += ["`aggregate` the heads"] if body.aggregate == "none" else []
        ways += ["set `top_k`"] if body.top_k is None else []
        if parsed.format not in BINARY:
            ways += ["lower `decimals`", "accept application/x-npz"]
        elif parsed.dtype == "float32":
            ways.append("add ?dtype=float16" if body.weights == "score" else "add ?dtype=uint8")
    return f"{', '.join(ways[:-1])}, or {ways[-1]}"


ENDPOINTS = (
    Endpoint(
        "/encode",
        encode,
        ("POST",),
        summary="Sentence and token embeddings",
        request=EncodeRequest,
        examples=EXAMPLES["/encode"],
        responses={200: {"model": EncodeResponse}},
        guarded=True,
    ),
    Endpoint(
        "/attention",
        attention,
        ("POST",),
        summary="Per-head attention maps",
        request=AttentionRequest,
        examples=EXAMPLES["/attention"],
        responses={200: {"model": AttentionResponse}},
        guarded=True,
    ),
)
