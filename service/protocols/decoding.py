"""Answers with the texts of token ids, whatever the protocol."""

import time
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, chain

from starlette.responses import Response

from model.tokenization.decoding import Decoder
from service.http.delivery import Work
from service.problems import Problem
from service.protocols.exchange import Exchange, check_count
from service.protocols.fields import MAX_IDS, IdLists
from service.replies.answer_size import bound
from service.settings import Settings
from service.tasks.results import Expected, Item
from service.tasks.tokens import check_known

# A token is decoded in the time in which several are planned, and a list in that of more (measured).
_DECODED, _LISTED = 8, 12
# The index and the name of a text, with their punctuation.
_TEXT_BYTES = 40


def check_counts(ids: IdLists, count: int, settings: Settings, field: str = "token_ids") -> None:
    """Raise the 413 for too many lists, and the 422 for too many ids in one; `count` is what was sent."""
    if not ids.flat:
        check_count(count, settings, field)
    elif count > MAX_IDS:
        raise Problem(
            "invalid-request",
            f"{field} has {count} ids and the limit is {MAX_IDS}: split them into several requests.",
            members={"field": field, "limit": MAX_IDS, "actual": count},
        )


async def decode_ids(
    exchange: Exchange, ids: IdLists, field: str = "token_ids", *, skip_special_tokens: bool = True
) -> Response:
    """Answer with the text of each list of ids; errors name `field`."""
    decoder, style = exchange.engine.decoder, exchange.style()
    every = list(chain.from_iterable(ids.lists))
    stages = exchange.context.record.stages
    stages.begin("tokenize")
    start = time.perf_counter()
    text_bytes = await exchange.off_loop(lambda: _measure(decoder, ids, every, field), len(every))
    # Each text has its index and its name; a control character has six bytes.
    size = bound(style, [Expected(column_bytes=_TEXT_BYTES * len(ids) + 6 * text_bytes)])
    exchange.reserve_answer(style, size, "send fewer ids")
    texts = await exchange.off_loop(
        lambda: decoder.decode(ids.lists, skip_special_tokens=skip_special_tokens),
        _DECODED * len(every) + _LISTED * len(ids),
    )
    exchange.tokenized(time.perf_counter() - start)
    items = (Item({"index": index, "text": text}, {}) for index, text in enumerate(texts))
    return await exchange.delivery(style, Work(len(ids)), size).deliver(items)


def _measure(decoder: Decoder, ids: IdLists, every: Sequence[int], field: str) -> int:
    """Bound the bytes of all texts, which have `every` id; raises OutOfRange for one that no token has.

    All are looked at in one go: there may be as many lists as ids.
    """
    check_known(decoder, every, lambda position: f"{field}.{_place(ids, position)}")
    return decoder.text_bytes(every)


def _place(ids: IdLists, position: int) -> str:
    """Name the place of an id in the request by its position among all of them."""
    ends = list(accumulate(map(len, ids.lists)))
    index = bisect_right(ends, position)
    return ids.place(index, position - ends[index] + len(ids.lists[index]))
