"""The record of a finished request: the fields of its log line and of its trace."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from opentelemetry.trace import SpanContext, format_span_id, format_trace_id


class Stages(dict[str, float]):
    """Seconds by finished stage; `begun` says when each started, in `time.perf_counter` seconds."""

    def __init__(self, done: Mapping[str, float] | None = None) -> None:
        super().__init__(done or {})
        self.begun: dict[str, float] = {}

    def begin(self, stage: str, at: float | None = None) -> None:
        """Record when a stage started; later calls for the same stage have no effect."""
        if stage not in self.begun:
            self.begun[stage] = time.perf_counter() if at is None else at


@dataclass(slots=True)
class RequestRecord:
    """One request. Sizes are of bodies, in bytes, as read from and written to the connection."""

    request_id: str
    peer: str
    forwarded_for: str | None = None
    parent: SpanContext | None = None
    key: str | None = None
    model: str | None = None
    inputs: int | None = None
    tokens: int | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    problem: str | None = None
    """The type of the error that answers it."""
    problem_field: str | None = None
    """What the error is about, as far as the service knows its name."""
    path: str | None = None
    """The path of a request without a route, escaped and cut."""
    stages: Stages = field(default_factory=Stages)
    trace_id: str | None = None
    span_id: str | None = None

    def __post_init__(self) -> None:
        if self.parent is not None:
            self.trace_id = format_trace_id(self.parent.trace_id)
            self.span_id = format_span_id(self.parent.span_id)


class Ended(NamedTuple):
    """A finished request, for its log line; its only client input is validated ids and unknown paths."""

    record: RequestRecord
    route: str
    status: int
    seconds: float

    def fields(self) -> dict[str, Any]:
        """Return its known fields by their JSON names."""
        record = self.record
        known = {
            "request_id": record.request_id,
            "route": self.route,
            "status": self.status,
            "seconds": round(self.seconds, 6),
            "problem": record.problem,
            "field": record.problem_field,
            "path": record.path,
            "stages": {name: round(value, 6) for name, value in record.stages.items()},
            "model": record.model,
            "inputs": record.inputs,
            "tokens": record.tokens,
            "bytes_in": record.bytes_in,
            "bytes_out": record.bytes_out,
            "peer": record.peer,
            "forwarded_for": record.forwarded_for,
            "key": record.key,
            "trace_id": record.trace_id,
            "span_id": record.span_id,
        }
        return {name: value for name, value in known.items() if value is not None}

    def text(self) -> str:
        """Write the fields that the message does not contain as `name=value`."""
        record = self.record
        why = (("problem", record.problem), ("field", record.problem_field), ("path", record.path))
        parts = [f"{name}={value}" for name, value in why if value is not None]
        if record.model is not None:
            parts.append(f"model={record.model} inputs={record.inputs}")
        if record.tokens is not None:
            parts.append(f"tokens={record.tokens}")
        parts.append(f"in={record.bytes_in} out={record.bytes_out} peer={record.peer}")
        if record.forwarded_for is not None:
            parts.append(f"for={record.forwarded_for}")
        if record.key is not None:
            parts.append(f"key={record.key}")
        if record.trace_id is not None:
            parts.append(f"trace={record.trace_id}")
        return " ".join([*parts, f"id={record.request_id}"])
