"""`/rerank`: texts in the order in which they match a query."""

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, Field, StrictBool, StrictStr
from starlette.requests import Request
from starlette.responses import Response

from service.http.request_body import read_request
from service.protocols.exchange import Exchange
from service.protocols.reranking import rank
from service.protocols.tei.errors import EmptyInput, EmptyList
from service.protocols.tei.fields import Strings, TeiRequest, Truncated
from service.protocols.tei.headers import add_headers
from service.tasks.errors import OptionError
from service.tasks.rank import RankOptions, choose_method
from service.tasks.results import Item


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
    parsed = await read_request(request, TeiRerankRequest, counted="texts")
    body = parsed.body
    if not body.texts:
        raise EmptyList("texts")
    if not body.query and not all(body.texts):
        raise EmptyInput("A pair of `query` and a text", "query")
    exchange = Exchange.open(request, parsed)
    return await exchange.in_time(_rerank(exchange, body))


async def _rerank(exchange: Exchange, body: TeiRerankRequest) -> Response:
    if choose_method(exchange.engine, exchange.state.engines) == "bi-encoder":
        raise OptionError(
            lambda _: (
                f'The model "{exchange.engine.name}" is not a re-ranker model; the native form of '
                "/rerank ranks by its sentence vectors."
            ),
            option="model",
            kind="unsupported",
        )
    exchange.value, exchange.names = _rank, {"return_texts": "return_text", "top_n": ""}
    options = RankOptions(
        body.query,
        body.texts,
        return_texts=body.return_text,
        raw_scores=body.raw_scores,
        truncation=body.truncation,
    )
    response = await rank(exchange, options)
    return add_headers(response, exchange, _characters(body.query, body.texts))


def _rank(item: Item) -> dict[str, Any]:
    return {name: one for name, one in item.columns.items() if name in TeiRank.model_fields}


def _characters(query: str, texts: Sequence[str]) -> int:
    """Count the query once for each text, with which it runs."""
    return len(query) * len(texts) + sum(map(len, texts))
