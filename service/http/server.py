"""uvicorn with our own signal handling and drain."""

import asyncio
import functools
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from types import FrameType

import uvicorn

from service.http.connections.acceptor import Acceptor
from service.http.connections.connection import Protocol
from service.http.connections.door import Door
from service.http.connections.open_files import OpenFiles
from service.lifecycle import VERSION, Phase, ServiceState
from service.settings import Settings
from service.sharing.scoreboard import COMPLETE, CUT_OFF, HANDED_OVER, HEARTBEAT, OPENED
from service.system.signals import ending_signals
from service.telemetry.logs import write_at_once

log = logging.getLogger(__name__)

# `make` and process groups may deliver one signal twice; a second one within this time is ignored.
_ECHO_S = 0.5
_BACKLOG = 4096
# How often a process that does not listen yet looks whether it should, in seconds.
_POLL_S = 0.005
# How long a process that fails goes on answering what it can, in seconds.
_END_S = 3.0
# A client that sent a request within this time is likely to send another on the same connection.
_ACTIVE_S = 1.0
# Connections are spread every this many ticks of a tenth of a second.
_SPREAD_TICKS = 2
# This long before the drain times out, the requests in flight are answered with a 503.
_CANCEL_S = 0.3


class Server(uvicorn.Server):
    """Drains on the first signal, still listening, and exits at once on the second.

    A worker of a service with several processes listens once it is ready and the service is open, and
    exchanges connections with its siblings.
    """

    def __init__(self, config: uvicorn.Config, state: ServiceState) -> None:
        super().__init__(config)
        self.state = state
        self._acceptors: list[Acceptor] = []
        self._leaving: list[Protocol] = []
        """The connections that were last asked to move to a sibling."""
        self._files = OpenFiles()
        self._drain_since: float | None = None
        self._failed_since: float | None = None
        self._signal = signal.SIGTERM
        self._announced = False
        self._cut_off = 0

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals ourselves: uvicorn would reraise them after the drain."""
        for signum in ending_signals():
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

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Load, and listen."""
        await super().startup([])
        self.state.turns.on_turn = self._beat
        if self.state.siblings is not None and not self.state.is_placeholder:
            while self.state.phase is Phase.LOADING:
                await asyncio.sleep(_POLL_S)
            while self.state.phase is Phase.READY and not self.state.counters.common[OPENED]:
                self._beat()
                await asyncio.sleep(_POLL_S)
            if self.state.phase is not Phase.READY:  # the main loop ends the process
                return
        await self._listen(sockets or [])

    async def _listen(self, sockets: list[socket.socket]) -> None:
        self._acceptors = [Acceptor(listener, self._protocol, _BACKLOG) for listener in sockets]
        self.servers.extend(self._acceptors)  # type: ignore[arg-type]  # they end like servers
        if self.state.siblings is not None and not self.state.is_placeholder:
            asyncio.get_running_loop().add_reader(self.state.siblings.channel.exit, self._receive)

    def _protocol(self) -> Protocol:
        protocol: Protocol = self.config.http_protocol_class(  # type: ignore[call-arg, assignment]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    def _joining_protocol(self) -> Protocol:
        protocol = self._protocol()
        protocol.joins = True  # before any data arrives
        return protocol

    def _receive(self) -> None:
        """Continue the connections that siblings have passed on."""
        assert self.state.siblings is not None  # noqa: S101 - the channel is only read where there are some
        for connection in self.state.siblings.channel.receive():
            if self._acceptors:
                self._acceptors[0].serve(connection, self._joining_protocol)

    def _beat(self) -> None:
        """Tell the supervisor that the event loop makes progress."""
        self.state.counters.own[HEARTBEAT] = time.monotonic_ns()

    def _spread(self) -> None:
        """Have connections move to siblings that have fewer in use."""
        if self.state.siblings is None:
            return
        since = time.monotonic() - _ACTIVE_S
        connections: set[Protocol] = self.server_state.connections  # type: ignore[assignment]
        active = [connection for connection in connections if connection.active_since(since)]
        slots = self.state.siblings.surplus(len(active))
        for connection in self._leaving:
            connection.leave(None)
        # Those between two requests first: they can move at once.
        active.sort(key=lambda connection: connection.idle_since is None)
        self._leaving = active[: len(slots)]
        for connection, slot in zip(self._leaving, slots, strict=True):
            connection.leave(self.state.siblings.channels[slot])

    def _send_all_away(self) -> bool:
        """Have every connection move to the workers, and return whether all have."""
        assert self.state.siblings is not None  # noqa: S101 - only the first process of several is a placeholder
        connections: list[Protocol] = list(self.server_state.connections)  # type: ignore[arg-type]
        for server in self.servers:
            server.close()
        self.servers.clear()
        for i, connection in enumerate(connections):
            connection.leave(self.state.siblings.channels[i % len(self.state.siblings.channels)])
        self.state.counters.own[HANDED_OVER] = 1
        return not connections

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down: siblings send no more connections, and the supervisor stops watching the event loop."""
        self.state.turns.on_turn = lambda: None
        if self.state.siblings is not None:
            self.state.counters.own[HEARTBEAT] = 0
            if not self.state.is_placeholder:
                asyncio.get_running_loop().remove_reader(self.state.siblings.channel.exit)
            if self.config.timeout_graceful_shutdown is None:
                self.config.timeout_graceful_shutdown = _END_S  # type: ignore[assignment]
        await super().shutdown(sockets)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal or a failure, and end the process."""
        await super().serve(sockets)
        self.state.log_refusals()
        if self._drain_since is not None:
            seconds = time.monotonic() - self._drain_since
            log.log(self._level, "stopped after %.1f s, requests cut off: %d", seconds, self._cut_off)
        self._end_process()

    @property
    def _level(self) -> int:
        """The level of lines that the supervisor logs for all processes together, if there are several."""
        return logging.INFO if self.state.siblings is None else logging.DEBUG

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
            return self._has_failed()
        self._files.check(self.server_state.connections)  # type: ignore[arg-type]
        self._beat()
        if self.state.is_placeholder and self.state.counters.common[COMPLETE] and self._send_all_away():
            return True
        if counter % _SPREAD_TICKS == 0 and self._drain_since is None and not self.state.is_placeholder:
            self._spread()
        if self._drain_since is None:
            return await super().on_tick(counter)
        self._announce()
        left = self._drain_since + self.state.settings.drain_timeout_s - time.monotonic()
        if left <= _CANCEL_S:
            self._cut_off = max(self._cut_off, self.state.in_flight)
            self.state.counters.own[CUT_OFF] = self._cut_off
            self.state.cancel_running()
        # The remaining time is for clients that are still reading their responses.
        self.config.timeout_graceful_shutdown = max(0.1, left)  # type: ignore[assignment]
        return self._has_answered_all() or left <= 0

    def _has_answered_all(self) -> bool:
        """Whether no request is in flight, has arrived unread, or may come on an unaccepted connection."""
        if self.state.in_flight or any(acceptor.waiting for acceptor in self._acceptors):
            return False
        connections: set[Protocol] = self.server_state.connections  # type: ignore[assignment]
        return not any(connection.has_unread for connection in connections)

    def _has_failed(self) -> bool:
        """Answer what is left after a failure, for a short time, and return whether that has ended."""
        if self._failed_since is None:
            self._failed_since = time.monotonic()
        left = self._failed_since + _END_S - time.monotonic()
        if left <= _CANCEL_S:
            self.state.cancel_running()
        self.config.timeout_graceful_shutdown = max(0.1, left)  # type: ignore[assignment]
        return self._has_answered_all() or left <= 0

    def _announce(self) -> None:
        """Log the start of the drain, once; not in the signal handler, which must not take a lock."""
        if not self._announced:
            self._announced = True
            log.log(
                self._level,
                "%s: draining for at most %g s, requests in flight: %d; new ones are refused",
                self._signal.name,
                self.state.settings.drain_timeout_s,
                self.state.in_flight,
            )


class ListenError(Exception):
    """Cannot listen on the address; the message says why and what to change."""


def listen(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Open a listening socket for each address, all with the same port; raises ListenError.

    `::` also covers the addresses of IPv4, unless one of those is named.
    """
    listeners: list[socket.socket] = []
    for host in hosts:
        try:
            family, address = _resolve(host, port)
            others = any(_resolve(other, port)[0] == socket.AF_INET for other in hosts if other != host)
            both = address[0] == "::" and not others and socket.has_dualstack_ipv6()
            listener = socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=both)
        except OSError as error:
            for opened in listeners:
                opened.close()
            raise ListenError(
                f"cannot listen on {host}:{port} ({error.strerror}): choose another HEADLIGHT_HOST or "
                "HEADLIGHT_PORT."
            ) from error
        listeners.append(listener)
        port = listener.getsockname()[1]
    return listeners


def _resolve(host: str, port: int) -> tuple[int, tuple[str, int]]:
    """Return the family and the address of a host, for a name those of its first address; raises OSError."""
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return family, (str(address[0]), int(address[1]))


def open_listeners(settings: Settings) -> list[socket.socket]:
    """Open and announce the service's listening sockets; raises ListenError."""
    listeners = listen(settings.hosts, settings.port)
    exposed = []
    for listener in listeners:
        host, port = listener.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        log.info("headlight %s listens on %s", VERSION, address)
        if not ip_address(host.partition("%")[0]).is_loopback:
            exposed.append(address)
    if exposed and not settings.secured:
        log.warning(
            "%s: anyone who can reach this address can use the service, since no API keys are set "
            "(HEADLIGHT_API_KEYS_FILE)",
            ", ".join(exposed),
        )
    return listeners


def serve(app: object, state: ServiceState, listeners: list[socket.socket]) -> None:
    """Serve until a signal, then end the process."""
    settings = state.settings
    # Our protocol class; without uvicorn's access log and server header.
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        loop="uvloop",
        http=functools.partial(Protocol, state=state, door=Door(state)),  # type: ignore[arg-type]
        ws="none",
        timeout_keep_alive=settings.keep_alive_s,  # type: ignore[arg-type]
        proxy_headers=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
    )
    Server(config, state).run(sockets=listeners)
