"""`POST /decode`: token ids to text."""

import time
from functools import partial
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

# A token takes a microsecond, as long as ten steps of Python, to check and to decode.
_STEPS_PER_ID = 10


class DecodeRequest(Options):
    """Token ids to turn into text."""

    listed: ClassVar[str] = "token_ids"
    example: ClassVar[str] = '{"token_ids": [101, 102]}'
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
    steps = _STEPS_PER_ID * sum(map(len, ids.lists))
    stages = exchange.context.record.stages
    stages.begin("tokenize")
    start = time.perf_counter()
    text_bytes = await exchange.off_loop(lambda: _measure(decoder, ids, field), steps=steps)
    size = bound_texts(style, text_bytes, len(ids))
    exchange.reserve_answer(style, size, "send fewer ids")
    texts = await exchange.off_loop(
        lambda: decoder.decode(ids.lists, skip_special_tokens=body.skip_special_tokens), steps=steps
    )
    exchange.tokenized(time.perf_counter() - start)
    items = (Item({"index": index, "text": text}, {}) for index, text in enumerate(texts))
    return await exchange.delivery(style, Work(len(ids)), size).deliver(items)


def _place(field: str, ids: IdLists, index: int, position: int) -> str:
    return f"{field}.{ids.place(index, position)}"


def _measure(decoder: Decoder, ids: IdLists, field: str) -> int:
    """Bound the bytes of all texts; raises OutOfRange for an id that the tokenizer does not have."""
    for index, one in enumerate(ids.lists):
        check_known(decoder, one, partial(_place, field, ids, index))
    return sum(map(decoder.text_bytes, ids.lists))


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
