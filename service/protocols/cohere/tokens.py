"""`/v1/tokenize` and `/v1/detokenize`: the tokens of a text, and the text of token ids."""

from collections.abc import Sequence
from itertools import compress
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field, PlainValidator, ValidationInfo, WithJsonSchema
from starlette.responses import Response

from model.contract import Encoding
from model.tokenization.decoding import json_bytes
from service.protocols.decoding import WHOLE, answer_tokens, check_counts, decode_ids
from service.protocols.exchange import Exchange
from service.protocols.fields import IDS, MAX_IDS, Listed, NonEmptyText, id_lists, invalid
from service.protocols.lenient import Asked
from service.tasks.results import Item

_META = {"api_version": {"version": "1"}}
# Bytes of JSON for a token's id and for the quotes of its text, with their punctuation.
_TOKEN_BYTES = 16
_META_BYTES = 128


class CohereTokenizeRequest(Asked):
    """A text to tokenize. Unknown fields are ignored."""

    listed: ClassVar[str] = "texts"
    example: ClassVar[str] = '{"text": "a text"}'

    text: NonEmptyText = Field(description="The text, of at least one character.")

    @property
    def texts(self) -> list[str]:
        """The only text."""
        return [self.text]


class CohereTokens(BaseModel):
    """The tokens of a text, without special ones."""

    tokens: list[int]
    token_strings: list[str]
    meta: dict[str, Any]


def _ids(value: object, info: ValidationInfo) -> Listed[Sequence[int]]:
    if not isinstance(value, list) or not value or isinstance(value[0], list):
        raise invalid("tokens", "must be a list of at least one token id")
    return id_lists(value, info)


class CohereDetokenizeRequest(Asked):
    """Token ids to turn into text. Unknown fields are ignored."""

    listed: ClassVar[str] = "tokens"
    example: ClassVar[str] = '{"tokens": [101, 102]}'
    most_numbers: ClassVar[int] = MAX_IDS

    tokens: Annotated[Listed[Sequence[int]], PlainValidator(_ids), WithJsonSchema({**IDS, "minItems": 1})] = (
        Field(description="Token ids of the model.")
    )

    def check(self, count: int, limit: int) -> None:
        """Raise a problem if too many ids (`count`) were sent."""
        check_counts(self.tokens, count, limit, self.listed)


class CohereText(BaseModel):
    """The text of token ids, without special ones."""

    text: str
    meta: dict[str, Any]


async def tokenize(exchange: Exchange, body: CohereTokenizeRequest) -> Response:
    """Return the tokens of a text, without special ones."""
    exchange.alone, exchange.cutting = True, ""
    exchange.value = lambda item: {**item.columns, "meta": _META}
    (encoding,) = await exchange.tokenize(body.texts, WHOLE, place=lambda _: "text", runs=False)
    return await answer_tokens(exchange, [encoding], _bytes, _item, "send a shorter text")


def _bytes(_: int, encoding: Encoding) -> int:
    return _META_BYTES + _TOKEN_BYTES * len(encoding) + json_bytes("".join(encoding.tokens))


def _item(_: int, encoding: Encoding) -> Item:
    kept = [not special for special in encoding.special]
    ids, names = [*compress(encoding.token_ids, kept)], [*compress(encoding.tokens, kept)]
    return Item({"tokens": ids, "token_strings": names}, {})


async def detokenize(exchange: Exchange, body: CohereDetokenizeRequest) -> Response:
    """Return the text of token ids, without special ones."""
    exchange.alone, exchange.value = True, lambda item: {"text": item.columns["text"], "meta": _META}
    return await decode_ids(exchange, body.tokens, body.listed)
