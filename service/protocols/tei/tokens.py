"""`/tokenize` and `/decode`: tokens of texts, and texts of token ids."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, Field, StrictBool, StrictStr
from starlette.requests import Request
from starlette.responses import Response

from model.contract import Encoding
from model.tokenization.decoding import json_bytes
from model.tokenization.tokenizer import Truncation
from service.http.delivery import Work
from service.http.request_body import read_request
from service.protocols.decoding import check_counts, decode_ids
from service.protocols.exchange import Exchange, check_count
from service.protocols.fields import MAX_IDS
from service.protocols.tei.errors import EmptyList
from service.protocols.tei.fields import PROMPT_NAME, DecodedIds, TeiRequest, TextOrTexts
from service.replies.answer_size import bound
from service.tasks.prompts import choose_prompt
from service.tasks.results import Expected, Item

# With its punctuation: the names of a token's fields, its id and its two offsets.
_TOKEN_BYTES = 110
# The tokenizer does not truncate for this route, and so refuses what the model could not read.
_WHOLE = Truncation(allowed=False)


class TeiTokenizeRequest(TeiRequest):
    """Texts to tokenize."""

    inputs: TextOrTexts = Field(description="A text, or a list of texts.")
    add_special_tokens: StrictBool = Field(
        True,  # noqa: FBT003
        description="Return special tokens, too.",
    )
    prompt_name: StrictStr | None = PROMPT_NAME


class TeiToken(BaseModel):
    """A token."""

    id: int
    text: str
    special: bool
    start: int | None = Field(description="In bytes of UTF-8, of the prompt and the text; null if special.")
    stop: int | None


class TeiDecodeRequest(TeiRequest):
    """Token ids to turn into text."""

    listed: ClassVar[str] = "ids"
    example: ClassVar[str] = '{"ids": [101, 102]}'
    most_numbers: ClassVar[int] = MAX_IDS

    ids: DecodedIds = Field(description="The token ids of a text, or a list of such lists.")
    skip_special_tokens: StrictBool = Field(True, description="Leave out special tokens.")  # noqa: FBT003


async def tokenize(request: Request) -> Response:
    """Return the tokens of each text, with their places in it."""
    parsed = await read_request(request, TeiTokenizeRequest)
    check_count(parsed.count, request.app.state.service.settings)
    if not parsed.body.inputs:
        raise EmptyList("inputs")
    exchange = Exchange.open(request, parsed)
    exchange.cutting = ""
    return await exchange.in_time(_tokenize(exchange, parsed.body))


async def _tokenize(exchange: Exchange, body: TeiTokenizeRequest) -> Response:
    prompt = choose_prompt(exchange.engine.info, body.prompt_name)
    # As part of the texts, so that offsets count from its start; its bytes count as those of a query do.
    texts = [prompt + text for text in body.inputs]
    encodings = await exchange.tokenize(texts, _WHOLE, query=prompt, runs=False)
    exchange.value = _tokens
    style = exchange.style()

    def size_of() -> int:
        every = zip(texts, encodings, strict=True)
        return bound(style, (Expected(column_bytes=_bytes(*one)) for one in every))

    size = await exchange.off_loop(size_of, sum(map(len, encodings)))
    exchange.reserve_answer(style, size, "send fewer or shorter inputs")
    items = (
        Item({"tokens": [*_describe(*one, special=body.add_special_tokens)]}, {})
        for one in zip(texts, encodings, strict=True)
    )
    return await exchange.delivery(style, Work(len(encodings)), size).deliver(items)


def _bytes(text: str, encoding: Encoding) -> int:
    """Bound the tokens of a text: those of a character that they share repeat it."""
    shared = sum(end - start for start, end in encoding.offsets) - len(text)
    return (
        _TOKEN_BYTES * len(encoding)
        + json_bytes("".join(encoding.tokens))
        + json_bytes(text)
        + 6 * max(0, shared)
    )


def _describe(text: str, encoding: Encoding, *, special: bool) -> Iterator[dict[str, Any]]:
    place = _byte_places(text)
    columns = zip(encoding.token_ids, encoding.tokens, encoding.offsets, encoding.special, strict=True)
    for index, name, (start, end), added in columns:
        if not added:
            yield {
                "id": index,
                "text": text[start:end],
                "special": False,
                "start": place(start),
                "stop": place(end),
            }
        elif special:
            yield {"id": index, "text": name, "special": True, "start": None, "stop": None}


def _byte_places(text: str) -> Callable[[int], int]:
    """Return what turns a place in code points into one in bytes of UTF-8."""
    if text.isascii():
        return int
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    sizes = 1 + (points > 0x7F) + (points > 0x7FF) + (points > 0xFFFF)
    places: Sequence[int] = [0, *np.cumsum(sizes).tolist()]
    return places.__getitem__


def _tokens(item: Item) -> Any:
    return item.columns["tokens"]


async def decode(request: Request) -> Response:
    """Turn token ids into text."""
    parsed = await read_request(request, TeiDecodeRequest)
    body = parsed.body
    check_counts(body.ids, parsed.count, request.app.state.service.settings, "ids")
    if not any(body.ids.lists):
        raise EmptyList("ids")
    exchange = Exchange.open(request, parsed)
    exchange.value = _text
    skip = body.skip_special_tokens
    return await exchange.in_time(decode_ids(exchange, body.ids, "ids", skip_special_tokens=skip))


def _text(item: Item) -> Any:
    return item.columns["text"]
