"""Reads the requests on a connection, in turns that all connections share."""

import asyncio
import math
import time
from abc import abstractmethod
from collections import deque
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.clients.turns import TURN_S
from service.http.connections.cycle import Cycle
from service.http.connections.head_meter import HeadMeter
from service.http.connections.request_head import check_head
from service.lifecycle import ServiceState
from service.problems import Problem

# Bytes parsed at a time while no pipelined request waits: a parsed request that waits takes up to a hundred
# times its bytes in memory.
_PIECE_BYTES = 8 * 1024
# The most bytes held by one connection that waits for its turn, and by all of them together; beyond the
# latter, bytes are parsed without a turn, so that their memory is charged.
_HELD_BYTES, _HELD_BY_ALL = 64 * 1024, 32 * 2**20
# Requests that begin like this are served first: their clients wait one second for an answer. A connection
# may have one such request in _PROBE_S seconds; only a flood has more, which wait their turn like any other.
_PROBE_S = 0.1
_PROBES = (b"GET /livez", b"GET /readyz", b"GET /health", b"HEAD /livez", b"HEAD /readyz", b"HEAD /health")


class Reading(FlowControl):
    """Flow control that keeps reading paused while received bytes wait to be parsed."""

    behind = False

    def resume_reading(self) -> None:
        """Resume reading, unless bytes wait to be parsed."""
        if self.read_paused and not self.behind:
            super().resume_reading()


class Parsing(HttpToolsProtocol):
    """The part of a connection that reads requests; what is done with them is left to a subclass.

    A few pipelined requests are parsed ahead; the others stay unparsed bytes. Trailers after a chunked body
    are discarded (RFC 9110 §6.5.1).

    A request that offers to switch protocols (`Upgrade: h2c`, which some clients always send) is served as
    an ordinary HTTP/1.1 request (RFC 9110 §7.8). The parser would treat the bytes after its head as another
    protocol, so it is replaced by one that has been fed the same head without the offer.
    """

    cycle: Cycle
    pipeline: "deque[tuple[Cycle, Any]]"  # type: ignore[assignment]

    def __init__(self, *arguments: Any, state: ServiceState, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._state = state
        self._turns = state.turns
        self._source = self._client = ""
        """The clients charged for reading the next head, and the body that follows the last head read."""
        self._reading: Reading
        self._head = HeadMeter()
        self._message_open = False
        """Whether a request has begun to arrive, but has not arrived completely."""
        self._unparsed = b""
        self._head_problem: Problem | None = None  # why a well-formed head is refused
        self._repeating_head = False
        self._probes = False
        """Whether the next request is a health probe that goes first."""
        self._probed = -math.inf
        """When the last such probe came, in `time.monotonic` seconds."""
        self._waits_since: float | None = None
        """Since when the connection has waited for a turn, in `time.monotonic` seconds, if it does."""
        self._waited_s = 0.0
        """How long the request being read has waited for turns, in seconds."""
        self._held = 0

    @property
    def idle(self) -> bool:
        """Whether no request is being read or answered."""
        if self._message_open or self._unparsed or self.pipeline or self.transport.is_closing():
            return False
        return self.cycle is None or self.cycle.response_complete

    @property
    def _charged(self) -> str:
        """The client charged for reading what arrives next."""
        return self._client if self._message_open and not self._head.open else self._source

    @abstractmethod
    def _refuse(self, problem: Problem) -> None:
        """Refuse the latest request, after the responses to earlier ones."""

    def data_received(self, data: bytes) -> None:
        """Read what the client sent, as soon as it has a turn."""
        turns, probes = self._turns, data.startswith(_PROBES) and self.idle and self._may_probe()
        self._unparsed += data
        if self._waits_since is not None:
            self._hold(len(data))
            if turns.held_bytes > _HELD_BY_ALL:
                self._read()
        elif probes:
            self._probes = True
            self._hold(len(data))
            turns.probe(self._source, self._read)
        elif turns.held_bytes + len(data) > _HELD_BY_ALL or self.pipeline:
            self._parse()
        elif turns.read(self._charged, self._read):
            return
        else:
            self._hold(len(data))
        self._note_unanswered()

    def _may_probe(self) -> bool:
        """Whether the last probe that went first was long enough ago; notes this one if so."""
        now = time.monotonic()
        if now - self._probed < _PROBE_S:
            return False
        self._probed = now
        return True

    @abstractmethod
    def _note_unanswered(self) -> None:
        """Note whether a request waits for its response."""

    def _hold(self, size: int) -> None:
        """Hold `size` more bytes until the connection has a turn."""
        if self._waits_since is None:
            self._waits_since = time.monotonic()
        self._held += size
        self._turns.held_bytes += size
        self._reading.behind = True
        if len(self._unparsed) > _HELD_BYTES:
            self.flow.pause_reading()

    def _read(self) -> None:
        """Parse what has arrived, and stop waiting for a turn."""
        if self._waits_since is not None:
            self._waited_s += time.monotonic() - self._waits_since
            self._waits_since = None
            self._turns.held_bytes -= self._held
            self._held = 0
            self._reading.behind = False
        if not self.transport.is_closing():
            self._parse()
            self._note_unanswered()

    def _parse(self) -> None:
        until = time.perf_counter() + TURN_S
        while self._unparsed and not self.pipeline:
            piece, self._unparsed = self._unparsed[:_PIECE_BYTES], self._unparsed[_PIECE_BYTES:]
            self._head.reported = False
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserUpgrade as upgrade:
                self._forget_upgrade()
                self._unparsed = piece[upgrade.args[0] :] + self._unparsed
            except httptools.HttpParserError:
                self._unparsed = b""
                self._refuse(self._head_problem or self._head.problem())
                return
            else:
                if self._head.endless(len(piece)):
                    self.transport.abort()
            if self.transport.is_closing():
                return
            if self._unparsed and not self.pipeline and time.perf_counter() > until:
                self._wait_again()
                return
        self._resume_unless_full()

    def _wait_again(self) -> None:
        """Leave the remaining bytes to another turn: a one-byte chunk takes two microseconds to parse."""
        self._hold(len(self._unparsed))
        self._turns.read(self._charged, self._read, later=True)

    def _resume_unless_full(self) -> None:
        """Go on reading, unless pipelined requests wait or much of a body is buffered and more is to come.

        Reading also goes on after the whole body, to notice that the client disconnects.
        """
        cycle = self.cycle if self._message_open else None
        full = cycle is not None and not cycle.response_complete and len(cycle.body) > HIGH_WATER_LIMIT
        if self._unparsed or self.pipeline or full:
            self.flow.pause_reading()
        elif self.flow.read_paused:
            self.flow.resume_reading()

    def on_message_begin(self) -> None:
        """Begin a request."""
        if not self._repeating_head:
            self._head.begin()
            self._message_open = True
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Add a part of the request target."""
        if not self._repeating_head:
            self._head.target(len(url))
            self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; a trailer after the body is only counted."""
        if self._repeating_head:
            return
        self._head.header(name, value)
        if self._head.open:
            name = name.lower()
            self.headers.append((name, value))
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True

    def on_headers_complete(self) -> None:
        """Check the head, and begin the request if it is acceptable."""
        if self._repeating_head:
            return
        self._head.open = False
        version = self.parser.get_http_version()
        try:
            check_head(version, self.headers)
        except Problem as problem:
            self._head_problem = problem
            raise
        if version == "1.0":
            self.expect_100_continue = False  # RFC 9110 §10.1.1
        self._head_complete(self.scope)  # type: ignore[arg-type]

    @abstractmethod
    def _head_complete(self, scope: dict[str, Any]) -> None:
        """Serve or refuse a request whose head is complete; call `_accept_head` to serve it."""

    def _accept_head(self) -> None:
        """Create the request from its head, and start it unless others come before it."""
        scope, url, before = self.scope, httptools.parse_url(self.url), self.cycle
        path, version = url.path.decode("ascii"), self.parser.get_http_version()
        scope["method"], scope["http_version"] = self.parser.get_method().decode("ascii"), version
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"], scope["query_string"] = url.path, url.query or b""
        self.cycle = Cycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_message_complete(self) -> None:
        """End the request, unless its body is still to come."""
        if not (self.parser.should_upgrade() and self._framing()):
            self._message_open = False
            super().on_message_complete()
            self._message_complete()

    @abstractmethod
    def _message_complete(self) -> None:
        """Go on, since the request has arrived completely."""

    def _forget_upgrade(self) -> None:
        if framing := self._framing():
            self.parser = httptools.HttpRequestParser(self)
            self._repeating_head = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n")
            self._repeating_head = False

    def _framing(self) -> bytes:
        """Return the lines of the headers that give the length of the body; empty if there are none."""
        framing = ((n, v) for n, v in self.headers if n in (b"content-length", b"transfer-encoding"))
        return b"".join(b"%b: %b\r\n" % pair for pair in framing)
