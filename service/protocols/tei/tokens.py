"""`/tokenize` and `/decode`: tokens of texts, and texts of token ids."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, Field, StrictBool, StrictStr
from starlette.responses import Response

from model.contract import Encoding
from model.tokenization.decoding import json_bytes
from service.protocols.decoding import WHOLE, answer_tokens, check_counts, decode_ids
from service.protocols.exchange import Exchange
from service.protocols.fields import MAX_IDS
from service.protocols.lenient import Asked
from service.protocols.tei.errors import EmptyList
from service.protocols.tei.fields import PROMPT_NAME, DecodedIds, TextOrTexts
from service.tasks.prompts import choose_prompt
from service.tasks.results import Item

# Bytes of JSON for the names of a token's fields, its id and its two offsets, with their punctuation.
_TOKEN_BYTES = 110


class TeiTokenizeRequest(Asked):
    """Texts to tokenize."""

    inputs: TextOrTexts = Field(description="A text, or a list of texts.")
    add_special_tokens: StrictBool = Field(default=True, description="Return special tokens, too.")
    prompt_name: StrictStr | None = PROMPT_NAME

    def check(self, count: int, limit: int) -> None:
        """Raise a problem if too many texts (`count`), or none, were sent."""
        super().check(count, limit)
        if not self.inputs:
            raise EmptyList("inputs")


class TeiToken(BaseModel):
    """A token."""

    id: int
    text: str
    special: bool
    start: int | None = Field(
        description="In UTF-8 bytes, in the prompt and the text; null for special tokens."
    )
    stop: int | None


class TeiDecodeRequest(Asked):
    """Token ids to turn into text."""

    listed: ClassVar[str] = "ids"
    example: ClassVar[str] = '{"ids": [101, 102]}'
    most_numbers: ClassVar[int] = MAX_IDS

    ids: DecodedIds = Field(description="The token ids of a text, or a list of such lists.")
    skip_special_tokens: StrictBool = Field(default=True, description="Leave out special tokens.")

    def check(self, count: int, limit: int) -> None:
        """Raise a problem if too many lists or ids (`count`), or no ids, were sent."""
        check_counts(self.ids, count, limit, "ids")
        if not any(self.ids.inputs):
            raise EmptyList("ids")


async def tokenize(exchange: Exchange, body: TeiTokenizeRequest) -> Response:
    """Return the tokens of each text, with their places in it."""
    exchange.cutting, exchange.value = "", lambda item: item.columns["tokens"]
    prompt = choose_prompt(exchange.engine.info, body.prompt_name)
    # The prompt is part of the texts: offsets count from its start, and its bytes are limited as a query's.
    texts = [prompt + text for text in body.inputs]
    encodings = await exchange.tokenize(texts, WHOLE, query=prompt, runs=False)

    def size(index: int, encoding: Encoding) -> int:
        return _bytes(texts[index], encoding)

    def item(index: int, encoding: Encoding) -> Item:
        return Item({"tokens": [*_describe(texts[index], encoding, special=body.add_special_tokens)]}, {})

    return await answer_tokens(exchange, encodings, size, item, "send fewer or shorter inputs")


def _bytes(text: str, encoding: Encoding) -> int:
    """Return a bound on the JSON of a text's tokens; tokens that share a character each repeat it."""
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
    """Return a function that turns a place in code points into one in bytes of UTF-8."""
    if text.isascii():
        return int
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    sizes = 1 + (points > 0x7F) + (points > 0x7FF) + (points > 0xFFFF)
    places: Sequence[int] = [0, *np.cumsum(sizes).tolist()]
    return places.__getitem__


async def decode(exchange: Exchange, body: TeiDecodeRequest) -> Response:
    """Turn token ids into text."""
    exchange.value = lambda item: item.columns["text"]
    return await decode_ids(exchange, body.ids, "ids", skip_special_tokens=body.skip_special_tokens)
