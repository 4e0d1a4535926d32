"""`POST /decode`: token ids to text."""

import time
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import ClassVar

from pydantic import BaseModel, Field, StrictBool, StrictStr
from starlette.requests import Request
from starlette.responses import Response

from model.tokenization.decoding import Decoder
from service.endpoints import Endpoint
from service.http.delivery import Work
from service.http.request_body import read_request
from service.problems import Problem
from service.protocols.exchange import Exchange, check_count
from service.protocols.native.examples import EXAMPLES
from service.protocols.native.fields import MAX_IDS, IdLists, TokenIds
from service.protocols.native.responses import Usage
from service.protocols.native.schemas import MODEL, Options
from service.protocols.token_ids import check_known
from service.serialization.answer_size import bound_texts
from service.serialization.items import Format, Item
from service.settings import Settings

# Python steps to check an id, to decode one, and to decode a list with as few as one (measured).
_CHECK_STEPS, _DECODE_STEPS, _LIST_STEPS = 4, 25, 40


class DecodeRequest(Options):
    """Token ids to turn into text."""

    listed: ClassVar[str] = "token_ids"
    example: ClassVar[str] = '{"token_ids": [101, 102]}'
    elsewhere: ClassVar[dict[str, str]] = {"ids": "/tei/decode"}
    formats: ClassVar[tuple[Format, ...]] = ("json",)
    most_numbers: ClassVar[int] = MAX_IDS
    """How many ids the list may have, unless it has lists of them."""

    model: StrictStr | None = MODEL
    token_ids: TokenIds = Field(
        description=f"The ids of one text, or a list of such lists, with at most {MAX_IDS} ids in all. An "
        "empty list within a list is an empty text.",
        examples=[[101, 7592, 102], [[101, 7592, 102], []]],
    )
    skip_special_tokens: StrictBool = Field(
        True,  # noqa: FBT003
        description="Leave out special tokens, also those that stand for a text such as a literal "
        '"[SEP]", which has the same id.',
    )


class DecodedItem(BaseModel):
    """The text of one list of ids."""

    index: int = Field(ge=0, description="The index of the list.")
    text: str


class DecodeResponse(BaseModel):
    """The response of `/decode`."""

    model: str
    data: list[DecodedItem]
    usage: Usage = Field(description="No tokens: nothing is run.")


async def decode(request: Request) -> Response:
    """Turn token ids into text, as the model's tokenizer joins them."""
    parsed = await read_request(request, DecodeRequest)
    check_counts(parsed.body.token_ids, parsed.count, request.app.state.service.settings)
    exchange = Exchange.open(request, parsed)
    return await exchange.in_time(decode_ids(exchange, parsed.body))


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


async def decode_ids(exchange: Exchange, body: DecodeRequest, field: str = "token_ids") -> Response:
    """Answer with the text of each list of ids; errors name `field`."""
    ids, decoder, style = body.token_ids, exchange.engine.decoder, exchange.style()
    every = list(chain.from_iterable(ids.lists))
    stages = exchange.context.record.stages
    stages.begin("tokenize")
    start = time.perf_counter()
    text_bytes = await exchange.off_loop(
        lambda: _measure(decoder, ids, every, field), steps=_CHECK_STEPS * len(every)
    )
    size = bound_texts(style, text_bytes, len(ids))
    exchange.reserve_answer(style, size, "send fewer ids")
    texts = await exchange.off_loop(
        lambda: decoder.decode(ids.lists, skip_special_tokens=body.skip_special_tokens),
        steps=_DECODE_STEPS * len(every) + _LIST_STEPS * len(ids),
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


ENDPOINTS = (
    Endpoint(
        "/decode",
        decode,
        ("POST",),
        summary="Text of token ids",
        request=DecodeRequest,
        examples=EXAMPLES["/decode"],
        responses={200: {"model": DecodeResponse}},
        guarded=True,
    ),
)
