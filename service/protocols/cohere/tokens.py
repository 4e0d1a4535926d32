"""`/v1/tokenize` and `/v1/detokenize`: the tokens of a text, and the text of token ids."""

from collections.abc import Sequence
from itertools import compress
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field, PlainValidator, StrictStr, ValidationInfo, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from model.tokenization.decoding import json_bytes
from model.tokenization.tokenizer import Truncation
from service.http.delivery import Work
from service.http.request_body import read_request
from service.protocols.decoding import check_counts, decode_ids
from service.protocols.exchange import Exchange
from service.protocols.fields import MAX_IDS, IdLists, NonEmptyText, id_lists, invalid
from service.protocols.lenient import Fields
from service.replies.answer_size import bound
from service.replies.style import Format
from service.tasks.results import Expected, Item

_META = {"api_version": {"version": "1"}}
# With its punctuation: an id, and the quotes of a token.
_TOKEN_BYTES = 16
_META_BYTES = 128
# The tokenizer does not truncate for this route, and so refuses what the model could not read.
_WHOLE = Truncation(allowed=False)


class CohereTokenizeRequest(Fields):
    """A text to tokenize. Unknown fields are ignored."""

    listed: ClassVar[str] = "texts"
    example: ClassVar[str] = '{"text": "a text"}'
    formats: ClassVar[tuple[Format, ...]] = ("json",)

    model: StrictStr | None = Field(None, description="One of the served models; the first by default.")
    text: NonEmptyText = Field(description="The text, of at least one character.")

    @property
    def texts(self) -> Sequence[str]:
        """The only text."""
        return (self.text,)


class CohereTokens(BaseModel):
    """The tokens of a text, without special ones."""

    tokens: list[int]
    token_strings: list[str]
    meta: dict[str, Any]


def _ids(value: object, info: ValidationInfo) -> IdLists:
    if not isinstance(value, list) or not value or isinstance(value[0], list):
        raise invalid("tokens", "must be a list of at least one token id")
    return id_lists(value, info)


class CohereDetokenizeRequest(Fields):
    """Token ids to turn into text. Unknown fields are ignored."""

    listed: ClassVar[str] = "tokens"
    example: ClassVar[str] = '{"tokens": [101, 102]}'
    formats: ClassVar[tuple[Format, ...]] = ("json",)
    most_numbers: ClassVar[int] = MAX_IDS

    model: StrictStr | None = Field(None, description="One of the served models; the first by default.")
    tokens: Annotated[
        IdLists,
        PlainValidator(_ids),
        WithJsonSchema({"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}),
    ] = Field(description="Token ids of the model.")


class CohereText(BaseModel):
    """The text of token ids, without special ones."""

    text: str
    meta: dict[str, Any]


async def tokenize(request: Request) -> Response:
    """Return the tokens of a text, without special ones."""
    parsed = await read_request(request, CohereTokenizeRequest)
    exchange = Exchange.open(request, parsed)
    exchange.alone, exchange.cutting = True, ""
    return await exchange.in_time(_tokenize(exchange, parsed.body))


async def _tokenize(exchange: Exchange, body: CohereTokenizeRequest) -> Response:
    (encoding,) = await exchange.tokenize(body.texts, _WHOLE, place=lambda _: "text", runs=False)
    kept = [not special for special in encoding.special]
    exchange.value = _tokens
    style = exchange.style()
    expected = Expected(
        column_bytes=_META_BYTES + _TOKEN_BYTES * len(encoding) + json_bytes("".join(encoding.tokens))
    )
    size = bound(style, [expected])
    exchange.reserve_answer(style, size, "send a shorter text")
    ids, names = [*compress(encoding.token_ids, kept)], [*compress(encoding.tokens, kept)]
    item = Item({"tokens": ids, "token_strings": names}, {})
    return await exchange.delivery(style, Work(1), size).deliver([item])


async def detokenize(request: Request) -> Response:
    """Return the text of token ids, without special ones."""
    parsed = await read_request(request, CohereDetokenizeRequest)
    body = parsed.body
    check_counts(body.tokens, parsed.count, request.app.state.service.settings, "tokens")
    exchange = Exchange.open(request, parsed)
    exchange.alone, exchange.value = True, _text
    return await exchange.in_time(decode_ids(exchange, body.tokens, "tokens"))


def _tokens(item: Item) -> dict[str, Any]:
    return {**item.columns, "meta": _META}


def _text(item: Item) -> dict[str, Any]:
    return {"text": item.columns["text"], "meta": _META}
