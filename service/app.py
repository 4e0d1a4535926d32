"""create_app: the only place that wires."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from model.errors import ModelError
from service.http.cors import Cors
from service.http.middleware import RequestContext, authorize
from service.lifecycle import VERSION, Loader, ServiceState, load_engines
from service.problems import Problem, cut, from_model_error
from service.protocols import operations
from service.protocols.native import routes as native
from service.protocols.openapi import build_openapi, operation_id
from service.settings import Settings

log = logging.getLogger(__name__)

_SUPERVISION_S = 0.25
# So late, the process was stopped or starved, and with it whatever it computes.
_STOPPED_S = 1.0
_HANDLERS = {"/encode": native.encode, "/attention": native.attention}


def create_app(settings: Settings, load: Loader = load_engines, *, wait: bool = False) -> FastAPI:
    """Build the app. It answers at once, and loads its models in a thread.

    With `wait` its start takes until they are loaded, and fails with them: for servers that send no request
    before. Raises KeyFileError and TracesError.
    """
    state = ServiceState(settings, load)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        loading = threading.Thread(target=state.load, name="load", daemon=True)
        loading.start()
        if wait:
            await asyncio.to_thread(loading.join)
            if state.failure is not None:
                raise RuntimeError(state.failure)
        state.keys.watch()
        supervision = asyncio.create_task(_supervise(state))
        yield
        supervision.cancel()
        state.close()
        await asyncio.to_thread(state.close_traces)

    app = App(
        title="headlight",
        version=VERSION,
        lifespan=lifespan,
        openapi_url=None,  # served by routes/operations.py, like the page for it
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=operation_id,
        telemetry={"auto_configure": False},  # nothing is sent because of a variable that others have set
    )
    app.state.service = state
    app.include_router(native.router)
    app.include_router(operations.router)
    infer: ASGIApp = _infer
    if settings.origins:
        app.add_middleware(Cors, origins=settings.origins)
        infer = Cors(infer, settings.origins)
    app.add_middleware(RequestContext, state=state)
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(ModelError, _on_problem)
    app.add_exception_handler(HTTPException, _on_problem)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    app.inference = RequestContext(infer, state)
    return app


class App(FastAPI):
    """Sends inference requests straight to their handlers, and all others through the framework.

    Its layers would find nothing to do for them, and take a third of the time of a short request.
    """

    inference: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in _HANDLERS:
            scope["app"] = self
            await self.inference(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


async def _infer(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    try:
        authorize(request)
        response = await _HANDLERS[scope["path"]](request)
    except (Problem, ModelError) as error:
        response = await _on_problem(request, error)
    await response(scope, receive, send)


def _openapi(app: FastAPI) -> dict[str, object]:
    if app.openapi_schema is None:
        app.openapi_schema = build_openapi(app, VERSION, keys=app.state.service.keys.required)
    return app.openapi_schema


async def _supervise(state: ServiceState) -> None:
    last = time.perf_counter()
    while True:
        await asyncio.sleep(_SUPERVISION_S)
        now = time.perf_counter()
        late = now - last - _SUPERVISION_S
        try:
            state.supervise(stopped_s=late if late > _STOPPED_S else 0.0)
        except Exception:  # without it a worker that hangs would never be replaced
            log.exception("the workers could not be looked after")
        last = now


async def _on_problem(request: Request, error: Exception) -> Response:
    """Answer an error of ours, of `model/`, or of the framework."""
    match error:
        case Problem():
            problem = error
        case ModelError():
            problem = from_model_error(error)
        case HTTPException(status_code=405):
            allowed = (error.headers or {}).get("Allow", "")
            detail = f"{cut(request.url.path)} takes {allowed}, not {request.method}."
            problem = Problem("method-not-allowed", detail, headers={"Allow": allowed})
        case HTTPException(status_code=404):
            problem = Problem("not-found", f"There is no {cut(request.url.path)}; /docs shows what there is.")
        case _:
            raise error
    state: ServiceState = request.app.state.service
    if problem.kind in ("overloaded", "deadline-exceeded", "not-ready"):
        state.metrics.rejected.labels(problem.kind).inc()
    return problem.response(instance=request.url.path, request_id=request.state.request_id)
