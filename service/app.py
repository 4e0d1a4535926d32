"""create_app: wires the parts of the service together."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from model.errors import ModelError
from service.endpoints import Endpoint
from service.explorer.page import read_page
from service.http.cors import Cors
from service.http.error_responses import answer_error, wrong_method
from service.http.middleware import RequestMiddleware, authorize
from service.http.request_context import context_of
from service.http.unknown_routes import no_route
from service.lifecycle import VERSION, Loader, ServiceState
from service.loading import load_engines
from service.problems import Problem
from service.protocols.documentation import Documentation
from service.protocols.endpoints import select_endpoints
from service.protocols.openapi import build_openapi, operation_id
from service.settings import Settings
from service.sharing.connections import Siblings

log = logging.getLogger(__name__)

_SUPERVISION_S = 0.25
# If a check is this late, the whole process was suspended or starved, its computations included.
_STOPPED_S = 1.0


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
    app.state.documentation = Documentation(
        lambda: build_openapi(app, VERSION, endpoints, keys=state.keys.required)
    )
    for endpoint in endpoints:
        _describe(app, endpoint)
    answer: ASGIApp = _answer
    if settings.origins:
        answer = Cors(answer, settings.origins)
    app.answer = RequestMiddleware(answer, state, endpoints)
    return app


def _describe(app: FastAPI, endpoint: Endpoint) -> None:
    """Register an endpoint with FastAPI, which describes it in the OpenAPI schema."""
    app.add_api_route(
        endpoint.path,
        endpoint.handler,
        methods=list(endpoint.methods),
        tags=[endpoint.tag],
        summary=endpoint.summary,
        include_in_schema=endpoint.summary is not None,
        responses=dict(endpoint.responses),
        response_class=endpoint.response_class or JSONResponse,
        response_model=None,
    )


class App(FastAPI):
    """Sends requests straight to the handlers of the endpoint table; FastAPI only describes the routes.

    FastAPI's layers would take a third of the time of a short request, and twice as long as most refusals.
    """

    answer: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            scope["app"] = self
            await self.answer(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    try:
        response = await _handle(request)
    except (Problem, ModelError) as error:
        response = answer_error(request, error)
    await response(scope, receive, send)


async def _handle(request: Request) -> Response:
    """Call the handler of a request, or raise the 404, the 405 or the 401."""
    scope, endpoint = request.scope, context_of(request.scope).endpoint
    if endpoint is None:
        raise no_route(request)
    handler = endpoint.handler if scope["method"] in endpoint.methods else endpoint.other_methods
    if handler is None:
        raise wrong_method(request)
    if endpoint.guarded:
        authorize(request)
    if "{" in endpoint.path:
        scope["path_params"] = request.app.state.endpoints.parameters(scope["path"])
    return await handler(request)


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
