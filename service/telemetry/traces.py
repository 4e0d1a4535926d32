"""Traces of requests, sent over OTLP where that is asked for; see `service/telemetry/spans.py` for how."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Protocol

from service.settings import Settings
from service.telemetry.request_record import RequestRecord

log = logging.getLogger(__name__)

_PROTOCOL = "http/protobuf"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class TracesError(Exception):
    """Traces that cannot be sent as they are asked for; the message says why and what to change."""


class Traces(Protocol):
    """Where traces go."""

    def record(self, request: RequestRecord, method: str, route: str, status: int, seconds: float) -> None:
        """Make the spans of a request that has just ended, after `seconds`; its record gets their ids."""

    def close(self, seconds: float) -> None:
        """Send what has not been sent, in so many seconds at most."""


def open_traces(
    settings: Settings, version: str, environment: Mapping[str, str] = os.environ
) -> Traces | None:
    """Begin to send traces as this version, if the settings ask for it; raises TracesError."""
    if settings.traces == "off":
        return None
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        log.info("no traces are sent: OTEL_SDK_DISABLED is set")
        return None
    _check(environment)
    try:
        # What is not asked for takes neither time nor memory.
        from service.telemetry.spans import OtlpTraces  # noqa: PLC0415
    except ImportError as error:
        raise TracesError(
            f"HEADLIGHT_TRACES is otlp, and {error.name or 'what sends them'} is not installed: install the "
            "extra `otel`, which is opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http."
        ) from error
    try:
        return OtlpTraces(version)
    except (ValueError, RuntimeError, ImportError, OSError) as error:
        raise TracesError(
            f"Traces cannot be sent: {error}. See the variables that begin with OTEL_."
        ) from error


def _check(environment: Mapping[str, str]) -> None:
    """Refuse what would fail at each attempt to send; of two variables the first that is set counts."""
    name, value = _first(_PROTOCOLS, environment)
    if value not in ("", _PROTOCOL):
        raise TracesError(f"{name} is {value!r}: it must be {_PROTOCOL}, the protocol that is spoken here.")
    name, value = _first(_ENDPOINTS, environment)
    if value and not value.startswith(("http://", "https://")):
        raise TracesError(f"{name} is {value!r}: it must begin with http:// or https://.")


def _first(names: Sequence[str], environment: Mapping[str, str]) -> tuple[str, str]:
    return next(((name, environment[name]) for name in names if environment.get(name)), ("", ""))
