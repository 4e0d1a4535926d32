"""Answers with the tokens of texts, and with the texts of token ids, whatever the protocol."""

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from typing import Any

from starlette.responses import Response

from model.contract import Encoding
from model.tokenization.decoding import Decoder
from model.tokenization.tokenizer import Truncation
from service.http.delivery import Work
from service.http.request_schema import SEVERAL, check_count
from service.problems import Problem
from service.protocols.exchange import Exchange
from service.protocols.fields import MAX_IDS, Listed
from service.replies.answer_size import bound
from service.tasks.results import Expected, Item
from service.tasks.tokens import check_known

WHOLE = Truncation(allowed=False)
"""For routes that tokenize without truncation, and so refuse texts that are too long for the model."""
DECODED = 8
"""Decoding a token takes as long as planning this many (measured)."""
# What a list takes besides its tokens, in the same unit.
_LISTED = 12
# Bytes of JSON for the index of a text and the names of its fields, with their punctuation.
_TEXT_BYTES = 40


def check_counts(
    inputs: Listed[Any], count: int, limit: int, field: str = "token_ids", way_out: str = SEVERAL
) -> None:
    """Raise the 413 for too many inputs, or the 422 for too many ids of a single one; `count` were sent."""
    if not inputs.flat:
        check_count(count, limit, field, way_out)
    elif count > MAX_IDS:
        raise Problem(
            "invalid-request",
            f"{field} has {count} ids and the limit is {MAX_IDS}: {way_out}.",
            members={"field": field, "limit": MAX_IDS, "actual": count},
        )


async def decode_ids(
    exchange: Exchange,
    ids: Listed[Sequence[int]],
    field: str = "token_ids",
    *,
    skip_special_tokens: bool = True,
) -> Response:
    """Answer with the text of each list of ids; errors name `field`."""
    decoder, style = exchange.engine.decoder, exchange.style()
    every = list(chain.from_iterable(ids.inputs))
    stages = exchange.context.record.stages
    stages.begin("tokenize")
    start = time.perf_counter()
    text_bytes = await exchange.off_loop(lambda: _measure(decoder, ids, every, field), len(every))
    # Each text comes with its index and field names; a control character takes six bytes of JSON.
    size = bound(style, [Expected(column_bytes=_TEXT_BYTES * len(ids) + 6 * text_bytes)])
    exchange.reserve_answer(style, size, "send fewer ids")
    texts = await exchange.off_loop(
        lambda: decoder.decode(ids.inputs, skip_special_tokens=skip_special_tokens),
        DECODED * len(every) + _LISTED * len(ids),
    )
    exchange.tokenized(time.perf_counter() - start)
    items = (Item({"index": index, "text": text}, {}) for index, text in enumerate(texts))
    return await exchange.delivery(style, Work(len(ids)), size).deliver(items)


def _measure(decoder: Decoder, ids: Listed[Sequence[int]], every: Sequence[int], field: str) -> int:
    """Return a bound on the bytes of all texts together; raises OutOfRange for an id that no token has.

    `every` has the ids of all lists. They are checked in one go: there may be as many lists as ids.
    """

    def place(position: int) -> str:
        ends = list(accumulate(map(len, ids.inputs)))
        index = bisect_right(ends, position)
        return f"{ids.place(field, index)}.{position - ends[index] + len(ids.inputs[index])}"

    check_known(decoder, every, place)
    return decoder.text_bytes(every)


async def answer_tokens(
    exchange: Exchange,
    encodings: Sequence[Encoding],
    column_bytes: Callable[[int, Encoding], int],
    item: Callable[[int, Encoding], Item],
    way_out: str,
) -> Response:
    """Answer with an item for each text, made by `item` from the index and the tokens of the text.

    `column_bytes` bounds the JSON of an item. `way_out` says how to make a response smaller.
    """
    style = exchange.style()

    def size_of() -> int:
        expected = [Expected(column_bytes=column_bytes(*one)) for one in enumerate(encodings)]
        return bound(style, expected)

    size = await exchange.off_loop(size_of, sum(map(len, encodings)))
    exchange.reserve_answer(style, size, way_out)
    work = replace(Work.of(encodings), tokens=0)
    return await exchange.delivery(style, work, size).deliver(item(*one) for one in enumerate(encodings))
