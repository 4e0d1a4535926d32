"""`/rerank`: texts in the order in which they match a query."""

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, Field, StrictBool, StrictStr
from starlette.requests import Request
from starlette.responses import Response

from model.errors import Unsupported
from service.http.request_body import read_request
from service.protocols.exchange import Exchange, check_count
from service.protocols.native.rerank import RerankRequest, rank
from service.protocols.ranking import choose_method
from service.protocols.tei.errors import EmptyInput, EmptyList
from service.protocols.tei.fields import Strings, TeiRequest, Truncated
from service.protocols.tei.headers import add_headers
from service.serialization.items import Item


class TeiRerankRequest(TeiRequest, Truncated):
    """Texts to rank by how well they match a query."""

    listed: ClassVar[str] = "texts"
    example: ClassVar[str] = '{"query": "a question", "texts": ["a text"]}'

    query: StrictStr = Field(description="What the texts are ranked for.")
    texts: Strings = Field(description="The texts to rank.")
    raw_scores: StrictBool = Field(False, description="Return logits.")  # noqa: FBT003
    return_text: StrictBool = Field(False, description="Return each text with its score.")  # noqa: FBT003


class TeiRank(BaseModel):
    """A text with its score."""

    index: int
    score: float
    text: str | None = None


async def rerank(request: Request) -> Response:
    """Rank texts by how well they match a query; the largest score first."""
    parsed = await read_request(request, TeiRerankRequest)
    body = parsed.body
    check_count(parsed.count, request.app.state.service.settings, body.listed)
    if not body.texts:
        raise EmptyList("texts")
    if not body.query and not all(body.texts):
        raise EmptyInput("A pair of `query` and a text", "query")
    exchange = Exchange.open(request, parsed)
    return await exchange.in_time(_rerank(exchange, body))


async def _rerank(exchange: Exchange, body: TeiRerankRequest) -> Response:
    if choose_method(exchange.engine, exchange.state.engines) == "bi-encoder":
        raise Unsupported(
            f'The model "{exchange.engine.name}" is not a re-ranker model; the native form of /rerank ranks '
            "by its sentence vectors.",
            field="model",
        )
    native = RerankRequest.model_construct(
        model=body.model,
        query=body.query,
        texts=body.texts,
        raw_scores=body.raw_scores,
        return_texts=body.return_text,
        truncate=body.truncate,
        truncation_side=body.side,
    )
    exchange.value = _rank
    response = await rank(exchange, native)
    return add_headers(response, exchange, _characters(body.query, body.texts))


def _rank(item: Item) -> dict[str, Any]:
    return {name: one for name, one in item.columns.items() if name in TeiRank.model_fields}


def _characters(query: str, texts: Sequence[str]) -> int:
    """Count the query once for each text, with which it runs."""
    return len(query) * len(texts) + sum(map(len, texts))
