"""create_app: wires the parts of the service together."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from service.endpoints import Endpoint
from service.explorer.page import read_page
from service.http.cors import Cors
from service.http.dispatch import dispatch
from service.http.middleware import RequestMiddleware
from service.lifecycle import VERSION, Loader, ServiceState
from service.loading import load_engines
from service.protocols.documentation import Documentation
from service.protocols.endpoints import select_endpoints
from service.protocols.openapi import build_openapi, operation_id
from service.settings import Settings
from service.sharing.connections import Siblings

log = logging.getLogger(__name__)

_SUPERVISION_S = 0.25
# If a check is this late, the whole process was suspended or starved, its computations included.
_STOPPED_S = 1.0
# Variables that are set for other programs must not start an export, nor be looked at for each request.
_NO_TELEMETRY: TelemetryConfig = {"auto_configure": False, "tracing": False, "metrics": False, "logs": False}


def create_app(
    settings: Settings,
    load: Loader = load_engines,
    *,
    wait: bool = False,
    siblings: Siblings | None = None,
) -> FastAPI:
    """Build the app. It answers at once, and loads its models in a thread.

    With `wait`, startup waits until they are loaded, and fails if they cannot be: for servers that send no
    requests until startup is over. `siblings` are the other processes of the service, if it has several.
    Raises KeyFileError and TracesError.
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

    app = FastAPI(
        title="headlight",
        version=VERSION,
        lifespan=lifespan,
        openapi_url=None,  # served by protocols/documentation.py, like its page
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
    )
    app.state.service = state
    app.state.explorer = read_page() if explorer else None
    app.state.documentation = Documentation(
        lambda: build_openapi(app, VERSION, endpoints, keys=state.keys.required)
    )
    for endpoint in endpoints:
        _describe(app, endpoint)
    # Requests go straight to the handlers of the endpoint table. FastAPI's own layers would take a third of
    # the time of a short request, and twice the time of most refusals.
    answer: ASGIApp = Cors(dispatch, settings.origins) if settings.origins else dispatch
    app.middleware_stack = RequestMiddleware(answer, state, other=app.router)
    return app


def _describe(app: FastAPI, endpoint: Endpoint) -> None:
    """Register an endpoint with FastAPI, which describes it in the OpenAPI schema."""
    for method in endpoint.methods:
        app.add_api_route(
            endpoint.path,
            endpoint.handler,
            methods=[method],
            tags=[endpoint.tag],
            summary=endpoint.summary,
            operation_id=operation_id(endpoint, method),
            include_in_schema=endpoint.summary is not None,
            responses=dict(endpoint.responses),
            response_class=endpoint.response_class or JSONResponse,
            response_model=None,
        )


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
