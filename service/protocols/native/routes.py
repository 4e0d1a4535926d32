"""The native routes, and the functions that answer `POST /encode` and `POST /attention`."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from starlette.responses import Response

from model.contract import Encoding
from model.tokenization.tokenizer import Text
from service.problems import Problem, ProblemDocument
from service.protocols.contract import Contract
from service.protocols.exchange import Exchange, Holding
from service.protocols.native.decode import DecodeRequest, DecodeResponse, decode
from service.protocols.native.examples import EXAMPLES
from service.protocols.native.explain import ExplainRequest, ExplainResponse, explain
from service.protocols.native.predict import PredictRequest, PredictResponse, predict
from service.protocols.native.rerank import RerankRequest, RerankResponse, rerank
from service.protocols.native.responses import AttentionResponse, EncodeResponse
from service.protocols.native.schemas import AttentionRequest, EncodeRequest
from service.protocols.native.similarity import SimilarityRequest, SimilarityResponse, similarity
from service.protocols.native.tokenize import TokenizeRequest, TokenizeResponse, tokenize
from service.protocols.ways_out import fewer, fewer_inputs, smaller_maps
from service.replies.formats import FORMATS
from service.replies.style import Format
from service.replies.too_large import TooLarge, cut
from service.tasks.attend import plan_attention
from service.tasks.chunking.windows import LongWindows
from service.tasks.embed import EncodePlan, held_by_chunks, plan_encode
from service.tasks.heads import (
    LENS,
    LensPlan,
    SparsePlan,
    TokenVectorsPlan,
    has_query_table,
    plan_lens,
    plan_sparse,
    plan_token_vectors,
    sparse_role,
)
from service.tasks.prompts import choose_prompt, choose_task
from service.tasks.view import View

Plan = SparsePlan | TokenVectorsPlan | LensPlan


def _check_decimals(chosen: Format, body: AttentionRequest) -> None:
    """Raise the 422 for `decimals` where they have no effect."""
    form = FORMATS[chosen]
    if form.binary and body.is_overridden("decimals"):
        raise Problem(
            "invalid-request",
            f"decimals has no effect on {form.media_type}, whose numbers are not rounded: leave it out.",
            members={"field": "decimals"},
        )


async def encode(exchange: Exchange, body: EncodeRequest) -> Response:
    """Encode texts: as vectors of sentences or tokens, sparse vectors, or words that layers predict."""
    engine, engines = exchange.engine, exchange.state.engines
    task = choose_task(engine.info, body.task)
    embeddings, role = body.embeddings, body.role
    sparse, table = "sparse" in body.outputs, has_query_table(engine.info)
    prompt = choose_prompt(engine.info, body.prompt_name, body.prompt)
    if table and role is not None and body.prompt is None and body.prompt_name is None:
        prompt = engine.info.prompts.get(role, "")
    if table and (sparse or role is not None):
        parts = () if body.chunks is None else ("chunks",)
        role = sparse_role(role, engine.info, (*body.outputs, *parts), changed=bool(body.interventions))
    late = role is not None and not table  # a query or document, for late interaction
    vectors = [plan_token_vectors(engine, engines, body.outputs)] if late else []
    heads: list[Plan] = [plan_sparse(body.top_k, engine, engines, role=role)] if sparse else []
    heads += [plan_lens(body.lens, engine, engines)] if "logit_lens" in body.outputs else []
    if late and body.prompt is None and body.prompt_name is None:
        own = engine.tokenizer_of(role).own_prompt  # the role's prompt takes the place of the model's default
        prompt = prompt if own is None else own
    if late:
        others = tuple(output for output in body.outputs if output != "tokens")
        embeddings = replace(embeddings, outputs=others)
    plan = plan_encode(embeddings, engine.info, task)
    holding, windows = None, list[LongWindows | None]()
    if plan.chunks is not None:
        holding = Holding(partial(plan.most_chunks, body.inputs, windows), held_by_chunks)
    if body.chunks is not None and body.truncate:
        encodings, windows[:] = await exchange.tokenize_whole(
            body.inputs, body.truncation, prompt, body.overlap
        )
    else:
        encodings = await exchange.tokenize(body.inputs, body.truncation, prompt, role=role)
    style = exchange.style(precision=plan.precision)
    view = partial(_view, plan, [*heads, *vectors], body.inputs, windows)
    return await exchange.answer(style, encodings, view, partial(_smaller_embeddings, body), holding)


def _smaller_embeddings(body: EncodeRequest, refused: TooLarge) -> list[str]:
    """Suggest which embeddings to reduce or leave out for a response that is small enough."""
    ways = fewer_inputs(refused)
    ways += fewer(refused, "layers", {"token_embeddings": 0, **dict.fromkeys(LENS, 0)})
    ways += fewer(refused, "positions", dict.fromkeys(LENS, 1))
    ways += fewer(refused, "chunks", {"chunks": 0})
    words = max(refused.length("sparse_ids", 0), refused.length("lens_ids", 2))
    if most := refused.most(cut({"sparse_ids": 0, "sparse_weights": 0, **dict.fromkeys(LENS, 2)}), words):
        ways.append(f"set `top_k` to {most}")
    if (
        len(body.outputs) > 1
        and refused.length("token_embeddings", 0)
        and refused.fits(cut({"token_embeddings": 0})(0))
    ):
        kept = "logit_lens" in body.outputs
        without = " and `layers` out" if body.is_overridden("layers") and not kept else ""
        ways.append(f"leave `tokens` out of `outputs`{without}")
    return ways


def _view(
    plan: EncodePlan,
    heads: Sequence[Plan],
    texts: Sequence[Text],
    windows: Sequence[LongWindows | None],
    index: int,
    encoding: Encoding,
) -> View:
    view = plan.view(index, encoding, texts[index], windows[index] if windows else None)
    for head in heads:
        view = head.extend(view, encoding)
    return view


async def attention(exchange: Exchange, body: AttentionRequest) -> Response:
    """Return the attention of selected layers, heads, queries and keys, or of chosen edges.

    Axes are (layer, head, query, key). A row of probabilities is a query and sums to 1.
    """
    exchange.decimals = body.decimals
    _check_decimals(exchange.parsed.format, body)
    info = exchange.engine.info
    task, prompt = choose_task(info, body.task), choose_prompt(info, body.prompt_name, body.prompt)
    embeddings = plan_encode(body.embeddings, info, task)
    options = body.options
    if options.edges is not None:
        options.edges.check(len(body.inputs))
    plan = plan_attention(options, info, embeddings, exchange.parsed.dtype)
    encodings = await exchange.tokenize(body.inputs, body.truncation, prompt)
    style = exchange.style(unit=plan.unit, axes=plan.axes)

    def ways(refused: TooLarge) -> list[str]:
        return fewer_inputs(refused) + smaller_maps(options, exchange, refused)

    return await exchange.answer(style, encodings, lambda i, one: plan.view(i, one, body.inputs[i]), ways)


NATIVE = Contract(
    "native",
    "native",
    ProblemDocument,
    lambda problem, _, path, request_id: problem.response(path, request_id),
    {},
)
"""Our own protocol."""

ENDPOINTS = tuple(
    NATIVE.answering(path, answer, summary, schema, response, EXAMPLES[path])
    for path, answer, summary, schema, response in (
        ("/encode", encode, "Sentence and token embeddings", EncodeRequest, EncodeResponse),
        ("/attention", attention, "Per-head attention maps", AttentionRequest, AttentionResponse),
        ("/predict", predict, "Labels of texts and of their tokens", PredictRequest, PredictResponse),
        ("/rerank", rerank, "Texts ranked by how well they match a query", RerankRequest, RerankResponse),
        ("/similarity", similarity, "Similarity of texts", SimilarityRequest, SimilarityResponse),
        ("/explain", explain, "Which words make a score", ExplainRequest, ExplainResponse),
        ("/tokenize", tokenize, "Tokens of texts", TokenizeRequest, TokenizeResponse),
        ("/decode", decode, "Text of token ids", DecodeRequest, DecodeResponse),
    )
)
