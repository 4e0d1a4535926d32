"""`/v1/rerank` and `/v2/rerank`: documents in the order in which they match a query."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, ClassVar

import orjson
from pydantic import BaseModel, Field, PlainValidator, StrictBool, WithJsonSchema, model_validator
from starlette.responses import Response

from model.tokenization.tokenizer import Side
from service.protocols.exchange import Exchange
from service.protocols.fields import (
    MostTokens,
    NonEmptyText,
    PositiveNumber,
    invalid,
    text_list,
    text_of,
)
from service.protocols.lenient import CUT_AND_NOT, TRUNCATION_SIDE, Asked, agree, cut_to
from service.protocols.reranking import rank
from service.tasks.rank import RankOptions
from service.tasks.results import Item


def _documents(value: object) -> list[str]:
    """Read texts, each of which may be an object with `text`."""
    texts = [*map(text_of, value)] if isinstance(value, list) else value
    return text_list(texts, "documents", ', or an object with "text"')


_NAMES = {"texts": "documents", "return_texts": "return_documents"}
_DOCUMENT = {"anyOf": [{"type": "string"}, {"type": "object", "required": ["text"]}]}
Documents = Annotated[
    list[str],
    PlainValidator(_documents),
    WithJsonSchema({"type": "array", "items": _DOCUMENT, "minItems": 1}),
]


class CohereRerankRequest(Asked):
    """Documents to rank by how well they match a query. Unknown fields are ignored."""

    listed: ClassVar[str] = "documents"
    example: ClassVar[str] = '{"query": "a question", "documents": ["a text"]}'

    query: NonEmptyText = Field(description="The query to rank the documents by.")
    documents: Documents = Field(description="Texts, or objects with `text`.")
    top_n: PositiveNumber | None = Field(None, description="Return the best k; all by default.")
    top_k: PositiveNumber | None = Field(
        None,
        description="Voyage's name for `top_n`. With it or `truncation`, the response has Voyage's form.",
    )
    truncation: StrictBool | None = Field(
        None, description="Voyage's: `false` refuses documents longer than the model's limit."
    )
    truncate_prompt_tokens: MostTokens | None = Field(
        None,
        description="vLLM's: run only the last k tokens of each text or pair, including special tokens; the "
        "first k if `truncation_side` is `right`; -1 is the model's limit.",
    )
    truncation_side: Side | None = TRUNCATION_SIDE
    max_tokens_per_doc: PositiveNumber | None = Field(
        None, description="Read only the first k tokens of each document; special ones do not count."
    )
    return_documents: StrictBool = Field(default=False, description="Return each document, too.")

    @model_validator(mode="after")
    def _agree(self) -> "CohereRerankRequest":
        agree(self.sent("top_n", "top_k"))
        if self.truncate_prompt_tokens is not None and self.truncation is False:
            raise invalid("truncate_prompt_tokens", CUT_AND_NOT)
        return self

    @property
    def voyage(self) -> bool:
        """Whether the client is Voyage's."""
        return self.top_k is not None or self.truncation is not None


class RelevantDocument(BaseModel):
    """A document with its score."""

    index: int
    relevance_score: float
    document: dict[str, str] | str | None = Field(
        None, description="With `return_documents`: an object with `text`, and a string in Voyage's form."
    )


class CohereRanking(BaseModel):
    """The documents, the largest score first."""

    id: str | None = Field(None, description="The id of the request.")
    object: str | None = Field(None, description="`list`.")
    results: list[RelevantDocument] | None = None
    data: list[RelevantDocument] | None = Field(
        None, description="Same as `results`; Voyage's form has only this one."
    )
    model: str
    usage: dict[str, int]
    meta: dict[str, Any] | None = None


async def rerank(exchange: Exchange, body: CohereRerankRequest) -> Response:
    """Rank documents by how well they match a query, as native `/rerank` does."""
    exchange.cutting = 'leave out "truncation": false'
    exchange.names = _NAMES if body.top_k is None else {**_NAMES, "top_n": "top_k"}
    written: list[dict[str, Any]] = []
    exchange.value = partial(_document, written, voyage=body.voyage)
    exchange.frame = partial(_frame, exchange, written, voyage=body.voyage)
    exchange.copies = 1 if body.voyage else 2
    options = RankOptions(
        body.query,
        body.documents,
        body.top_n if body.top_n is not None else body.top_k,
        body.return_documents,
        truncation=cut_to(
            body.truncate_prompt_tokens, body.truncation_side, allowed=body.truncation is not False
        ),
        text_tokens=body.max_tokens_per_doc,
    )
    return await rank(exchange, options)


def _document(written: list[dict[str, Any]], item: Item, *, voyage: bool) -> dict[str, Any]:
    columns = item.columns
    one = {"index": columns["index"], "relevance_score": columns["score"]}
    if "text" in columns:
        one["document"] = columns["text"] if voyage else {"text": columns["text"]}
    written.append(one)
    return one


def _frame(
    exchange: Exchange, written: list[dict[str, Any]], tokens: int, *, voyage: bool
) -> tuple[bytes, bytes | Callable[[], bytes]]:
    rest: dict[str, Any] = {"model": exchange.engine.name, "usage": {"total_tokens": tokens}}
    if voyage:
        return b'{"object":"list","data":', b"," + orjson.dumps(rest)[1:]
    rest["usage"]["prompt_tokens"] = tokens
    rest |= {"id": exchange.context.request_id, "meta": {"billed_units": {"search_units": 1}}}
    # Without options, requests of Voyage's clients look like Cohere's; but these clients read `data`.
    return b'{"results":', lambda: b',"object":"list",' + orjson.dumps({"data": written, **rest})[1:]
