"""The trace that a request belongs to, from its headers (W3C Trace Context, level 1)."""

from collections.abc import Sequence

from opentelemetry.trace import SpanContext, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR = TraceContextTextMapPropagator()


def read_traceparent(values: Sequence[bytes], states: Sequence[bytes] = ()) -> SpanContext | None:
    """Read the headers `traceparent` and `tracestate`; None unless there is exactly one valid traceparent.

    Parts of `tracestate` that are too long or not valid are left out.
    """
    if len(values) != 1 or b"\n" in values[0]:
        return None
    headers = {"traceparent": values, "tracestate": states}
    carrier = {name: [value.decode("latin-1") for value in listed] for name, listed in headers.items()}
    context = get_current_span(_PROPAGATOR.extract(carrier)).get_span_context()
    return context if context.is_valid else None
