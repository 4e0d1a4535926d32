"""`/v1/models`: what is served, for the clients of OpenAI and Cohere."""

import time
from typing import Literal

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from service.lifecycle import ServiceState
from service.protocols.json_response import json_response

_STARTED = int(time.time())
_ENDPOINTS = ["embed", "rerank"]


class OpenAIModel(BaseModel):
    """A served model."""

    id: str
    object: Literal["model"] = "model"
    created: int = Field(description="When the service was started, in seconds since 1970.")
    owned_by: str = "headlight"


class CohereModel(BaseModel):
    """A served model, as Cohere's client reads it."""

    name: str
    endpoints: list[str]
    context_length: int = Field(description="Tokens of a text.")
    tokenizer_url: str | None = Field(None, description="None: Cohere's client then asks for tokens.")


class OneModel(OpenAIModel, CohereModel):
    """A served model, for both clients."""


class ModelList(BaseModel):
    """The served models."""

    object: Literal["list"] = "list"
    data: list[OpenAIModel]
    models: list[CohereModel] = Field(description="The same for Cohere's client.")


async def models(request: Request) -> Response:
    """List the served models."""
    state: ServiceState = request.app.state.service
    found = ModelList(
        data=[OpenAIModel(id=name, created=_STARTED) for name in state.engines],
        models=[
            CohereModel(name=name, endpoints=_ENDPOINTS, context_length=engine.info.max_length)
            for name, engine in state.engines.items()
        ],
    )
    return json_response(found)


async def model(request: Request) -> Response:
    """Describe a served model, whose name may have slashes."""
    state: ServiceState = request.app.state.service
    engine = state.engine(request.path_params["model"])
    found = OneModel(
        id=engine.name,
        created=_STARTED,
        name=engine.name,
        endpoints=_ENDPOINTS,
        context_length=engine.info.max_length,
    )
    return json_response(found)
