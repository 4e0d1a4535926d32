"""`POST /`: what the model does, or what the shape of the body says."""

from typing import Any

from pydantic import Field, StrictStr
from starlette.requests import Request
from starlette.responses import Response

from service.http.request_body import read_body
from service.lifecycle import ServiceState
from service.protocols.fields import MAX_IDS
from service.protocols.tei.embed import embed, embed_sparse
from service.protocols.tei.fields import TeiRequest
from service.protocols.tei.predict import predict
from service.protocols.tei.rerank import rerank
from service.protocols.tei.similarity import similarity


class ModelRequest(TeiRequest):
    """The body of `/embed`, `/embed_sparse`, `/predict`, `/rerank` or `/similarity`."""

    inputs: Any = Field(
        None,
        description="As for `/predict` if the model is a classifier, for `/embed_sparse` if it is of sparse "
        "vectors, and else for `/embed`; an object is that of `/similarity`.",
    )
    query: StrictStr | None = Field(None, description="With `texts`: as for `/rerank`.")
    texts: list[str] | None = Field(None, description="The texts to rank.")


async def answer_root(request: Request) -> Response:
    """Answer as the route for this body and this model does."""
    body = await read_body(request, ModelRequest.formats, MAX_IDS)
    fields = body.value if isinstance(body.value, dict) else {}
    if isinstance(fields.get("inputs"), dict):
        return await similarity(request)
    if "texts" in fields or "query" in fields:
        return await rerank(request)
    state: ServiceState = request.app.state.service
    name = fields.get("model")
    head = state.engine(name if isinstance(name, str) else None).info.head
    match None if head is None else head.kind:
        case "classification" | "token_classification":
            return await predict(request)
        case "masked_words":
            return await embed_sparse(request)
        case _:
            return await embed(request)
