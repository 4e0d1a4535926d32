"""Operational endpoints: liveness, readiness, information, metrics and the API's documentation."""

from http import HTTPStatus
from pathlib import Path
from typing import Literal

import fastapi_offline
from fastapi.openapi.docs import get_swagger_ui_html
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import Message, Receive, Scope, Send

from model.contract import HeadInfo, HeadKind
from service.endpoints import Endpoint
from service.lifecycle import VERSION, ServiceState
from service.problems import Problem, cut
from service.protocols.tei.info import TeiInfo, describe_first

# The page's script and style come from a package, so that it works offline.
_PAGE_FILES = Path(fastapi_offline.__file__).parent / "static"
_PAGE_PARTS = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}


class Status(BaseModel):
    """The state of the service."""

    status: Literal["alive", "ready"]


class Prediction(BaseModel):
    """What a model predicts, besides embeddings."""

    kind: HeadKind
    labels: list[str]
    activation: str


class ServedModel(BaseModel):
    """One served model."""

    name: str
    family: str
    layers: int
    heads: int
    hidden_size: int
    max_length: int
    pooling: list[str]
    normalize: bool
    sentence_size: int
    similarity: str
    prompts: dict[str, str]
    default_prompt_name: str | None
    tasks: list[str]
    default_task: str | None
    backend: str
    provider: str | None
    device: str
    dtype: str
    kernels: str | None
    attention: bool
    prediction: Prediction | None
    max_batch_tokens: int
    max_queue_tokens: int


class Limits(BaseModel):
    """The limits of a request."""

    max_inputs: int
    max_body_bytes: int
    max_response_bytes: int
    request_timeout_s: float


class NativeInfo(BaseModel):
    """The version, the models and the limits of this service."""

    version: str
    models: list[ServedModel]
    limits: Limits


class Info(TeiInfo, NativeInfo):
    """The version, the models and the limits of this service; further fields are for other protocols."""


async def root(request: Request) -> RedirectResponse:
    """Redirect the address that the log prints: browsers to the explorer, if it is there, others to /docs.

    Both are relative, for proxies that add a prefix.
    """
    browser = "text/html" in ", ".join(request.headers.getlist("accept")).lower()
    leads_to = "explorer" if browser and request.app.state.explorer is not None else "docs"
    return RedirectResponse(leads_to, headers={"Vary": "Accept"})


async def livez() -> Status:
    """Return 200 as long as the process responds."""
    return Status(status="alive")


async def readyz(request: Request) -> Status:
    """Return 200 only if every model is loaded and warmed up, and its worker alive."""
    request.app.state.service.check_ready()
    return Status(status="ready")


async def info(request: Request) -> Info:
    """Describe the version, the served models and the limits."""
    state: ServiceState = request.app.state.service
    settings = state.settings
    return Info(
        version=VERSION,
        models=[
            ServedModel(
                name=name,
                family=engine.info.family,
                layers=engine.info.layers,
                heads=engine.info.heads,
                hidden_size=engine.info.hidden_size,
                max_length=engine.info.max_length,
                pooling=list(engine.info.pooling),
                normalize=engine.info.normalize,
                sentence_size=engine.info.sentence_size,
                similarity=engine.info.similarity,
                prompts=engine.info.prompts,
                default_prompt_name=engine.info.default_prompt_name,
                tasks=list(engine.info.tasks),
                default_task=engine.info.default_task,
                backend=engine.info.backend,
                provider=engine.info.provider,
                device=engine.info.device,
                dtype=engine.info.dtype,
                kernels=engine.info.kernels,
                attention=engine.info.exposes_attention,
                prediction=_prediction(engine.info.head),
                max_batch_tokens=engine.max_batch_tokens,
                max_queue_tokens=engine.max_queue_tokens,
            )
            for name, engine in state.engines.items()
        ],
        limits=Limits(
            max_inputs=settings.max_inputs,
            max_body_bytes=settings.max_body_bytes,
            max_response_bytes=state.max_response_bytes,
            request_timeout_s=settings.request_timeout_s,
        ),
        **describe_first(state.engines, settings),
    )


def _prediction(head: HeadInfo | None) -> Prediction | None:
    if head is None:
        return None
    return Prediction(kind=head.kind, labels=list(head.labels), activation=head.activation)


async def metrics(request: Request) -> Response:
    """Expose every counter in the Prometheus text format, as of some time in the last second."""
    state: ServiceState = request.app.state.service
    fresh = "no-cache" in request.headers.get("cache-control", "").lower()

    def make() -> bytes:
        state.metrics.ready.set(int(state.ready))
        state.metrics.keys(state.keys.names)
        for name, engine in state.engines.items():
            queue_tokens, batch_tokens = engine.max_queue_tokens, engine.max_batch_tokens
            state.metrics.limits(name, queue_tokens=queue_tokens, batch_tokens=batch_tokens)
        return state.metrics.exposition()

    exposition = await state.metrics.scrapes.answer(make, fresh=fresh)
    return Response(exposition, media_type=CONTENT_TYPE_LATEST)


async def openapi(request: Request) -> JSONResponse:
    """Return the OpenAPI schema."""
    return JSONResponse(request.app.openapi())


async def docs() -> HTMLResponse:
    """Return the interactive documentation page."""
    return get_swagger_ui_html(
        openapi_url="openapi.json",
        title="headlight",
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url="data:,",
        swagger_ui_parameters={"validatorUrl": None},
    )


class _PagePart(FileResponse):
    """A file that supports range requests (RFC 9110 §14); errors are problem documents.

    The status goes out with the first bytes: Starlette gives it before it opens the file, which may fail.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held: list[Message] = []

        async def checked(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] >= 400:
                    raise _bad_range(message["status"], Headers(raw=message["headers"]))
                held.append(message)
                return
            while held:
                await send(held.pop())
            await send(message)

        await super().__call__(scope, receive, checked)


def _bad_range(status: int, headers: Headers) -> Problem:
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        available = headers["content-range"]
        return Problem(
            "range-not-satisfiable",
            f"The range is outside the file, whose Content-Range is {available}.",
            headers={"Content-Range": available},
            members={"field": "Range"},
        )
    detail = "The header Range is not a byte range: use a form like bytes=0-99, or leave it out."
    return Problem("malformed-request", detail, members={"field": "Range"})


async def docs_part(name: str) -> Response:
    """Serve the page's script and style."""
    if name not in _PAGE_PARTS:
        raise Problem("not-found", f"There is no file /docs/{cut(name)}; the page is /docs.")
    return _PagePart(_PAGE_FILES / name, media_type=_PAGE_PARTS[name])


ENDPOINTS = (
    Endpoint("/", root, ("GET", "HEAD"), statuses=(307, 405)),
    Endpoint("/livez", livez, summary="Is the process alive?"),
    Endpoint(
        "/readyz",
        readyz,
        summary="Is the service ready?",
        problems=frozenset({"not-ready"}),
        statuses=(200, 405, 503),
    ),
    Endpoint(
        "/health",
        readyz,
        summary="Is the service ready? Same as /readyz.",
        problems=frozenset({"not-ready"}),
        statuses=(200, 405, 503),
    ),
    Endpoint(
        "/info",
        info,
        summary="Version, models and limits",
        guarded=True,
        problems=frozenset({"unauthorized"}),
        statuses=(200, 401, 405),
    ),
    Endpoint(
        "/metrics",
        metrics,
        summary="Prometheus metrics",
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        response_class=Response,
    ),
    Endpoint("/openapi.json", openapi),
    Endpoint("/docs", docs),
    Endpoint("/docs/{name}", docs_part, statuses=(200, 206, 400, 405, 416)),
)
