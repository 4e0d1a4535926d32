"""What is known of one request when it is over: the fields of its line in the log, and of its trace."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from starlette.types import Message, Receive, Send

from service.telemetry.trace_context import TraceParent

ACCESS = "access"
"""Under this name a request's scope has its record, in `state`."""


class Stages(dict[str, float]):
    """Seconds by stage, of the stages that are done; `begun` says when, in `time.perf_counter` seconds."""

    def __init__(self, done: Mapping[str, float] | None = None) -> None:
        super().__init__(done or {})
        self.begun: dict[str, float] = {}

    def begin(self, stage: str, at: float | None = None) -> None:
        """Take down when a stage began, the first time that it does."""
        self.begun.setdefault(stage, time.perf_counter() if at is None else at)


@dataclass(slots=True)
class Access:
    """One request. Sizes are of bodies, in bytes, as they were read and handed to the connection."""

    request_id: str
    peer: str
    forwarded_for: str | None = None
    parent: TraceParent | None = None
    key: str | None = None
    model: str | None = None
    inputs: int | None = None
    tokens: int | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    stages: Stages = field(default_factory=Stages)
    trace_id: str | None = None
    span_id: str | None = None

    def __post_init__(self) -> None:
        if self.parent is not None:
            self.trace_id, self.span_id = self.parent.trace_id, self.parent.span_id


def counted(access: Access, receive: Receive, send: Send, *, bodiless: bool) -> tuple[Receive, Send]:
    """Count bytes of the bodies that pass; of an answer to HEAD the server leaves the body out."""

    async def receive_counted() -> Message:
        message = await receive()
        access.bytes_in += len(message.get("body", b""))
        return message

    async def send_counted(message: Message) -> None:
        await send(message)
        access.bytes_out += 0 if bodiless else len(message.get("body", b""))

    return receive_counted, send_counted


class Ended(NamedTuple):
    """A request that is over, for its line in the log; of what its client wrote, there are only valid ids."""

    access: Access
    route: str
    status: int
    seconds: float

    def fields(self) -> dict[str, Any]:
        """Say what is known of it, by the names that JSON has."""
        access = self.access
        known = {
            "request_id": access.request_id,
            "route": self.route,
            "status": self.status,
            "seconds": round(self.seconds, 6),
            "stages": {name: round(value, 6) for name, value in access.stages.items()},
            "model": access.model,
            "inputs": access.inputs,
            "tokens": access.tokens,
            "bytes_in": access.bytes_in,
            "bytes_out": access.bytes_out,
            "peer": access.peer,
            "forwarded_for": access.forwarded_for,
            "key": access.key,
            "trace_id": access.trace_id,
            "span_id": access.span_id,
        }
        return {name: value for name, value in known.items() if value is not None}

    def text(self) -> str:
        """Say what the message does not, as `name=value`."""
        access = self.access
        told = []
        if access.model is not None:
            told.append(f"model={access.model} inputs={access.inputs}")
        if access.tokens is not None:
            told.append(f"tokens={access.tokens}")
        told.append(f"in={access.bytes_in} out={access.bytes_out} peer={access.peer}")
        if access.forwarded_for is not None:
            told.append(f"for={access.forwarded_for}")
        if access.key is not None:
            told.append(f"key={access.key}")
        if access.trace_id is not None:
            told.append(f"trace={access.trace_id}")
        return " ".join([*told, f"id={access.request_id}"])
