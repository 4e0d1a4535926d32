"""OpenTelemetry spans, created when a request ends and exported over OTLP (HTTP, protobuf)."""

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
    SpanKind,
    Status,
    StatusCode,
    format_span_id,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from service.telemetry.request_record import RequestRecord

log = logging.getLogger(__name__)

_QUIET_S = 60.0
_MAX_CHARACTERS = 300
_LIBRARY = "opentelemetry"


class OtlpTraces:
    """Exports a span per request, with its stages as children.

    OpenTelemetry's own variables set the collector, the interval and the sampling. At most
    OTEL_BSP_MAX_QUEUE_SIZE spans are queued: while the collector is unreachable, the oldest are dropped.
    """

    def __init__(self, version: str) -> None:
        """Start the exporter; raises ValueError, RuntimeError and OSError for invalid variables."""
        self._warnings = _RateLimited(logging.WARNING)
        library = logging.getLogger(_LIBRARY)
        library.addHandler(self._warnings)
        library.propagate = False
        # The exporter's HTTP client logs each connection.
        logging.getLogger("urllib3").setLevel(max(logging.WARNING, logging.getLogger().level))
        self._provider = TracerProvider(resource=_resource(version), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("headlight", version)

    def record(self, request: RequestRecord, method: str, route: str, status: int, seconds: float) -> None:
        """Create the spans of a request that has just ended."""
        now, to_wall_clock = time.perf_counter(), time.time_ns() - _nanoseconds(time.perf_counter())
        span = self._tracer.start_span(
            f"{method} {route}",
            context=None if request.parent is None else set_span_in_context(NonRecordingSpan(request.parent)),
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
        """Export the queued spans within `seconds`; those not sent by then are lost."""
        ending = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        ending.start()
        ending.join(seconds)
        library = logging.getLogger(_LIBRARY)
        library.removeHandler(self._warnings)
        library.propagate = True


class _RateLimited(logging.Handler):
    """Passes on the libraries' warnings, at most one a minute: they warn at each failed attempt."""

    _quiet_until = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Log the first warning of a minute."""
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET_S
            message = " ".join(record.getMessage().split())[:_MAX_CHARACTERS]
            log.warning("traces may be lost (logged at most once a minute): %s", message)


def _resource(version: str) -> Resource:
    """Describe this service: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, with our defaults."""
    resource = Resource({"service.version": version}).merge(Resource.create())
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "headlight"}))
    return resource


def _attributes(request: RequestRecord, method: str, route: str, status: int) -> dict[str, AttributeValue]:
    """Describe a request by the semantic conventions for HTTP, and our own attributes under `headlight.`."""
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
