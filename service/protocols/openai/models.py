"""`/v1/models`: what is served, for the clients of OpenAI and Cohere."""

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from service.engine.engine import Engine
from service.lifecycle import ServiceState
from service.protocols.contract import json_response

_STARTED = int(time.time())


async def models(request: Request) -> Response:
    """List the served models, as OpenAI's client reads them (`data`), and as Cohere's does (`models`)."""
    state: ServiceState = request.app.state.service
    engines = state.engines.values()
    listed = {"data": [*map(_of_openai, engines)], "models": [*map(_of_cohere, engines)]}
    return json_response({"object": "list"} | listed)


async def model(request: Request) -> Response:
    """Describe a served model, whose name may have slashes, for both clients."""
    state: ServiceState = request.app.state.service
    engine = state.engine(request.path_params["model"])
    return json_response(_of_cohere(engine) | _of_openai(engine))


def _of_openai(engine: Engine) -> dict[str, Any]:
    return {"id": engine.name, "object": "model", "created": _STARTED, "owned_by": "headlight"}


def _of_cohere(engine: Engine) -> dict[str, Any]:
    """Describe a model without its tokenizer's address, so that the client asks the service for tokens."""
    return {
        "name": engine.name,
        "endpoints": ["embed", "rerank"],
        "context_length": engine.info.max_length,
        "tokenizer_url": None,
    }
