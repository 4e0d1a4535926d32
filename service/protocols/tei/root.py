"""`POST /`: answers as the route that suits the shape of the body, or else what the model does."""

from typing import Any

from pydantic import Field, StrictStr
from starlette.requests import Request
from starlette.responses import Response

from service.http.request_body import ParsedRequest, read_body, read_request
from service.lifecycle import ServiceState
from service.protocols.contract import Answer
from service.protocols.exchange import Exchange
from service.protocols.fields import MAX_IDS
from service.protocols.lenient import Asked
from service.protocols.tei.embed import EmbedRequest, EmbedSparseRequest, embed_sparse, embed_texts
from service.protocols.tei.predict import TeiPredictRequest, predict
from service.protocols.tei.rerank import TeiRerankRequest, rerank
from service.protocols.tei.similarity import TeiSimilarityRequest, similarity

_ANSWERS: dict[type[Asked], Answer] = {
    TeiSimilarityRequest: similarity,
    TeiRerankRequest: rerank,
    TeiPredictRequest: predict,
    EmbedSparseRequest: embed_sparse,
    EmbedRequest: embed_texts,
}


class ModelRequest(Asked):
    """The body of `/embed`, `/embed_sparse`, `/predict`, `/rerank` or `/similarity`."""

    inputs: Any = Field(
        None,
        description="As for `/predict` if the model is a classifier, as for `/embed_sparse` if it makes "
        "sparse vectors, otherwise as for `/embed`; an object is read as for `/similarity`.",
    )
    query: StrictStr | None = Field(None, description="With `texts`: as for `/rerank`.")
    texts: list[str] | None = Field(None, description="The texts to rank.")


async def read_root(request: Request, schema: type[Asked]) -> ParsedRequest[Asked]:
    """Read a request with the schema of the route that suits its body and its model."""
    body = await read_body(request, schema.formats, MAX_IDS)
    fields = body.value if isinstance(body.value, dict) else {}
    return await read_request(request, _choose(fields, request.app.state.service))


async def answer_root(exchange: Exchange, body: Asked) -> Response:
    """Answer as the route for this body and this model does."""
    return await _ANSWERS[type(body)](exchange, body)


def _choose(fields: dict[str, Any], state: ServiceState) -> type[Asked]:
    if isinstance(fields.get("inputs"), dict):
        return TeiSimilarityRequest
    if "texts" in fields or "query" in fields:
        return TeiRerankRequest
    name = fields.get("model")
    head = state.engine(name if isinstance(name, str) else None).info.head
    match None if head is None else head.kind:
        case "classification" | "token_classification":
            return TeiPredictRequest
        case "masked_words" | "autoencoder":
            return EmbedSparseRequest
        case _:
            return EmbedRequest
