"""`/rerank`: texts in the order in which they match a query."""

from typing import ClassVar

from pydantic import BaseModel, Field, StrictBool, StrictStr
from starlette.responses import Response

from service.protocols.exchange import Exchange
from service.protocols.lenient import Asked
from service.protocols.reranking import rank
from service.protocols.tei.errors import EmptyInput, EmptyList
from service.protocols.tei.fields import Strings, Truncated
from service.tasks.errors import OptionError
from service.tasks.rank import RankOptions, choose_method


class TeiRerankRequest(Asked, Truncated):
    """Texts to rank by how well they match a query."""

    listed: ClassVar[str] = "texts"
    elsewhere: ClassVar[dict[str, str]] = {"documents": "/v1/rerank"}
    example: ClassVar[str] = '{"query": "a question", "texts": ["a text"]}'

    query: StrictStr = Field(description="The query to rank the texts by.")
    texts: Strings = Field(description="The texts to rank.")
    raw_scores: StrictBool = Field(default=False, description="Return logits.")
    return_text: StrictBool = Field(default=False, description="Return each text with its score.")

    def check(self, count: int, limit: int) -> None:
        """Raise a problem if too many texts (`count`), none, or an empty one for an empty query were sent."""
        super().check(count, limit)
        if not self.texts:
            raise EmptyList("texts")
        if not self.query and not all(self.texts):
            raise EmptyInput("A pair of `query` and a text", "query")

    @property
    def characters(self) -> int:
        """The number of Unicode code points in the response's header: the query counts once for each text."""
        return len(self.query) * len(self.texts) + sum(map(len, self.texts))


class TeiRank(BaseModel):
    """A text with its score."""

    index: int
    score: float
    text: str | None = None


async def rerank(exchange: Exchange, body: TeiRerankRequest) -> Response:
    """Rank texts by how well they match a query; the largest score first."""
    if choose_method(exchange.engine, exchange.state.engines) == "bi-encoder":
        raise OptionError(
            lambda _: (
                f'The model "{exchange.engine.name}" is not a re-ranker model; the native form of '
                "/rerank ranks by its sentence vectors."
            ),
            option="model",
            kind="unsupported",
        )
    exchange.names = {"return_texts": "return_text", "top_n": ""}
    fields = TeiRank.model_fields
    exchange.value = lambda item: {name: one for name, one in item.columns.items() if name in fields}
    options = RankOptions(
        body.query,
        body.texts,
        return_texts=body.return_text,
        raw_scores=body.raw_scores,
        truncation=body.truncation,
    )
    return await rank(exchange, options)
