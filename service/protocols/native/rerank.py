"""`POST /rerank`: texts in the order in which they match a query."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, Field, StrictBool
from starlette.requests import Request
from starlette.responses import Response

from model.contract import Encoding, FloatArray, HeadInfo, LogitsWant, Output, Want
from model.errors import Unsupported
from model.heads.late_interaction import want_vectors
from model.heads.late_interaction_scores import max_sim
from model.heads.scores import scores
from model.heads.similarity import similarities
from model.tokenization.tokenizer import Truncation
from service.endpoints import Endpoint
from service.http.delivery import Work
from service.http.request_body import read_request
from service.protocols.exchange import Exchange, check_count
from service.protocols.native.attention_plan import AttentionPlan, plan_attention
from service.protocols.native.encode_plan import plan_encode
from service.protocols.native.examples import EXAMPLES
from service.protocols.native.fields import NonEmptyText, PositiveNumber, TextList
from service.protocols.native.responses import AttentionItem, Usage
from service.protocols.native.routes import any_of, planning_steps, smaller_maps
from service.protocols.native.schemas import NO_VECTORS, OWN_VECTORS, AttentionOptions, ModelRequest
from service.protocols.ranking import (
    Best,
    Method,
    choose_method,
    document_prompt,
    query_prompt,
    ranked,
    shortest,
)
from service.protocols.view import View
from service.serialization.answer_size import bound_item, bound_largest, bound_ranked
from service.serialization.items import AnswerStyle, Format, Item

_PREFIX = "attention."
_TEXT_PLACE = "texts.{}".format
# Copies of the vectors while they are compared: those of the batches, an array of them, one of unit length.
_COPIES = 3
# Products that are computed in the time of one Python step.
_PRODUCTS_PER_STEP = 100


class RerankRequest(ModelRequest):
    """Texts to rank by how well they match a query."""

    listed: ClassVar[str] = "texts"
    example: ClassVar[str] = '{"query": "a question", "texts": ["a text"]}'
    elsewhere: ClassVar[dict[str, str]] = dict.fromkeys(
        ("return_text", "truncation_direction"), "/tei/rerank"
    )
    formats: ClassVar[tuple[Format, ...]] = ("json",)

    query: NonEmptyText = Field(description="What the texts are ranked for.")
    texts: TextList = Field(description="The texts to rank.", examples=[["One text.", "Another text."]])
    top_n: PositiveNumber | None = Field(
        None, description="Return the best k texts; all by default, and if there are fewer."
    )
    return_texts: StrictBool = Field(False, description="Return each text with its score.")  # noqa: FBT003
    raw_scores: StrictBool = Field(
        False,  # noqa: FBT003
        description="Return the logits of a cross-encoder, before its sigmoid.",
    )
    attention: AttentionOptions | None = Field(
        None, description="Also return the attention of each returned pair; only of cross-encoders."
    )


_SCORE = Field(description="How well the text matches the query; larger is better.")
_TEXT = Field(None, description="The text, with `return_texts`.")


class RankedItem(BaseModel):
    """A text with its score."""

    index: int = Field(ge=0, description="The index of the text.")
    score: float = _SCORE
    text: str | None = _TEXT
    truncated: bool
    original_length: int = Field(
        ge=0,
        description="Tokens before truncation: of the pair, or of the text if it runs alone.",
    )


class RankedPair(AttentionItem):
    """A text with its score, and the tokens and attention of the pair of query and text."""

    score: float = _SCORE
    text: str | None = _TEXT


class RerankResponse(BaseModel):
    """The response of `/rerank`."""

    model: str
    method: Method = Field(description="How the model ranks texts.")
    axes: list[str] | None = Field(None, description="The axes of maps, with `attention`.")
    data: list[RankedItem] | list[RankedPair] = Field(
        description="The largest score first, that of the largest logit among equal ones, then by index; "
        "with maps if `attention` asks for some."
    )
    usage: Usage


async def rerank(request: Request) -> Response:
    """Rank texts by how well they match a query, as pairs, by vectors of tokens or by sentence vectors."""
    parsed = await read_request(request, RerankRequest)
    check_count(parsed.count, request.app.state.service.settings, RerankRequest.listed)
    exchange = Exchange.open(request, parsed)
    return await exchange.in_time(rank(exchange, parsed.body))


async def rank(exchange: Exchange, body: RerankRequest) -> Response:
    """Answer with the texts in order, by the method of the model."""
    method = choose_method(exchange.engine, exchange.state.engines)
    head = exchange.engine.info.head
    if method == "cross-encoder" and head is not None:
        if body.attention is not None:
            return await _with_attention(exchange, body, body.attention, head)
        return await _cross_encoder(exchange, body, head)
    _check_no_pairs(body, method)
    if method == "late-interaction":
        return await _late_interaction(exchange, body)
    return await _bi_encoder(exchange, body)


def _check_no_pairs(body: RerankRequest, method: Method) -> None:
    """Raise Unsupported for options that only models of pairs have."""
    for option in ("raw_scores", "attention"):
        if body.is_overridden(option):
            raise Unsupported(
                f"{option} is for cross-encoders, which read a query and a text as a pair, and the method of "
                f"this model is {method}: leave it out.",
                field=option,
            )


async def _cross_encoder(exchange: Exchange, body: RerankRequest, head: HeadInfo) -> Response:
    """Score the pairs by the head's only logit."""
    encodings = await _tokenize_pairs(exchange, body)
    answer = _Answer(exchange, body, exchange.style(method="cross-encoder"), encodings)
    answer.reserve([bound_ranked(text) for text in answer.shown])
    plan = plan_encode(NO_VECTORS, exchange.engine.info, exchange.engine.info.default_task)
    wants = [replace(plan.want(encoding), heads=(LogitsWant(),)) for encoding in encodings]
    delivery = exchange.delivery(answer.style, Work.of(encodings), answer.size)
    result = await exchange.run(delivery, encodings, wants)
    logits = _logits(result.outputs)
    found = scores(logits, head, raw=body.raw_scores)
    return await delivery.deliver(answer.item(*one) for one in ranked(found, answer.count, logits=logits))


async def _with_attention(
    exchange: Exchange, body: RerankRequest, options: AttentionOptions, head: HeadInfo
) -> Response:
    """Score the pairs, and return the attention of the best ones from the same pass."""
    info = exchange.engine.info
    embeddings = plan_encode(NO_VECTORS, info, info.default_task)
    plan = plan_attention(options, info, embeddings, prefix=_PREFIX, listed=body.listed)
    encodings = await _tokenize_pairs(exchange, body)
    views = await exchange.off_loop(
        lambda: _views(plan, encodings, body), steps=planning_steps(options, encodings)
    )
    style = exchange.style(decimals=options.decimals, unit=plan.unit, axes=plan.axes, method="cross-encoder")
    answer = _Answer(exchange, body, style, encodings)
    sizes = (bound_item(style, *one) for one in zip(encodings, (v.expected for v in views), strict=True))
    answer.reserve([size + bound_ranked(text) for size, text in zip(sizes, answer.shown, strict=True)])
    delivery = exchange.delivery(style, Work.of(encodings), answer.size)
    best = Best(answer.count)

    def take(index: int, output: Output) -> None:
        best.add(index, float(_logits([output])[0]), replace(output, heads={}))

    await exchange.run_each(delivery, encodings, [view.want for view in views], take)
    order, logits = zip(*best.ranked(), strict=True)
    found = shortest(scores(np.array(logits, np.float32), head, raw=body.raw_scores))
    items = (answer.item(i, score, views[i], best.outputs[i]) for i, score in zip(order, found, strict=True))
    return await delivery.deliver(items)


async def _bi_encoder(exchange: Exchange, body: RerankRequest) -> Response:
    """Score the texts by the cosine of their sentence vectors with the query's."""
    info = exchange.engine.info
    plan = plan_encode(OWN_VECTORS, info, info.default_task)
    exchange.reserve_arrays((1 + len(body.texts), plan.sentence_size), copies=_COPIES)
    prompts = query_prompt(info), document_prompt(info)
    truncation = _truncation(body)
    if prompts[0] == prompts[1]:
        every = [body.query, *body.texts]
        encodings = await exchange.tokenize(every, truncation, prompts[0], _place)
    else:
        encodings = await exchange.tokenize([body.query], truncation, prompts[0], _place)
        encodings += await exchange.tokenize(body.texts, truncation, prompts[1], _TEXT_PLACE)

    def cosines(outputs: Sequence[Output]) -> FloatArray:
        vectors = np.stack([output.sentence for output in outputs if output.sentence is not None])
        found: FloatArray = similarities("cosine", vectors[:1], vectors[1:])[0]
        return found

    wants = [plan.want(encoding) for encoding in encodings]
    products = len(encodings) * plan.sentence_size
    return await _apart(exchange, body, "bi-encoder", encodings, wants, cosines, products)


async def _late_interaction(exchange: Exchange, body: RerankRequest) -> Response:
    """Score the texts by the vectors of their tokens and of the query's."""
    head, truncation = exchange.engine.info.head, _truncation(body)
    query = await exchange.tokenize([body.query], truncation, field=_place, role="query")
    texts = await exchange.tokenize(body.texts, truncation, field=_TEXT_PLACE, role="document")
    encodings = [*query, *texts]
    size = 0 if head is None else head.size or 0
    rows = sum(len(encoding.vector_rows) for encoding in encodings)
    exchange.reserve_arrays((rows, size), copies=_COPIES)

    def interactions(outputs: Sequence[Output]) -> FloatArray:
        first, *others = (output.heads["token_vectors"] for output in outputs)
        return max_sim(first, others)

    wants = [want_vectors(encoding) for encoding in encodings]
    products = rows * len(query[0].vector_rows) * size
    return await _apart(exchange, body, "late-interaction", encodings, wants, interactions, products)


async def _apart(
    exchange: Exchange,
    body: RerankRequest,
    method: Method,
    encodings: Sequence[Encoding],
    wants: Sequence[Want],
    compare: Callable[[Sequence[Output]], FloatArray],
    products: int,
) -> Response:
    """Run the query, which comes first, and the texts in one go; `compare` scores the outputs."""
    texts = encodings[1:]
    answer = _Answer(exchange, body, exchange.style(method=method), texts)
    answer.reserve([bound_ranked(text) for text in answer.shown])
    work = replace(Work.of(texts), tokens=sum(map(len, encodings)))
    delivery = exchange.delivery(answer.style, work, answer.size)
    result = await exchange.run(delivery, encodings, wants)
    found = await exchange.off_loop(lambda: compare(result.outputs), steps=products // _PRODUCTS_PER_STEP)
    return await delivery.deliver(answer.item(*one) for one in ranked(found, answer.count))


async def _tokenize_pairs(exchange: Exchange, body: RerankRequest) -> list[Encoding]:
    """Tokenize the query with each text, after the model's default prompt if it has one."""
    info = exchange.engine.info
    prompt = "" if info.default_prompt_name is None else info.prompts[info.default_prompt_name]
    pairs = [(body.query, text) for text in body.texts]
    return await exchange.tokenize(pairs, _truncation(body), prompt, _TEXT_PLACE, body.query)


def _place(index: int) -> str:
    """Name the field of a text, the first of which is the query."""
    return _TEXT_PLACE(index - 1) if index else "query"


def _truncation(body: RerankRequest) -> Truncation:
    return Truncation(allowed=body.truncate, side=body.truncation_side)


def _views(plan: AttentionPlan, encodings: Sequence[Encoding], body: RerankRequest) -> list[View]:
    """Plan the maps and the logit of each pair."""
    views = []
    for index, (encoding, text) in enumerate(zip(encodings, body.texts, strict=True)):
        view = plan.view(index, encoding, (body.query, text))
        views.append(replace(view, want=replace(view.want, heads=(LogitsWant(),))))
    return views


def _logits(outputs: Sequence[Output]) -> FloatArray:
    """Collect the only logit of each pair: (pairs,)."""
    return np.concatenate([output.heads["logits"] for output in outputs])


class _Answer:
    """The texts that a response returns, and its size."""

    def __init__(
        self, exchange: Exchange, body: RerankRequest, style: AnswerStyle, encodings: Sequence[Encoding]
    ) -> None:
        self.style = style
        self.count = min(body.top_n or len(body.texts), len(body.texts))
        self.shown = body.texts if body.return_texts else [""] * len(body.texts)
        self.size = 0
        self._exchange = exchange
        self._body = body
        self._encodings = encodings

    def reserve(self, sizes: Sequence[int]) -> None:
        """Reserve memory for the largest items, whose bounds are given; raises the 413 and the 429."""
        self.size = bound_largest(self.style, sizes, self.count)
        body = self._body
        ways = ["lower `top_n`", "send fewer `texts`"]
        ways += ["leave out `return_texts`"] if body.return_texts else []
        if body.attention is not None:
            ways += smaller_maps(body.attention, self._exchange.parsed, _PREFIX)
        self._exchange.reserve_answer(self.style, self.size, any_of(ways))

    def item(self, index: int, score: float, view: View | None = None, output: Output | None = None) -> Item:
        """Build the item of a text; with a view and an output, with its maps."""
        encoding = self._encodings[index]
        head: dict[str, Any] = {"index": index, "score": score}
        if self._body.return_texts:
            head["text"] = self._body.texts[index]
        if view is None or output is None:
            lengths = {"truncated": encoding.truncated, "original_length": encoding.original_length}
            return Item(head | lengths, {})
        item = view.item(output)
        return replace(item, columns=head | dict(item.columns))


ENDPOINTS = (
    Endpoint(
        "/rerank",
        rerank,
        ("POST",),
        summary="Texts ranked by how well they match a query",
        request=RerankRequest,
        examples=EXAMPLES["/rerank"],
        responses={200: {"model": RerankResponse}},
        guarded=True,
    ),
)
