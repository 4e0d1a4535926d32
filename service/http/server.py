"""uvicorn with our own signal handling and drain."""

import functools
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from service.http.connection import Protocol
from service.http.open_files import OpenFiles
from service.lifecycle import VERSION, Phase, ServiceState
from service.telemetry.logs import write_at_once

log = logging.getLogger(__name__)

# `make` and process groups may deliver one signal twice; a second one within this time is ignored.
_ECHO_S = 0.5
# This long before the drain times out, the requests in flight are answered with a 503.
_CANCEL_S = 0.3


class Server(uvicorn.Server):
    """Drains on the first signal, still listening, and exits at once on the second."""

    def __init__(self, config: uvicorn.Config, state: ServiceState) -> None:
        super().__init__(config)
        self.state = state
        self._files = OpenFiles()
        self._drain_since: float | None = None
        self._signal = signal.SIGTERM
        self._announced = False
        self._cut_off = 0

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM ourselves: uvicorn would reraise them after the drain."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self.handle_exit)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Start the drain; a second signal ends the process at once.

        Takes no lock: the signal may have interrupted the code that holds it.
        """
        now = time.monotonic()
        if self._drain_since is None:
            self._drain_since = now
            self._signal = signal.Signals(sig)
            self.state.drained_by = now + self.state.settings.drain_timeout_s
            self.state.draining = True
        elif now - self._drain_since > _ECHO_S:
            name, left = signal.Signals(sig).name, self.state.in_flight
            write_at_once(log, logging.WARNING, f"{name} again: stopped at once, requests cut off: {left}")
            os._exit(128 + sig)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal or a failure, and end the process."""
        await super().serve(sockets)
        if self._drain_since is not None:
            seconds = time.monotonic() - self._drain_since
            log.info("stopped after %.1f s, requests cut off: %d", seconds, self._cut_off)
        self._end_process()

    def _end_process(self) -> None:
        """Exit without the interpreter's shutdown, which would wait for abandoned threads, or abort."""
        code = 0
        if self.state.failure is not None:
            sys.stderr.write(f"headlight: {self.state.failure}\n")
            code = self.state.exit_code
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    async def on_tick(self, counter: int) -> bool:
        """Check, ten times a second, whether loading has failed or the drain is complete."""
        if self.state.phase is Phase.FAILED:
            return True
        self._files.check(self.server_state.connections)  # type: ignore[arg-type]
        if self._drain_since is None:
            return await super().on_tick(counter)
        self._announce()
        left = self._drain_since + self.state.settings.drain_timeout_s - time.monotonic()
        if left <= _CANCEL_S:
            self._cut_off = max(self._cut_off, self.state.in_flight)
            self.state.cancel_running()
        # The remaining time is for clients that are still reading their responses.
        self.config.timeout_graceful_shutdown = max(0.1, left)  # type: ignore[assignment]
        return self.state.in_flight == 0 or left <= 0

    def _announce(self) -> None:
        """Log the start of the drain, once; not in the signal handler, which must not take a lock."""
        if not self._announced:
            self._announced = True
            log.info(
                "%s: draining for at most %g s, requests in flight: %d; new ones are refused",
                self._signal.name,
                self.state.settings.drain_timeout_s,
                self.state.in_flight,
            )


class ListenError(Exception):
    """Cannot listen on the address; the message says why and what to change."""


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket; raises ListenError."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        raise ListenError(
            f"cannot listen on {host}:{port} ({error.strerror}): choose another HEADLIGHT_HOST or "
            "HEADLIGHT_PORT."
        ) from error


def serve(app: object, state: ServiceState) -> None:
    """Serve until a signal, then end the process; raises ListenError before loading any model."""
    settings = state.settings
    listener = listen(settings.host, settings.port)
    host, port = listener.getsockname()[:2]
    log.info("headlight %s listens on http://%s:%d", VERSION, f"[{host}]" if ":" in host else host, port)
    # Our protocol class; without uvicorn's access log and server header.
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        loop="uvloop",
        http=functools.partial(Protocol, state=state),  # type: ignore[arg-type]
        ws="none",
        timeout_keep_alive=settings.keep_alive_s,  # type: ignore[arg-type]
        proxy_headers=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
    )
    Server(config, state).run(sockets=[listener])
