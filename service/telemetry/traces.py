"""Traces of requests, exported over OTLP if enabled; `service/telemetry/spans.py` implements it."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from service.settings import Settings

if TYPE_CHECKING:
    from service.telemetry.spans import OtlpTraces

log = logging.getLogger(__name__)

_PROTOCOL = "http/protobuf"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class TracesError(Exception):
    """Traces cannot be exported as configured; the message says why and what to change."""


def open_traces(
    settings: Settings, version: str, environment: Mapping[str, str] = os.environ
) -> "OtlpTraces | None":
    """Start exporting traces, with this service version, if enabled; raises TracesError."""
    if settings.traces == "off":
        return None
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        log.info("traces are disabled: OTEL_SDK_DISABLED is set")
        return None
    _check(environment)
    try:
        # Imported only if enabled: it takes time and memory.
        from service.telemetry.spans import OtlpTraces  # noqa: PLC0415
    except ImportError as error:
        raise TracesError(
            f"HEADLIGHT_TRACES is otlp, but {error.name or 'the exporter'} is not installed: install the "
            "extra `otel`, which is opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http."
        ) from error
    try:
        return OtlpTraces(version)
    except (ValueError, RuntimeError, ImportError, OSError) as error:
        raise TracesError(
            f"Traces cannot be exported: {error}. Check the variables that begin with OTEL_."
        ) from error


def _check(environment: Mapping[str, str]) -> None:
    """Reject settings with which every export would fail; of two variables, the first that is set counts."""
    name, value = _first(_PROTOCOLS, environment)
    if value not in ("", _PROTOCOL):
        raise TracesError(f"{name} is {value!r}: it must be {_PROTOCOL}, the only supported protocol.")
    name, value = _first(_ENDPOINTS, environment)
    if value and not value.startswith(("http://", "https://")):
        raise TracesError(f"{name} is {value!r}: it must begin with http:// or https://.")


def _first(names: Sequence[str], environment: Mapping[str, str]) -> tuple[str, str]:
    return next(((name, environment[name]) for name in names if environment.get(name)), ("", ""))
