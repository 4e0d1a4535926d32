"""Answers with texts in the order in which they match a query, whatever the protocol."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from heapq import nlargest
from itertools import repeat
from operator import add
from typing import Any

import numpy as np
from starlette.responses import Response

from model.choices import Interaction
from model.contract import Encoding, FloatArray, HeadInfo, LogitsWant, Output, SparseWant, Want
from model.heads.hybrid_scores import HybridWeights, hybrid_scores
from model.heads.late_interaction import want_vectors
from model.heads.late_interaction_scores import max_sim
from model.heads.scores import scores
from model.heads.similarity import similarities
from model.tokenization.tokenizer import Truncation
from service.http.delivery import Work
from service.protocols.exchange import Exchange
from service.protocols.ways_out import smaller_maps
from service.replies.answer_size import bound_head, bound_item
from service.replies.style import AnswerStyle
from service.replies.too_large import TooLarge, Total, largest
from service.tasks.attend import AttendOptions, AttentionPlan, plan_attention
from service.tasks.embed import NO_VECTORS, OWN_VECTORS, plan_encode
from service.tasks.prompts import choose_prompt, prompt_for
from service.tasks.rank import (
    Best,
    Method,
    RankOptions,
    choose_method,
    ranked,
    shortest,
)
from service.tasks.results import Expected, Item, lengths
from service.tasks.view import View

_TEXT_PLACE = "texts.{}".format
# Copies of the vectors while they are compared: from the batches, in one array, and scaled to unit length.
_COPIES = 3
# How many products are computed in the time that planning a token takes.
_PRODUCTS_PER_TOKEN = 300
# Bytes of JSON for the fields of a ranked text besides the text, and for a control character in the text.
_RANKED_BYTES, _ESCAPED_BYTES = 192, 6


async def rank(exchange: Exchange, options: RankOptions) -> Response:
    """Answer with the texts in order, ranked by the model's method."""
    method = choose_method(exchange.engine, exchange.state.engines, options.weights)
    options.check_method(method)
    if options.text_tokens is not None:
        options = replace(options, cut=await _cut(exchange, options.texts, options.text_tokens))
    head = exchange.engine.info.head
    if method == "cross-encoder" and head is not None:
        if options.attend is not None:
            return await _with_attention(exchange, options, options.attend, head)
        return await _cross_encoder(exchange, options, head)
    if method == "late-interaction":
        return await _late_interaction(exchange, options)
    if options.weights is not None:
        return await _hybrid(exchange, options, options.weights)
    return await _bi_encoder(exchange, options)


async def _cut(exchange: Exchange, texts: Sequence[str], most: int) -> list[str]:
    """Cut each text after its first `most` tokens, before the texts are ranked."""
    record = exchange.context.record
    counted = record.tokens
    encodings = await exchange.tokenize(texts, Truncation(side="right"), place=_TEXT_PLACE, runs=False)
    record.tokens = counted  # these tokens are counted when the texts are ranked
    tokens = sum(map(len, encodings))

    def cut() -> list[str]:
        return [_first_tokens(*one, most) for one in zip(texts, encodings, strict=True)]

    return await exchange.off_loop(cut, tokens)


def _first_tokens(text: str, encoding: Encoding, most: int) -> str:
    if len(encoding) <= most:
        return text
    of_text = zip(encoding.offsets, encoding.special, strict=True)
    ends = [end for (_, end), special in of_text if not special]
    return text if len(ends) <= most else text[: ends[most - 1]]


async def _cross_encoder(exchange: Exchange, options: RankOptions, head: HeadInfo) -> Response:
    """Score the pairs by the head's only logit."""
    encodings = await _tokenize_pairs(exchange, options)
    answer = _Answer(exchange, options, exchange.style(method="cross-encoder"), encodings)
    answer.reserve(repeat(Expected()))
    plan = plan_encode(NO_VECTORS, exchange.engine.info, exchange.engine.info.default_task)
    wants = [replace(plan.want(encoding), heads=(LogitsWant(),)) for encoding in encodings]
    delivery = exchange.delivery(answer.style, Work.of(encodings), answer.size)
    result = await exchange.run(encodings, wants)
    logits = _logits(result.outputs)
    found = scores(logits, head, raw=options.raw_scores)
    return await delivery.deliver(answer.item(*one) for one in ranked(found, answer.count, logits=logits))


async def _with_attention(
    exchange: Exchange, options: RankOptions, attend: AttendOptions, head: HeadInfo
) -> Response:
    """Score the pairs, and return the attention of the best ones from the same pass."""
    info = exchange.engine.info
    embeddings = plan_encode(NO_VECTORS, info, info.default_task)
    plan = plan_attention(attend, info, embeddings)
    encodings = await _tokenize_pairs(exchange, options)
    tokens = sum(map(len, encodings))
    views = await exchange.off_loop(lambda: _views(plan, encodings, options), tokens)
    style = exchange.style(unit=plan.unit, axes=plan.axes, method="cross-encoder")
    answer = _Answer(exchange, options, style, encodings)
    answer.reserve(view.expected for view in views)
    delivery = exchange.delivery(style, Work.of(encodings), answer.size)
    best = Best(answer.count)

    def take(index: int, output: Output) -> None:
        best.add(index, float(_logits([output])[0]), replace(output, heads={}))

    await exchange.run_each(encodings, [view.want for view in views], take)
    order, logits = zip(*best.ranked(), strict=True)
    found = shortest(scores(np.array(logits, np.float32), head, raw=options.raw_scores))
    items = (answer.item(i, score, views[i], best.outputs[i]) for i, score in zip(order, found, strict=True))
    return await delivery.deliver(items)


async def _bi_encoder(exchange: Exchange, options: RankOptions) -> Response:
    """Score the texts by the cosine of their sentence vectors with the query's."""
    info = exchange.engine.info
    plan = plan_encode(OWN_VECTORS, info, info.default_task)
    exchange.reserve_arrays((1 + len(options.texts), plan.sentence_size), copies=_COPIES)
    prompts = prompt_for("query", info), prompt_for("document", info)
    truncation = options.truncation
    if prompts[0] == prompts[1]:
        every = [options.query, *options.read]
        encodings = await exchange.tokenize(every, truncation, prompts[0], _place)
    else:
        encodings = await exchange.tokenize([options.query], truncation, prompts[0], _place)
        encodings += await exchange.tokenize(options.read, truncation, prompts[1], _TEXT_PLACE)

    def cosines(outputs: Sequence[Output]) -> FloatArray:
        vectors = np.stack([output.sentence for output in outputs if output.sentence is not None])
        found: FloatArray = similarities("cosine", vectors[:1], vectors[1:])[0]
        return found

    wants = [plan.want(encoding) for encoding in encodings]
    products = len(encodings) * plan.sentence_size
    return await _apart(exchange, options, "bi-encoder", encodings, wants, cosines, products)


async def _late_interaction(exchange: Exchange, options: RankOptions) -> Response:
    """Score the texts by the vectors of their tokens and of the query's."""
    head, truncation = exchange.engine.info.head, options.truncation
    query = await exchange.tokenize([options.query], truncation, place=_place, role="query")
    texts = await exchange.tokenize(options.read, truncation, place=_TEXT_PLACE, role="document")
    encodings = [*query, *texts]
    size, interaction = (0, Interaction()) if head is None else (head.size or 0, head.interaction)
    rows = sum(len(encoding.vector_rows) for encoding in encodings)
    exchange.reserve_arrays((rows, size), copies=_COPIES)

    def interactions(outputs: Sequence[Output]) -> FloatArray:
        first, *others = (output.heads["token_vectors"] for output in outputs)
        return max_sim(first, others, interaction)

    wants = [want_vectors(encoding) for encoding in encodings]
    products = rows * len(query[0].vector_rows) * size
    return await _apart(exchange, options, "late-interaction", encodings, wants, interactions, products)


async def _hybrid(exchange: Exchange, options: RankOptions, weights: HybridWeights) -> Response:
    """Score the texts by each kind of vector that has a weight, all from one pass of a hybrid model."""
    info, truncation = exchange.engine.info, options.truncation
    plan = plan_encode(OWN_VECTORS if weights.sentence else NO_VECTORS, info, info.default_task)
    prompts = prompt_for("query", info), prompt_for("document", info)
    query = await exchange.tokenize([options.query], truncation, prompts[0], _place, role="query")
    texts = await exchange.tokenize(options.read, truncation, prompts[1], _TEXT_PLACE, role="document")
    encodings = [*query, *texts]
    size = (info.head.size or 0) if info.head is not None and weights.tokens else 0
    rows = sum(len(encoding.vector_rows) for encoding in encodings)
    words = 2 * sum(map(len, encodings)) if weights.sparse else 0  # an id and a weight each
    exchange.reserve_arrays((rows * size + words + len(encodings) * plan.sentence_size,), copies=_COPIES)

    def want(encoding: Encoding) -> Want:
        sparse = (SparseWant(),) if weights.sparse else ()
        tokens = want_vectors(encoding).heads if weights.tokens else ()
        return replace(plan.want(encoding), heads=(*sparse, *tokens))

    def score(outputs: Sequence[Output]) -> FloatArray:
        return hybrid_scores(outputs[0], outputs[1:], weights)

    products = rows * (1 + len(query[0].vector_rows) * size) + len(encodings) * plan.sentence_size
    return await _apart(exchange, options, "hybrid", encodings, list(map(want, encodings)), score, products)


async def _apart(
    exchange: Exchange,
    options: RankOptions,
    method: Method,
    encodings: Sequence[Encoding],
    wants: Sequence[Want],
    compare: Callable[[Sequence[Output]], FloatArray],
    products: int,
) -> Response:
    """Run the query, which comes first, and the texts in one go; `compare` scores the outputs."""
    texts = encodings[1:]
    answer = _Answer(exchange, options, exchange.style(method=method), texts)
    answer.reserve(repeat(Expected()))
    work = replace(Work.of(texts, encodings[0]), tokens=sum(map(len, encodings)))
    delivery = exchange.delivery(answer.style, work, answer.size)
    result = await exchange.run(encodings, wants)
    found = await exchange.off_loop(lambda: compare(result.outputs), products // _PRODUCTS_PER_TOKEN)
    return await delivery.deliver(answer.item(*one) for one in ranked(found, answer.count))


async def _tokenize_pairs(exchange: Exchange, options: RankOptions) -> list[Encoding]:
    """Tokenize the pairs of the query and each text, with the prompt before each pair."""
    prompt = choose_prompt(exchange.engine.info, options.prompt_name, options.prompt)
    pairs = [(options.query, text) for text in options.read]
    return await exchange.tokenize(pairs, options.truncation, prompt, _TEXT_PLACE, options.query)


def _place(index: int) -> str:
    """Name the field of the text at an index; the text at 0 is the query."""
    return _TEXT_PLACE(index - 1) if index else "query"


def _views(plan: AttentionPlan, encodings: Sequence[Encoding], options: RankOptions) -> list[View]:
    """Plan the maps and the logit of each pair."""
    views = []
    for index, (encoding, text) in enumerate(zip(encodings, options.read, strict=True)):
        view = plan.view(index, encoding, (options.query, text))
        views.append(replace(view, want=replace(view.want, heads=(LogitsWant(),))))
    return views


def _logits(outputs: Sequence[Output]) -> FloatArray:
    """Collect the only logit of each pair: (pairs,)."""
    return np.concatenate([output.heads["logits"] for output in outputs])


class _Answer:
    """The texts that a response returns, and its size."""

    def __init__(
        self, exchange: Exchange, options: RankOptions, style: AnswerStyle, encodings: Sequence[Encoding]
    ) -> None:
        self.style = style
        self.count = options.count
        self.size = 0
        self._exchange = exchange
        self._options = options
        self._encodings = encodings

    def reserve(self, expected: Iterable[Expected]) -> None:
        """Reserve memory for the largest of these items and their texts; raises the 413 and the 429."""
        options, exchange = self._options, self._exchange
        items = [one for one, _ in zip(expected, options.texts, strict=False)]
        sizes = [bound_item(self.style, one) for one in items]
        self.size = self._total(self.count)(self.style, sizes)
        limit = exchange.state.max_response_bytes
        ways = (
            []
            if self.size <= limit
            else self._ways(TooLarge(self.style, items, limit, self._total(self.count)), sizes)
        )
        exchange.reserve_answer(self.style, self.size, *ways)

    def _total(self, count: int, *, texts: bool = True) -> Total:
        """Return a function that bounds a response of the `count` largest items, with or without texts."""
        options = self._options
        returned = options.texts if options.return_texts and texts else [""] * len(options.texts)
        ranked_bytes = [_RANKED_BYTES + _ESCAPED_BYTES * len(text) for text in returned]

        def total(style: AnswerStyle, sizes: Sequence[int]) -> int:
            most = nlargest(count, map(add, sizes, ranked_bytes))
            return bound_head(style) + self._exchange.copies * sum(most)

        return total

    def _ways(self, refused: TooLarge, sizes: Sequence[int]) -> list[str]:
        """Suggest what would make the response small enough."""
        options, name, limit = self._options, self._exchange.name, self._exchange.state.max_response_bytes
        most = largest(lambda count: self._total(count)(self.style, sizes) <= limit, self.count)
        field = name("top_n")
        ways = (
            [f"lower `{field}` to {most}" if field else f"send at most {most} of the `{name('texts')}`"]
            if most
            else []
        )
        if options.return_texts and self._total(self.count, texts=False)(self.style, sizes) <= limit:
            ways.append(f"leave out `{name('return_texts')}`")
        return ways + (
            [] if options.attend is None else smaller_maps(options.attend, self._exchange, refused)
        )

    def item(self, index: int, score: float, view: View | None = None, output: Output | None = None) -> Item:
        """Build the item of a text; with a view and an output, with its maps."""
        encoding = self._encodings[index]
        head: dict[str, Any] = {"index": index, "score": score}
        if self._options.return_texts:
            head["text"] = self._options.texts[index]
        if view is None or output is None:
            return Item(head | lengths(encoding), {})
        item = view.item(output)
        return replace(item, columns=head | dict(item.columns))
