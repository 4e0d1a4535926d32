"""`/v1/models`: what is served, for the clients of OpenAI and Cohere."""

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from service.engine.engine import Engine
from service.lifecycle import ServiceState
from service.protocols.contract import json_response
from service.tasks.rank import ranks

_STARTED = int(time.time())


async def models(request: Request) -> Response:
    """List the served models, as OpenAI's client reads them (`data`), and as Cohere's does (`models`).

    The parameter `endpoint` asks for those that can do this.
    """
    state: ServiceState = request.app.state.service
    asked = request.query_params.get("endpoint")
    engines = [one for one in state.engines.values() if asked is None or asked in _endpoints(one)]
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
        "endpoints": _endpoints(engine),
        "context_length": engine.info.max_length,
        "tokenizer_url": None,
    }


def _endpoints(engine: Engine) -> list[str]:
    """Return Cohere's names of what a model can be asked for; all models embed texts."""
    return ["embed", "rerank"] if ranks(engine.info) else ["embed"]
