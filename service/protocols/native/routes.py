"""`POST /encode` and `POST /attention`."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from model.contract import Encoding, Role
from model.tokenization.tokenizer import Text
from service.endpoints import Endpoint
from service.http.negotiation import BINARY, FORMATS, refuse_uint8
from service.http.request_body import ParsedRequest, read_request
from service.problems import Problem
from service.protocols.exchange import Exchange, Holding, check_count
from service.protocols.native.examples import EXAMPLES
from service.protocols.native.responses import AttentionResponse, EncodeResponse
from service.protocols.native.schemas import (
    AttentionOptions,
    AttentionRequest,
    EncodeRequest,
    InputsRequest,
)
from service.protocols.ways_out import any_of, smaller_maps
from service.replies.answer_size import bound
from service.replies.style import AnswerStyle
from service.tasks.attend import plan_attention
from service.tasks.chunks import MAX_CHUNKS, ChunkPlan
from service.tasks.embed import EncodePlan, plan_encode
from service.tasks.heads import SparsePlan, plan_sparse, plan_token_vectors
from service.tasks.precision import Precision
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
    if parsed.format in BINARY and maps is not None and maps.is_overridden("decimals"):
        raise Problem(
            "invalid-request",
            f"decimals has no effect on {FORMATS[parsed.format]}, whose numbers are not rounded: "
            "leave it out.",
            members={"field": "decimals"},
        )


async def _tokenize(exchange: Exchange, body: InputsRequest, role: Role | None = None) -> list[Encoding]:
    prompt = choose_prompt(exchange.engine.info, body.prompt_name, body.prompt)
    return await exchange.tokenize(body.inputs, body.truncation, prompt, role=role)


async def _encode(exchange: Exchange, body: EncodeRequest) -> Response:
    engine, engines = exchange.engine, exchange.state.engines
    task = choose_task(engine.info, body.task)
    precision: Precision = "float32"
    view: Callable[[int, Encoding], View]
    holding, way_out = None, "send fewer or shorter inputs"
    if body.role is not None:  # a query or document, for late interaction
        view = plan_token_vectors(engine, engines, task).view
    else:
        plan = plan_encode(body.embeddings, engine.info, task)
        sparse = plan_sparse(body.top_k, engine, engines) if "sparse" in body.outputs else None
        view, precision = partial(_view, plan, sparse, body.inputs), plan.precision
        holding = None if plan.chunks is None else _hold_chunks(plan, plan.chunks, body.inputs)
        way_out = _fewer(chunks=plan.chunks is not None, sparse=sparse is not None)
    encodings = await _tokenize(exchange, body, body.role)
    return await exchange.answer(exchange.style(precision=precision), encodings, view, way_out, holding)


def _view(
    plan: EncodePlan, sparse: SparsePlan | None, texts: Sequence[Text], index: int, encoding: Encoding
) -> View:
    view = plan.view(index, encoding, texts[index])
    return view if sparse is None else sparse.extend(view)


def _fewer(*, chunks: bool, sparse: bool) -> str:
    """Suggest what would make a response smaller."""
    ways = ["send fewer inputs", "choose fewer `layers` or `pooling_layers`"]
    ways += ["choose fewer `chunks`"] if chunks else []
    ways += ["set `top_k`"] if sparse else []
    return any_of([*ways, "leave `tokens` out of `outputs`"])


def _hold_chunks(plan: EncodePlan, chunks: ChunkPlan, texts: Sequence[Text]) -> Holding:
    """Reserve memory for the chunks of all inputs before any text is split.

    Raises the 422 for too many of them, and the 413 for as many as make the response too large.
    """

    def most(style: AnswerStyle, encodings: Sequence[Encoding]) -> tuple[int, int]:
        chunks.check(encodings, texts)
        counts = [min(chunks.most(encoding), MAX_CHUNKS) for encoding in encodings]
        expected = [plan.expected(*one) for one in zip(encodings, counts, strict=True)]
        return _CHUNK_BYTES * sum(counts), bound(style, encodings, expected) if chunks.counted else 0

    return Holding(most, lambda views: sum(_CHUNK_BYTES * len(v.columns["chunks"]["offsets"]) for v in views))


async def _attention(exchange: Exchange, body: AttentionRequest) -> Response:
    info = exchange.engine.info
    embeddings = plan_encode(body.embeddings, info, choose_task(info, body.task))
    options = body.options
    plan = plan_attention(options, info, embeddings, exchange.parsed.dtype)
    encodings = await _tokenize(exchange, body)
    style = exchange.style(unit=plan.unit, axes=plan.axes)
    way_out = any_of(["send fewer inputs", *smaller_maps(options, exchange)])
    return await exchange.answer(style, encodings, lambda i, one: plan.view(i, one, body.inputs[i]), way_out)


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
