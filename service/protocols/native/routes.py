"""The native routes; and what answers `POST /encode` and `POST /attention`."""

from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from model.contract import Encoding, Role
from service.endpoints import NATIVE
from service.http.negotiation import refuse_uint8
from service.http.request_body import ParsedRequest, read_request
from service.problems import Problem
from service.protocols.exchange import Exchange, check_count
from service.protocols.native.decode import DecodeRequest, DecodeResponse, decode
from service.protocols.native.examples import EXAMPLES
from service.protocols.native.predict import PredictRequest, PredictResponse, predict
from service.protocols.native.rerank import RerankRequest, RerankResponse, rerank
from service.protocols.native.responses import AttentionResponse, EncodeResponse
from service.protocols.native.schemas import (
    AttentionOptions,
    AttentionRequest,
    EncodeRequest,
    InputsRequest,
)
from service.protocols.native.similarity import SimilarityRequest, SimilarityResponse, similarity
from service.protocols.native.tokenize import TokenizeRequest, TokenizeResponse, tokenize
from service.protocols.ways_out import any_of, smaller_maps
from service.replies.formats import FORMATS
from service.tasks.attend import plan_attention
from service.tasks.embed import plan_encode
from service.tasks.heads import TokenVectorsPlan, plan_sparse, plan_token_vectors
from service.tasks.prompts import choose_prompt, choose_task
from service.tasks.view import View

NativeT = TypeVar("NativeT", bound=InputsRequest)

# The bytes of a chunk's two pairs of numbers (measured).
_CHUNK_BYTES = 400


async def encode(request: Request) -> Response:
    """Encode texts as sentence vectors, contextual token vectors, sparse vectors, or several of them."""
    parsed = await _read(request, EncodeRequest)
    _check_number_format(parsed, None)
    exchange = Exchange.open(request, parsed)
    return await exchange.in_time(_encode(exchange, parsed.body))


async def attention(request: Request) -> Response:
    """Return the attention of selected layers, heads, queries and keys.

    Axes are (layer, head, query, key). A row of probabilities is a query and sums to 1.
    """
    parsed = await _read(request, AttentionRequest)
    _check_number_format(parsed, parsed.body)
    exchange = Exchange.open(request, parsed)
    exchange.decimals = parsed.body.decimals
    return await exchange.in_time(_attention(exchange, parsed.body))


async def _read(request: Request, schema: type[NativeT]) -> ParsedRequest[NativeT]:
    """Read a request; raises the 413 for too many inputs."""
    parsed = await read_request(request, schema)
    check_count(parsed.count, request.app.state.service.settings, schema.listed)
    return parsed


def _check_number_format(parsed: ParsedRequest[Any], maps: AttentionOptions | None) -> None:
    """Raise the 422 for `dtype=uint8` and `decimals` where they have no effect.

    `maps` says which attention the response has, if any.
    """
    if maps is None or not maps.maps:
        refuse_uint8(parsed.dtype, "dtype is uint8, which applies only to maps, and this response has none")
    elif maps.weights == "score":
        refuse_uint8(parsed.dtype, "dtype is uint8, and scores may be negative")
    form = FORMATS[parsed.format]
    if form.binary and maps is not None and maps.is_overridden("decimals"):
        raise Problem(
            "invalid-request",
            f"decimals has no effect on {form.media_type}, whose numbers are not rounded: leave it out.",
            members={"field": "decimals"},
        )


async def _tokenize(exchange: Exchange, body: InputsRequest, role: Role | None = None) -> list[Encoding]:
    prompt = choose_prompt(exchange.engine.info, body.prompt_name, body.prompt)
    return await exchange.tokenize(body.inputs, body.truncation, prompt, role=role)


async def _encode(exchange: Exchange, body: EncodeRequest) -> Response:
    engine, engines = exchange.engine, exchange.state.engines
    info = engine.info
    task = choose_task(info, body.task)
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
    memory, permit, held = exchange.state.memory, exchange.context.permit, 0
    if plan.chunks is not None:
        count = partial(plan.chunks.count, encodings, body.inputs)
        held = _CHUNK_BYTES * await exchange.off_loop(count, sum(map(len, encodings)))
        memory.take(permit, held)

    def view(index: int, encoding: Encoding) -> View:
        planned = plan.view(index, encoding, body.inputs[index])
        return planned if sparse is None else sparse.extend(planned)

    planned = await exchange.plan(style, encodings, view)
    if plan.chunks is not None:
        found = sum(len(one.columns["chunks"]["offsets"]) for one in planned.views)
        memory.release_part(permit, held - _CHUNK_BYTES * found)
    return await exchange.answer(style, planned, way_out)


async def _encode_role(exchange: Exchange, body: EncodeRequest, plan: TokenVectorsPlan) -> Response:
    """Encode queries or documents for late interaction."""
    encodings, style = await _tokenize(exchange, body, body.role), exchange.style()
    planned = await exchange.plan(style, encodings, plan.view)
    return await exchange.answer(style, planned, "send fewer or shorter inputs")


async def _attention(exchange: Exchange, body: AttentionRequest) -> Response:
    info = exchange.engine.info
    embeddings = plan_encode(body.embeddings, info, choose_task(info, body.task))
    options = body.options
    plan = plan_attention(options, info, embeddings, exchange.parsed.dtype)
    encodings = await _tokenize(exchange, body)
    style = exchange.style(unit=plan.unit, axes=plan.axes)
    planned = await exchange.plan(style, encodings, lambda i, one: plan.view(i, one, body.inputs[i]))
    ways = ["send fewer inputs", *smaller_maps(options, exchange)]
    return await exchange.answer(style, planned, any_of(ways))


ENDPOINTS = tuple(
    NATIVE.inference(path, handler, summary, schema, response, EXAMPLES[path])
    for path, handler, summary, schema, response in (
        ("/encode", encode, "Sentence and token embeddings", EncodeRequest, EncodeResponse),
        ("/attention", attention, "Per-head attention maps", AttentionRequest, AttentionResponse),
        ("/predict", predict, "Labels of texts and of their tokens", PredictRequest, PredictResponse),
        ("/rerank", rerank, "Texts ranked by how well they match a query", RerankRequest, RerankResponse),
        ("/similarity", similarity, "Similarity of texts", SimilarityRequest, SimilarityResponse),
        ("/tokenize", tokenize, "Tokens of texts", TokenizeRequest, TokenizeResponse),
        ("/decode", decode, "Text of token ids", DecodeRequest, DecodeResponse),
    )
)
