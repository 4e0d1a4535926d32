"""What the server and its models are, and whether they are ready."""

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from service.engine.engine import Engine
from service.http.request_body import parse_body, receive_body
from service.http.request_context import context_of
from service.lifecycle import VERSION as SERVER_VERSION
from service.lifecycle import ServiceState
from service.problems import Problem, cut, from_validation_error
from service.protocols.oip.body import OUTPUT
from service.protocols.oip.schemas import (
    IndexedModel,
    IndexRequest,
    Live,
    ModelMetadata,
    ModelNames,
    ModelReady,
    Ready,
    ServerMetadata,
    Tensor,
)
from service.protocols.oip.tensors import INPUTS

VERSION = "1"
"""The version of every model: one of each is served."""
_EXTENSIONS = ["binary_tensor_data", "model_repository"]


async def live() -> Live:
    """Return 200 as long as the process responds."""
    return Live(live=True)


async def ready(request: Request) -> Ready:
    """Return 200 only if every model is loaded and warmed up, and its worker alive."""
    request.app.state.service.check_ready()
    return Ready(ready=True)


async def server() -> ServerMetadata:
    """Describe the server."""
    return ServerMetadata(name="headlight", version=SERVER_VERSION, extensions=_EXTENSIONS)


async def models(request: Request) -> ModelNames:
    """List the names of the served models."""
    return ModelNames(models=list(_engines(request)))


async def index(request: Request) -> list[IndexedModel]:
    """List the served models. All of them are ready, whether or not a body asks for these only.

    Raises the 400 for a body that is not valid, as for one of `…/infer`.
    """
    content = await receive_body(request, queued=False)
    if content:
        parsed = await parse_body(request, content, 0)
        try:
            IndexRequest.model_validate(parsed.value)
        except ValidationError as error:
            raise from_validation_error(error, IndexRequest) from None
    return [IndexedModel(name=name, version=VERSION) for name in _engines(request)]


async def model_ready(request: Request, model: str) -> ModelReady:
    """Return 200 only if the model is ready."""
    return ModelReady(name=find_engine(request, model).name, ready=True)


async def version_ready(request: Request, model: str, version: str) -> ModelReady:
    """Return 200 only if this version of the model is ready."""
    return ModelReady(name=find_engine(request, model, version).name, ready=True)


async def model_metadata(request: Request, model: str) -> ModelMetadata:
    """Describe a model, whose name may have slashes."""
    _check_method(request, model_metadata)
    return _describe(find_engine(request, model))


async def version_metadata(request: Request, model: str, version: str) -> ModelMetadata:
    """Describe a version of a model."""
    return _describe(find_engine(request, model, version))


async def not_served(request: Request) -> None:
    """Refuse what clients of Triton may call, and headlight does not have."""
    raise Problem(
        "not-found",
        f"{cut(request.url.path)} is not supported: of Triton's routes headlight does not have those for "
        "configurations, statistics, settings, generation, loading of models and shared memory.",
    )


async def unknown(request: Request) -> None:
    """Refuse every other path under `/v2`: with a 405 if it is one of a route, or of a served model."""
    endpoint = context_of(request.scope).endpoint
    if endpoint is not None and endpoint.handler is model_metadata:
        state: ServiceState = request.app.state.service
        state.engine(request.app.state.endpoints.parameters(request.scope["path"])["model"])
    _check_method(request, unknown)
    raise Problem("not-found", f"There is no route {cut(request.url.path)}; /docs lists the routes.")


def _check_method(request: Request, handler: Callable[..., Any]) -> None:
    """Raise the 405 for the path of another handler's route, whose methods are others."""
    endpoint = context_of(request.scope).endpoint
    if endpoint is None or endpoint.handler is not handler:
        raise HTTPException(405)


def find_engine(request: Request, model: str, version: str | None = None) -> Engine:
    """Find the engine of a model; raises the 503 until it is ready, and the 404."""
    state: ServiceState = request.app.state.service
    state.check_ready()
    engine = state.engine(model)
    if version not in (None, VERSION):
        raise Problem(
            "model-not-found",
            f'The model "{model}" has no version "{cut(version)}": its only version is {VERSION}.',
            members={"field": "version", "actual": version, "allowed": [VERSION]},
        )
    return engine


def _engines(request: Request) -> dict[str, Engine]:
    state: ServiceState = request.app.state.service
    state.check_ready()
    return dict(state.engines)


def _describe(engine: Engine) -> ModelMetadata:
    return ModelMetadata(
        name=engine.name,
        versions=[VERSION],
        platform=f"headlight_{engine.info.backend}",
        inputs=list(INPUTS.values()),
        outputs=[Tensor(name=OUTPUT, datatype="FP32", shape=[-1, engine.info.sentence_size])],
    )
