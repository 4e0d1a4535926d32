"""`POST /encode` and `POST /attention`."""

from collections.abc import Sequence
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from model.contract import Encoding, Role
from model.tokenization.tokenizer import Text, Truncation
from service.endpoints import Endpoint
from service.http.json_body import MAX_INDICES
from service.http.negotiation import BINARY, FORMATS, refuse_uint8
from service.http.request_body import ParsedRequest, read_request
from service.problems import Problem
from service.protocols.exchange import Exchange, check_count
from service.protocols.native.attention_plan import plan_attention
from service.protocols.native.chunks import ChunkPlan
from service.protocols.native.encode_plan import EncodePlan, choose_prompt, choose_task, plan_encode
from service.protocols.native.examples import EXAMPLES
from service.protocols.native.heads.sparse import plan_sparse
from service.protocols.native.heads.token_vectors import TokenVectorsPlan, plan_token_vectors
from service.protocols.native.responses import AttentionResponse, EncodeResponse
from service.protocols.native.schemas import (
    AttentionOptions,
    AttentionRequest,
    EncodeRequest,
    InputsRequest,
)
from service.protocols.view import View
from service.serialization.items import AnswerStyle

NativeT = TypeVar("NativeT", bound=InputsRequest)

# Python steps to plan an input (measured).
_STEPS_PER_INPUT = 30
# Python steps to find a token's word and whether it is kept.
_STEPS_PER_TOKEN = 5
# Python steps to count the chunks of an input, of windows.
_STEPS_PER_COUNT = 15
# Python steps to find a chunk's tokens, and the bytes of its two pairs of numbers (measured).
_STEPS_PER_CHUNK = 30
_CHUNK_BYTES = 400


async def encode(request: Request) -> Response:
    """Encode texts as sentence vectors, contextual token vectors, sparse vectors, or several of them."""
    parsed = await _read(request, EncodeRequest)
    check_number_format(parsed, None)
    exchange = Exchange.open(request, parsed)
    return await exchange.in_time(_encode(exchange, parsed.body))


async def attention(request: Request) -> Response:
    """Return the attention of selected layers, heads, queries and keys.

    Axes are (layer, head, query, key). A row of probabilities is a query and sums to 1.
    """
    parsed = await _read(request, AttentionRequest)
    check_number_format(parsed, parsed.body)
    exchange = Exchange.open(request, parsed)
    return await exchange.in_time(_attention(exchange, parsed.body))


async def _read(request: Request, schema: type[NativeT]) -> ParsedRequest[NativeT]:
    """Read a request; raises the 413 for too many inputs."""
    parsed = await read_request(request, schema)
    check_count(parsed.count, request.app.state.service.settings, schema.listed)
    return parsed


def check_number_format(parsed: ParsedRequest[Any], maps: AttentionOptions | None, prefix: str = "") -> None:
    """Raise the 422 for `dtype=uint8` and `decimals` where they have no effect.

    `maps` says which attention the response has, if any; `prefix` is where these options are in the body.
    """
    if maps is None or not maps.maps:
        refuse_uint8(parsed.dtype, "dtype is uint8, which applies only to maps, and this response has none")
    elif maps.weights == "score":
        refuse_uint8(parsed.dtype, "dtype is uint8, and scores may be negative")
    if parsed.format in BINARY and maps is not None and maps.is_overridden("decimals"):
        raise Problem(
            "invalid-request",
            f"{prefix}decimals has no effect on {FORMATS[parsed.format]}, whose numbers are not rounded: "
            "leave it out.",
            members={"field": f"{prefix}decimals"},
        )


async def _tokenize(exchange: Exchange, body: InputsRequest, role: Role | None = None) -> list[Encoding]:
    prompt = choose_prompt(body, exchange.engine.info)
    truncation = Truncation(allowed=body.truncate, side=body.truncation_side)
    return await exchange.tokenize(body.inputs, truncation, prompt, role=role)


async def _encode(exchange: Exchange, body: EncodeRequest) -> Response:
    engine, engines = exchange.engine, exchange.state.engines
    info = engine.info
    task = choose_task(body, info)
    if body.role is not None:
        return await _encode_role(exchange, body, plan_token_vectors(engine, engines, task))
    plan = plan_encode(body.embeddings, info, task)
    sparse = plan_sparse(body.top_k, engine, engines) if "sparse" in body.outputs else None
    encodings = await _tokenize(exchange, body)
    way_out = "send fewer inputs, choose fewer `layers` or `pooling_layers`, "
    way_out += "choose fewer `chunks`, " if plan.chunks is not None else ""
    way_out += "set `top_k`, " if sparse is not None else ""
    way_out += "or leave `tokens` out of `outputs`"
    style = exchange.style(precision=plan.precision)
    if plan.chunks is None:
        views = await exchange.off_loop(
            lambda: [plan.view(i, *one) for i, one in enumerate(zip(encodings, body.inputs, strict=True))],
            steps=_STEPS_PER_INPUT * len(encodings),
        )
    else:
        views = await _split(exchange, plan, plan.chunks, encodings, body.inputs, style, way_out)
    if sparse is not None:
        views = [sparse.extend(view) for view in views]
    return await exchange.answer(style, encodings, views, way_out)


async def _encode_role(exchange: Exchange, body: EncodeRequest, plan: TokenVectorsPlan) -> Response:
    """Encode queries or documents for late interaction."""
    encodings = await _tokenize(exchange, body, body.role)
    views = await exchange.off_loop(
        lambda: [plan.view(index, encoding) for index, encoding in enumerate(encodings)],
        steps=_STEPS_PER_INPUT * len(encodings),
    )
    return await exchange.answer(exchange.style(), encodings, views, "send fewer or shorter inputs")


async def _split(
    exchange: Exchange,
    plan: EncodePlan,
    chunks: ChunkPlan,
    encodings: Sequence[Encoding],
    texts: Sequence[Text],
    style: AnswerStyle,
    way_out: str,
) -> list[View]:
    """Plan each input and split it into chunks, in memory that is reserved first.

    Raises the 422 for too many of them, and the 413 for as many as make the response too large, before any
    text is split.
    """
    tokens = _STEPS_PER_TOKEN * sum(map(len, encodings))
    long = not chunks.counted and any(len(encoding) > MAX_INDICES for encoding in encodings)
    await exchange.off_loop(
        lambda: chunks.check(encodings, texts), steps=_STEPS_PER_COUNT * len(encodings) + long * tokens
    )
    counts = [min(chunks.most(encoding), MAX_INDICES) for encoding in encodings]
    if chunks.counted:
        expected = [plan.expected(*one) for one in zip(encodings, counts, strict=True)]
        exchange.check_size(await exchange.bound(style, encodings, expected), way_out)
    memory, permit, most = exchange.state.memory, exchange.context.permit, sum(counts)
    memory.take(permit, _CHUNK_BYTES * most)
    steps = _STEPS_PER_INPUT * len(encodings) + tokens + _STEPS_PER_CHUNK * most
    if chunks.chunking == "sentences":
        steps += sum(map(len, texts))
    views = await exchange.off_loop(
        lambda: [plan.view(i, *one) for i, one in enumerate(zip(encodings, texts, strict=True))], steps=steps
    )
    found = sum(len(view.columns["chunks"]["offsets"]) for view in views)
    memory.release_part(permit, _CHUNK_BYTES * (most - found))
    return views


async def _attention(exchange: Exchange, body: AttentionRequest) -> Response:
    info = exchange.engine.info
    embeddings = plan_encode(body.embeddings, info, choose_task(body, info))
    plan = plan_attention(body, info, embeddings, exchange.parsed.dtype)
    encodings = await _tokenize(exchange, body)
    views = await exchange.off_loop(
        lambda: [plan.view(i, *one) for i, one in enumerate(zip(encodings, body.inputs, strict=True))],
        steps=planning_steps(body, encodings),
    )
    style = exchange.style(decimals=body.decimals, unit=plan.unit, axes=plan.axes)
    ways = ["send fewer inputs", *smaller_maps(body, exchange.parsed)]
    return await exchange.answer(style, encodings, views, any_of(ways))


def planning_steps(maps: AttentionOptions, encodings: Sequence[Encoding]) -> int:
    """Estimate the steps of planning these maps of all inputs."""
    listed = sum(len(rows) for rows in (maps.queries, maps.keys) if rows != "all")
    return listed * len(encodings) + _STEPS_PER_TOKEN * sum(map(len, encodings))


def smaller_maps(maps: AttentionOptions, parsed: ParsedRequest[Any], prefix: str = "") -> list[str]:
    """Suggest fields that would make the maps of a response smaller; at least one."""
    ways = [f"choose fewer `{prefix}layers` or `{prefix}heads`"]
    if maps.maps:
        ways.append(f"choose fewer `{prefix}queries` or `{prefix}keys`")
        ways += [f"`{prefix}aggregate` the heads"] if maps.aggregate == "none" else []
        if maps.thumbnail is None:
            ways += [f"set `{prefix}top_k` or `{prefix}thumbnail`"] if maps.top_k is None else []
        else:
            ways.append(f"lower `{prefix}thumbnail`")
        if parsed.format not in BINARY:
            ways += [f"lower `{prefix}decimals`"]
            ways += ["accept application/x-npz"] if "npz" in parsed.body.formats else []
        elif parsed.dtype == "float32":
            ways.append("add ?dtype=float16" if maps.weights == "score" else "add ?dtype=uint8")
    return ways


def any_of(ways: Sequence[str]) -> str:
    """Join two or more ways out as alternatives."""
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
