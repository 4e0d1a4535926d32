"""Spans of OpenTelemetry, made when a request is over, and sent to a collector over OTLP (HTTP, protobuf)."""

import logging
import threading
import time

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    format_span_id,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from service.telemetry.request_record import RequestRecord
from service.telemetry.trace_context import TraceParent

log = logging.getLogger(__name__)

_QUIET_S = 60.0
_MAX_CHARACTERS = 300
_LIBRARY, _OF_CLIENTS = "opentelemetry", "opentelemetry.trace"


class OtlpTraces:
    """Sends a span per request, with its stages as children.

    Where to, how often and which ones is set by OpenTelemetry's own variables. Spans wait for a thread that
    sends them, at most OTEL_BSP_MAX_QUEUE_SIZE of them: while no collector takes them, the oldest go.
    """

    def __init__(self, version: str) -> None:
        """Begin; raises ValueError, RuntimeError and OSError for variables that cannot be."""
        self._troubles = _NowAndThen(logging.WARNING)
        library = logging.getLogger(_LIBRARY)
        library.addHandler(self._troubles)
        library.propagate = False
        # What the exporter sends with tells of each connection.
        logging.getLogger("urllib3").setLevel(max(logging.WARNING, logging.getLogger().level))
        self._provider = TracerProvider(resource=_resource(version), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("headlight", version)

    def record(self, request: RequestRecord, method: str, route: str, status: int, seconds: float) -> None:
        """Make the spans of a request that has just ended."""
        now, to_wall_clock = time.perf_counter(), time.time_ns() - _nanoseconds(time.perf_counter())
        span = self._tracer.start_span(
            f"{method} {route}",
            context=None if request.parent is None else set_span_in_context(_remote(request.parent)),
            kind=SpanKind.SERVER,
            attributes=_attributes(request, method, route, status),
            start_time=_nanoseconds(now - seconds) + to_wall_clock,
        )
        context = span.get_span_context()
        if context.trace_flags.sampled:
            request.trace_id, request.span_id = (
                format_trace_id(context.trace_id),
                format_span_id(context.span_id),
            )
            self._add_stages(span, request, to_wall_clock)
            if status >= 500:
                span.set_status(Status(StatusCode.ERROR))
        span.end(_nanoseconds(now) + to_wall_clock)

    def _add_stages(self, span: Span, request: RequestRecord, to_wall_clock: int) -> None:
        inside = set_span_in_context(span)
        for stage, begun in request.stages.begun.items():
            if (seconds := request.stages.get(stage)) is not None:
                start = _nanoseconds(begun) + to_wall_clock
                child = self._tracer.start_span(stage, context=inside, start_time=start)
                child.end(start + _nanoseconds(seconds))

    def close(self, seconds: float) -> None:
        """Send what waits, in so many seconds at most; what is not sent by then is lost."""
        ending = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        ending.start()
        ending.join(seconds)
        library = logging.getLogger(_LIBRARY)
        library.removeHandler(self._troubles)
        library.propagate = True


class _NowAndThen(logging.Handler):
    """Passes on what the libraries complain of, a sentence a minute: they do so at each attempt."""

    _quiet_until = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Log the first complaint of a minute; those about a client's `tracestate` repeat what it wrote."""
        now = time.monotonic()
        if now >= self._quiet_until and not record.name.startswith(_OF_CLIENTS):
            self._quiet_until = now + _QUIET_S
            told = " ".join(record.getMessage().split())[:_MAX_CHARACTERS]
            log.warning("traces may be lost, which is said once a minute at most: %s", told)


def _resource(version: str) -> Resource:
    """Say who sends: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, and defaults of ours."""
    told = Resource({"service.version": version}).merge(Resource.create())
    if str(told.attributes["service.name"]).startswith("unknown_service"):
        told = told.merge(Resource({"service.name": "headlight"}))
    return told


def _remote(parent: TraceParent) -> Span:
    """Stand for the client's span."""
    return NonRecordingSpan(
        SpanContext(
            int(parent.trace_id, 16),
            int(parent.span_id, 16),
            is_remote=True,
            trace_flags=TraceFlags(TraceFlags.SAMPLED if parent.sampled else TraceFlags.DEFAULT),
            trace_state=TraceState.from_header([parent.state]) if parent.state else None,
        )
    )


def _attributes(request: RequestRecord, method: str, route: str, status: int) -> dict[str, AttributeValue]:
    """Describe a request by the semantic conventions for HTTP, and what is ours under `headlight.`."""
    known: dict[str, str | int | None] = {
        "http.request.method": method,
        "http.route": route,
        "http.response.status_code": status,
        "url.path": route,
        "url.scheme": "http",
        "http.request.body.size": request.bytes_in,
        "http.response.body.size": request.bytes_out,
        "network.peer.address": request.peer,
        "client.address": request.forwarded_for or request.peer,
        "error.type": str(status) if status >= 500 else None,
        "headlight.request_id": request.request_id,
        "headlight.key": request.key,
        "headlight.model": request.model,
        "headlight.inputs": request.inputs,
        "headlight.input_tokens": request.tokens,
    }
    return {name: value for name, value in known.items() if value is not None}


def _nanoseconds(seconds: float) -> int:
    return round(1e9 * seconds)
