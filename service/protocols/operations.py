"""Operational endpoints: liveness, readiness, information and metrics."""

from dataclasses import fields, replace
from typing import Any, Literal

from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from model.contract import HeadInfo, HeadKind, ModelInfo
from service.endpoints import Endpoint
from service.lifecycle import VERSION, Phase, ServiceState
from service.protocols.contract import JSON, json_response
from service.protocols.tei.info import TeiInfo, describe_first

_ALIVE, _READY = b'{"status":"alive"}', b'{"status":"ready"}'


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
    attention_layers: list[int]
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
    token_embeddings: bool
    prediction: Prediction | None
    max_batch_tokens: int
    max_queue_tokens: int
    request_timeout_s: float
    longest_text_s: float


# The fields that are copied from `ModelInfo`, which has them under the same names.
_AS_IN_INFO = ServedModel.model_fields.keys() & {one.name for one in fields(ModelInfo)}


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


async def livez(_: Request) -> Response:
    """Return 200 as long as the process responds."""
    return Response(_ALIVE, media_type=JSON)


async def readyz(request: Request) -> Response:
    """Return 200 only if every model is loaded and warmed up."""
    request.app.state.service.check_ready()
    return Response(_READY, media_type=JSON)


async def info(request: Request) -> Response:
    """Describe the version, the served models and the limits."""
    state: ServiceState = request.app.state.service
    settings = state.settings
    found = Info(
        version=VERSION,
        models=[
            ServedModel(
                **{field: getattr(engine.info, field) for field in _AS_IN_INFO},
                name=name,
                attention=engine.info.exposes_attention,
                token_embeddings=engine.info.exposes_tokens,
                prediction=_prediction(engine.info.head),
                max_batch_tokens=engine.max_batch_tokens,
                max_queue_tokens=engine.max_queue_tokens,
                request_timeout_s=engine.timeout_s,
                longest_text_s=float(f"{engine.longest_s:.3g}"),
            )
            for name, engine in state.engines.items()
        ],
        limits=Limits(
            max_inputs=settings.max_inputs,
            max_body_bytes=settings.max_body_bytes,
            max_response_bytes=state.max_response_bytes,
            request_timeout_s=state.timeout_s,
        ),
        **describe_first(state.engines, settings),
    )
    return json_response(found)


def _prediction(head: HeadInfo | None) -> Prediction | None:
    if head is None:
        return None
    return Prediction(kind=head.kind, labels=list(head.labels), activation=head.activation)


async def metrics(request: Request) -> Response:
    """Expose every counter in the Prometheus text format, as of some time in the last second."""
    state: ServiceState = request.app.state.service
    fresh = "no-cache" in request.headers.get("cache-control", "").lower()

    def make() -> bytes:
        state.metrics.ready.set(int(state.phase is Phase.READY))
        if state.keys.required:
            state.metrics.keys(state.keys.names)
        for name, engine in state.engines.items():
            queue_tokens, batch_tokens = engine.queue_limit, engine.max_batch_tokens
            state.metrics.limits(name, queue_tokens=queue_tokens, batch_tokens=batch_tokens)
        return state.metrics.exposition()

    exposition = await state.metrics.scrapes.answer(make, fresh=fresh)
    return Response(exposition, media_type=CONTENT_TYPE_LATEST)


_STATUS: dict[int | str, dict[str, Any]] = {200: {"model": Status}}
_READYZ = Endpoint(
    "/readyz",
    readyz,
    summary="Is the service ready?",
    responses=_STATUS,
    problems=frozenset({"not-ready"}),
    statuses=(200, 405, 503),
)

ENDPOINTS = (
    Endpoint("/", root, ("GET", "HEAD"), statuses=(307, 405)),
    Endpoint("/livez", livez, summary="Is the process alive?", responses=_STATUS),
    _READYZ,
    replace(_READYZ, path="/health", summary="Is the service ready? Same as /readyz."),
    Endpoint(
        "/info",
        info,
        summary="Version, models and limits",
        responses={200: {"model": Info}},
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
)
