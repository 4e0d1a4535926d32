"""uvicorn's edges: signals, the drain, and malformed HTTP in our own form."""

import logging
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.middleware import request_id
from service.problems import MEDIA_TYPE, Problem
from service.state import VERSION, Phase, ServiceState

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 64 * 1024
"""Of a request line and its headers, together."""


class Protocol(HttpToolsProtocol):
    """HTTP/1.1, with problem documents also for what is not HTTP.

    A request that offers to switch protocols (`Upgrade: h2c`, which some clients always send) is served as
    the HTTP/1.1 request it is (RFC 9110 §7.8). The parser would take what follows its head for another
    protocol, so it is replaced by one that has seen the same head without the offer.
    """

    _repeating_head = False
    _in_head = False
    _head_bytes = 0
    _unread_head_bytes = 0

    def data_received(self, data: bytes) -> None:
        """Parse what the client sent."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if framing := self._framing():
                self.parser = httptools.HttpRequestParser(self)
                self._repeating_head = True
                self.parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n")
                self._repeating_head = False
            self.data_received(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            log.info("a connection sent what is not HTTP, or too large a head")
            too_large = f"The head of the request has more than {MAX_HEAD_BYTES} bytes."
            large = self._head_bytes > MAX_HEAD_BYTES
            self.send_400_response(too_large if large else "This is not an HTTP request.")
        else:
            # The parser calls on_header when a header is complete; one that never ends is stopped here.
            self._unread_head_bytes = self._unread_head_bytes + len(data) if self._in_head else 0
            if self._unread_head_bytes > 2 * MAX_HEAD_BYTES:
                self.transport.abort()

    def on_message_begin(self) -> None:
        """Begin a request."""
        if not self._repeating_head:
            self._head_bytes = 0
            self._in_head = True
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        if not self._repeating_head:
            self._count_head(len(url))
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        if not self._repeating_head:
            self._count_head(len(name) + len(value))
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start to serve the request."""
        if not self._repeating_head:
            self._in_head = False
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the request, unless its body is still to come."""
        if not (self.parser.should_upgrade() and self._framing()):
            super().on_message_complete()

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise ValueError("the head is too large")  # the parser makes it an HttpParserError

    def _framing(self) -> bytes:
        """Repeat the headers that say how long the body is; empty when there is none."""
        framing = ((n, v) for n, v in self.headers if n in (b"content-length", b"transfer-encoding"))
        return b"".join(b"%b: %b\r\n" % pair for pair in framing)

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
            left = self._drain_until - time.monotonic()
            # What is left of the time is for slow readers of answers that are already written.
            self.config.timeout_graceful_shutdown = max(0, left)  # type: ignore[assignment]
            return self.state.in_flight == 0 or left <= 0
        return await super().on_tick(counter)


class ListenError(Exception):
    """The address cannot be listened on; the message says why and what to change."""


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket; raises ListenError."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        raise ListenError(
            f"{host}:{port} cannot be listened on ({error.strerror}): choose another HEADLIGHT_HOST or "
            "HEADLIGHT_PORT."
        ) from error


def serve(app: object, state: ServiceState) -> None:
    """Serve until a signal; raises ListenError before anything is loaded."""
    settings = state.settings
    listener = listen(settings.host, settings.port)
    host, port = listener.getsockname()[:2]
    log.info("headlight %s listens on http://%s:%d", VERSION, f"[{host}]" if ":" in host else host, port)
    # Our protocol, no access log of its own, no server header.
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        loop="uvloop",
        http=Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
    )
    Server(config, state).run(sockets=[listener])
