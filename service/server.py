"""uvicorn's edges: signals, the drain, and malformed HTTP in our own form."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.middleware import request_id
from service.problems import MEDIA_TYPE, Problem
from service.state import Phase, ServiceState


class Protocol(HttpToolsProtocol):
    """HTTP/1.1, with problem documents also for what is not HTTP."""

    def send_400_response(self, msg: str) -> None:
        """Answer what could not be parsed, and close the connection."""
        identifier = request_id(None)
        problem = Problem("malformed-request", f"{msg} Check the request line and the headers.")
        body = problem.document(instance="", request_id=identifier)
        head = (
            f"HTTP/1.1 400 Bad Request\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n"
            f"x-request-id: {identifier}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()


class Server(uvicorn.Server):
    """Drains on the first signal, still listening, and ends at once on the second."""

    def __init__(self, config: uvicorn.Config, state: ServiceState) -> None:
        super().__init__(config)
        self.state = state
        self._drain_until: float | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM ourselves: uvicorn would raise them again after the drain."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self.handle_exit)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Begin the drain; a second signal ends the process at once."""
        if self._drain_until is not None:
            os._exit(128 + sig)
        self._drain_until = time.monotonic() + self.state.settings.drain_timeout_s
        self.state.drain()

    async def on_tick(self, counter: int) -> bool:
        """Look, every tenth of a second, whether loading has failed or the drain is done."""
        if self.state.phase is Phase.FAILED:
            return True
        if self._drain_until is not None:
            return self.state.in_flight == 0 or time.monotonic() >= self._drain_until
        return await super().on_tick(counter)


def make_server(app: object, state: ServiceState) -> Server:
    """Configure uvicorn for this app: our protocol, no access log of its own, no server header."""
    settings = state.settings
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(settings.drain_timeout_s)),
    )
    return Server(config, state)
