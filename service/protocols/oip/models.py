"""The routes that describe the server and its models, and say whether they are ready."""

from starlette.requests import Request
from starlette.responses import Response

from service.echo import cut
from service.engine.engine import Engine
from service.http.request_body import parse_body, receive_body
from service.http.request_context import context_of
from service.http.unknown_routes import no_route
from service.lifecycle import VERSION as SERVER_VERSION
from service.lifecycle import ServiceState
from service.problems import Problem
from service.protocols.contract import json_response
from service.protocols.lenient import checked
from service.protocols.oip.schemas import IndexRequest
from service.protocols.oip.tensors import INPUTS, OUTPUT

VERSION = "1"
"""The version of every model: only one version of each is served."""
_EXTENSIONS = ["binary_tensor_data", "model_repository"]


async def live(_: Request) -> Response:
    """Return 200 as long as the process responds."""
    return json_response({"live": True})


async def ready(request: Request) -> Response:
    """Return 200 only if every model is loaded and warmed up."""
    request.app.state.service.check_ready()
    return json_response({"ready": True})


async def server(_: Request) -> Response:
    """Describe the server."""
    return json_response({"name": "headlight", "version": SERVER_VERSION, "extensions": _EXTENSIONS})


async def models(request: Request) -> Response:
    """List the names of the served models."""
    return json_response({"models": _names(request)})


async def index(request: Request) -> Response:
    """List the served models. All of them are ready, whether or not a body asks for these only.

    Raises the 400 for a body that is not valid, as for one of `…/infer`.
    """
    content = await receive_body(request, queued=False)
    if content:
        checked(IndexRequest, (await parse_body(request, content, 0)).value)
    state = {"version": VERSION, "state": "READY", "reason": ""}
    return json_response([{"name": name, **state} for name in _names(request)])


async def model_ready(request: Request) -> Response:
    """Return 200 only if the model, or the version of it, is ready."""
    return json_response({"name": _asked_engine(request).name, "ready": True})


async def model_metadata(request: Request) -> Response:
    """Describe a model, whose name may have slashes, or a version of it."""
    engine = _asked_engine(request)
    output = {"name": OUTPUT, "datatype": "FP32", "shape": [-1, engine.info.sentence_size]}
    return json_response(
        {
            "name": engine.name,
            "versions": [VERSION],
            "platform": f"headlight_{engine.info.backend}",
            "inputs": [
                {"name": name, "datatype": one.datatype, "shape": one.shape} for name, one in INPUTS.items()
            ],
            "outputs": [output],
        }
    )


async def not_served(request: Request) -> Response:
    """Refuse what clients of Triton may call, and headlight does not have."""
    raise Problem(
        "not-found",
        f"{cut(request.scope['path'])} is not supported: headlight has none of Triton's routes for "
        "configurations, statistics, settings, generation, loading models or shared memory.",
    )


async def unknown(request: Request) -> Response:
    """Refuse every other path under `/v2`, in the form of OpenAI where its clients have a wrong base URL."""
    if request.scope["path"].endswith("/embeddings"):
        context_of(request.scope).endpoint = None
    raise no_route(request)


def _asked_engine(request: Request) -> Engine:
    parameters = request.path_params
    return find_engine(request, parameters["model"], parameters.get("version"))


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


def _names(request: Request) -> list[str]:
    state: ServiceState = request.app.state.service
    state.check_ready()
    return list(state.engines)
