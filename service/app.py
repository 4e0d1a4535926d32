"""create_app: wires the parts of the service together."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio.to_thread import current_default_thread_limiter
from fastapi import Depends, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from model.errors import ModelError
from service.endpoints import Endpoint
from service.explorer.page import read_page
from service.http.cors import Cors
from service.http.error_responses import answer_error
from service.http.middleware import RequestMiddleware, authorize
from service.http.request_context import context_of
from service.lifecycle import VERSION, Loader, ServiceState, load_engines
from service.problems import Problem
from service.protocols.endpoints import select_endpoints
from service.protocols.openapi import build_openapi, operation_id
from service.settings import Settings
from service.sharing.connections import Siblings

log = logging.getLogger(__name__)

_SUPERVISION_S = 0.25
# If a check is this late, the whole process was suspended or starved, its computations included.
_STOPPED_S = 1.0
# Threads that read the files of /docs; Starlette's own limit is 40, and each thread stays for a while.
_READERS = 2


def create_app(
    settings: Settings,
    load: Loader = load_engines,
    *,
    wait: bool = False,
    siblings: Siblings | None = None,
) -> FastAPI:
    """Build the app. It answers at once, and loads its models in a thread.

    With `wait`, startup waits until they are loaded and fails if they cannot be: for servers that send no
    requests before. `siblings` are the other processes of the service, if it has several. Raises KeyFileError
    and TracesError.
    """
    explorer = settings.explorer == "on"
    endpoints = select_endpoints(settings.other_protocols, explorer=explorer)
    state = ServiceState(settings, endpoints, load, siblings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        loading = threading.Thread(target=state.load, name="load", daemon=True)
        loading.start()
        current_default_thread_limiter().total_tokens = _READERS
        if wait:
            await asyncio.to_thread(loading.join)
            if state.failure is not None:
                raise RuntimeError(state.failure)
        if state.key_file is not None:
            state.key_file.watch()
        supervision = asyncio.create_task(_supervise(state))
        yield
        supervision.cancel()
        state.close()
        await asyncio.to_thread(state.close_traces)

    app = App(
        title="headlight",
        version=VERSION,
        lifespan=lifespan,
        openapi_url=None,  # served by protocols/operations.py, like its page
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=operation_id,
        telemetry={"auto_configure": False},  # a variable set for other programs must not start an export
    )
    app.state.service, app.state.endpoints = state, endpoints
    app.state.explorer = read_page() if explorer else None
    for endpoint in endpoints:
        _add(app, endpoint)
    infer: ASGIApp = _infer
    if settings.origins:
        app.add_middleware(Cors, origins=settings.origins)
        infer = Cors(infer, settings.origins)
    app.add_middleware(RequestMiddleware, state=state, endpoints=endpoints)
    for error in (Problem, ModelError, HTTPException):
        app.add_exception_handler(error, answer_error)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    app.inference = RequestMiddleware(infer, state, endpoints)
    return app


def _add(app: FastAPI, endpoint: Endpoint) -> None:
    """Register an endpoint with FastAPI."""
    app.add_api_route(
        endpoint.path,
        endpoint.handler,
        methods=list(endpoint.methods),
        tags=[endpoint.tag],
        summary=endpoint.summary,
        include_in_schema=endpoint.summary is not None,
        responses=dict(endpoint.responses),
        response_class=endpoint.response_class or JSONResponse,
        dependencies=[Depends(authorize)] if endpoint.guarded else [],
    )


class App(FastAPI):
    """Sends inference requests straight to their handlers, and all others through FastAPI.

    FastAPI's layers do nothing for inference requests, but would take a third of a short request's time.
    """

    inference: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["method"] == "POST" and self._is_inference(scope["path"]):
            scope["app"] = self
            await self.inference(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def _is_inference(self, path: str) -> bool:
        endpoint = self.state.endpoints.find(path, "POST")
        return endpoint is not None and endpoint.inference


async def _infer(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    endpoint = context_of(scope).endpoint
    assert endpoint is not None  # noqa: S101 - `App` sends only requests of known endpoints here
    try:
        authorize(request)
        if "{" in endpoint.path:
            scope["path_params"] = request.app.state.endpoints.parameters(scope["path"])
        response = await endpoint.handler(request)
    except (Problem, ModelError) as error:
        response = await answer_error(request, error)
    await response(scope, receive, send)


def _openapi(app: FastAPI) -> dict[str, object]:
    if app.openapi_schema is None:
        state = app.state
        app.openapi_schema = build_openapi(app, VERSION, state.endpoints, keys=state.service.keys.required)
    return app.openapi_schema


async def _supervise(state: ServiceState) -> None:
    last = time.perf_counter()
    while True:
        await asyncio.sleep(_SUPERVISION_S)
        now = time.perf_counter()
        late = now - last - _SUPERVISION_S
        try:
            state.supervise(stopped_s=late if late > _STOPPED_S else 0.0)
        except Exception:  # without supervision a hung worker would never be replaced
            log.exception("checking the workers failed")
        last = now
