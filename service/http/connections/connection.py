"""The HTTP/1.1 protocol on a connection: malformed, slow and pipelined requests handled our way."""

import asyncio
import logging
import time
from typing import Any, cast

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.clients.company import FEW
from service.clients.slow_readers import Reader, unread
from service.http.connections.head_meter import HeadMeter
from service.http.connections.joined_writes import JoinedWrites
from service.http.request_body import ABANDON_FACTOR
from service.http.request_context import context_of, open_context, request_id
from service.http.connections.request_head import check_head
from service.lifecycle import ServiceState
from service.problems import Problem
from service.sharing.connections import Channel
from service.telemetry.metrics import SLOW_READER, UNMATCHED

log = logging.getLogger(__name__)

# Bytes parsed at a time while no pipelined request waits: a parsed request that waits takes up to a hundred
# times its bytes in memory.
_PIECE_BYTES = 8 * 1024
# How long one connection is parsed before others get a turn: a one-byte chunk takes two microseconds, so a
# piece of them takes this long, and a quarter of a megabyte may be read at a time.
_TURN_S = 0.0015
# Bytes that arrive when an idle connection is about to be closed are usually a request; it is parsed within
# this time.
_ARRIVING_S = 0.1


class _Reading(FlowControl):
    """Does not resume reading while received bytes wait to be parsed."""

    behind = False

    def resume_reading(self) -> None:
        if not self.behind:
            super().resume_reading()


class Protocol(HttpToolsProtocol):
    """One connection.

    Malformed HTTP is answered with a problem document, after the responses to earlier requests. A head that
    is too large or too slow is refused, and a stalled reader is cut off. Of pipelined requests a few are
    parsed ahead; the others stay unparsed bytes. Trailers after a chunked body are discarded (RFC 9110
    §6.5.1). An idle connection is closed after the keep-alive time, whatever arrives that does not begin a
    request.

    A request that offers to switch protocols (`Upgrade: h2c`, which some clients always send) is served as
    an ordinary HTTP/1.1 request (RFC 9110 §7.8). The parser would treat the bytes after its head as another
    protocol, so it is replaced by one that has been fed the same head without the offer.
    """

    def __init__(self, *arguments: Any, state: ServiceState, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._state = state
        self._patience_s = state.settings.request_timeout_s
        self._repeating_head = False
        self._used = False
        self._head = HeadMeter()
        self._unparsed = b""
        self._unwanted_bytes = 0
        self._head_problem: Problem | None = None  # of a head that is well-formed HTTP
        self._refusal: Problem | None = None
        self._served: Any = None  # the request being answered; pipelined ones may wait behind it
        self._head_timer: asyncio.TimerHandle | None = None
        self._next_turn: asyncio.Handle | None = None
        self._arriving = False
        self._idle_since = time.monotonic()
        self._rest_timer: asyncio.TimerHandle | None = None
        self._leaves_to: Channel | None = None
        self.joins = False
        """Whether another process has answered requests on it before."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Set up; a connection on which no request arrives is closed."""
        super().connection_made(transport)
        self.flow = self._reading = _Reading(transport)
        self._writes = JoinedWrites(transport)
        self._reader = Reader(
            transport,
            self._state.readers,
            patience_s=self._patience_s,
            cut_off=self._cut_off,
            held_bytes=self._held_bytes,
        )
        if self.joins:
            self._used = True
            self._idle_again()
        else:
            self._head_timer = self.loop.call_later(self._patience_s, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up: cancel the timers and the request in flight, whose client is gone."""
        _cancel(self._head_timer)
        _cancel(self._next_turn)
        _cancel(self._rest_timer)
        self._reader.forget()
        for cycle, _ in self.pipeline:  # never started
            self._state.memory.release(context_of(cycle.scope).permit)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._served is not None and not self._served.response_complete:
            self._served.disconnected = True
            self._served.message_event.set()
            context = context_of(self._served.scope)
            if context.task is not None:
                context.gone = True
                context.task.cancel()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._served = cycle
        cycle.transport = self._writes
        self._writes.begin()
        self._reader.begin()
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        """Parse what the client sent."""
        if self._refusal is None:
            self._unparsed += data
            if not self._reading.behind:
                self._parse()

    def _parse(self) -> None:
        until = time.perf_counter() + _TURN_S
        while self._unparsed and not self.pipeline:
            piece, self._unparsed = self._unparsed[:_PIECE_BYTES], self._unparsed[_PIECE_BYTES:]
            self._head.feed()
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserUpgrade as upgrade:
                self._forget_upgrade()
                self._unparsed = piece[upgrade.args[0] :] + self._unparsed
            except httptools.HttpParserError:
                self._unparsed = b""
                self._refuse_malformed()
                return
            else:
                if self._head.endless(len(piece)):
                    self.transport.abort()
            if self.transport.is_closing():
                return
            if self._unparsed and not self.pipeline and time.perf_counter() > until:
                self.flow.pause_reading()
                self._reading.behind = True
                self._next_turn = self.loop.call_soon(self._parse_on)
                return
        if self._unparsed:
            self.flow.pause_reading()

    def _parse_on(self) -> None:
        """Continue parsing, then resume reading unless too much of a body is still buffered."""
        self._reading.behind = False
        self._parse()
        cycle = self.cycle
        full = cycle is not None and not cycle.response_complete and len(cycle.body) > HIGH_WATER_LIMIT
        if not (self._unparsed or full):
            self.flow.resume_reading()

    def on_message_begin(self) -> None:
        """Begin a request."""
        if not self._repeating_head:
            self._head.begin()
            self._used = True
            self._arriving = False
            self._unset_keepalive_if_required()
            self._unwanted_bytes = 0
            _cancel(self._head_timer)
            self._head_timer = self.loop.call_later(self._patience_s, self._head_is_late)
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Add a part of the request target."""
        if not self._repeating_head:
            self._head.target(len(url))
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; a trailer after the body is only counted."""
        if not self._repeating_head:
            self._head.header(name, value)
            if self._head.open:
                super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start serving the request if its head is acceptable."""
        if not self._repeating_head:
            self._head.end()
            _cancel(self._head_timer)
            version = self.parser.get_http_version()
            try:
                check_head(version, self.headers)
            except Problem as problem:
                self._head_problem = problem
                raise
            if version == "1.0":
                self.expect_100_continue = False  # RFC 9110 §10.1.1
            # The body may arrive before the request is served, and is charged to its client from here on.
            context = open_context(cast("dict[str, Any]", self.scope), self._state.peers)
            in_use = self._state.company.note(self)
            context.permit.alone, context.permit.among_few = in_use == 1, in_use <= FEW
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Add a part of a body; after the response it is discarded, and too much closes the connection."""
        self._head.body()
        if not self.cycle.response_complete and not self._state.memory.arrived(
            context_of(self.cycle.scope).permit, len(body)
        ):
            body = b""  # no memory for it: the request is refused when its body is read
        super().on_body(body)
        if self.cycle.response_complete:
            self._unwanted_bytes += len(body)
            if self._unwanted_bytes > ABANDON_FACTOR * self._state.settings.max_body_bytes:
                self._close()

    def on_message_complete(self) -> None:
        """End the request, unless its body is still to come."""
        if not (self.parser.should_upgrade() and self._framing()):
            _cancel(self._rest_timer)
            super().on_message_complete()
            if self.cycle.response_complete and self.timeout_keep_alive_task is None:
                self._idle_again()
            if not self.pipeline:
                # A large body has paused reading; resume it, also to notice that the client disconnects.
                self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """Continue with the next request, or send the pending refusal."""
        answered = self._served
        self._writes.flush()  # the head of a response without a body
        super().on_response_complete()  # may start serving another request
        self._idle_since = time.monotonic()
        if self._head.open:
            self._unset_keepalive_if_required()  # the next request has started
        if answered is not None and answered.more_body:
            # The rest of the body is still arriving: the connection is not kept open for it indefinitely.
            self._rest_timer = self.loop.call_later(self._patience_s, self._close)
            self._unset_keepalive_if_required()
        if self.transport.is_closing():
            self._reader.expect()
        elif self._unparsed and not self._reading.behind:
            self._parse()
        if self._refusal is not None and not self._answering():
            self._send(self._refusal)
        elif self._leaves_to is not None:
            self.leave(self._leaves_to)

    def leave(self, channel: Channel | None) -> None:
        """Have another process serve the next request; None stays here after all.

        Between two requests it leaves at once, otherwise after the response.
        """
        self._leaves_to = channel
        if channel is None or self._state.draining or self.idle_since is None or self._refusal is not None:
            return
        self.transport.pause_reading()  # what arrives from here on is for the other process
        if not self.transport.get_write_buffer_size() and channel.send(
            self.transport.get_extra_info("socket")
        ):
            self.transport.abort()  # closes our file descriptor, not the connection
        else:
            self.transport.resume_reading()

    def active_since(self, moment: float) -> bool:
        """Whether a request is being served, or was after a moment in `time.monotonic` seconds."""
        return (self._used and self._idle_since > moment) or self.idle_since is None

    @property
    def idle_since(self) -> float | None:
        """When it became idle, in `time.monotonic` seconds; None while a request is read or answered."""
        busy = self._head.open or bool(self._unparsed) or self.transport.is_closing()
        if busy or not (self.cycle is None or (self.cycle.response_complete and not self.cycle.more_body)):
            return None
        return self._idle_since

    def close_idle(self) -> None:
        """Close it to make room for others; its last response may still be in transit."""
        self._close()

    def pause_writing(self) -> None:
        """Wait for the reader, but not indefinitely."""
        super().pause_writing()
        self._reader.expect()

    def resume_writing(self) -> None:
        """Continue: the reader has caught up."""
        if not self.transport.is_closing():
            self._reader.has_read()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; its last response may still be in transit.

        A request that has just arrived is served: its client would see a reset otherwise (RFC 9112 §9.6).
        """
        if not self._arriving and unread(self.transport):
            self._arriving = True
            self._idle_again(_ARRIVING_S)
            return
        super().timeout_keep_alive_handler()
        self._reader.expect()

    def _close(self) -> None:
        """Close the connection once the reader has read everything written."""
        self.transport.close()
        self._reader.expect()

    def _cut_off(self, why: str) -> None:
        """Abort the connection of a slow reader, and count it."""
        log.info("slow reader cut off: %s", why)
        self._state.metrics.rejected.labels(SLOW_READER).inc()
        if self._served is not None and not self._served.response_complete:
            context_of(self._served.scope).cut_off = True
        self.transport.abort()

    def _held_bytes(self) -> int:
        return 0 if self._served is None else context_of(self._served.scope).permit.memory_bytes

    def _idle_again(self, seconds: float | None = None) -> None:
        """Start the keep-alive timer."""
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive if seconds is None else seconds, self.timeout_keep_alive_handler
        )

    def _forget_upgrade(self) -> None:
        if framing := self._framing():
            self.parser = httptools.HttpRequestParser(self)
            self._repeating_head = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n")
            self._repeating_head = False

    def _framing(self) -> bytes:
        """Repeat the headers that give the length of the body; empty if there are none."""
        framing = ((n, v) for n, v in self.headers if n in (b"content-length", b"transfer-encoding"))
        return b"".join(b"%b: %b\r\n" % pair for pair in framing)

    def _head_is_late(self) -> None:
        if self._head.open and self.pipeline:  # its end may have arrived, behind pipelined requests
            self._head_timer = self.loop.call_later(self._patience_s, self._head_is_late)
        elif self._head.open:
            detail = f"The head of the request did not arrive within {self._patience_s:g} s."
            self._refuse(Problem("request-timeout", detail, members={"limit": self._patience_s}))
        elif not self._used:
            self.transport.close()

    def _refuse_malformed(self) -> None:
        self._refuse(self._head_problem or self._head.problem())

    def _refuse(self, problem: Problem) -> None:
        """Refuse the latest request, after the responses to earlier ones."""
        log.info("connection refused: %s", problem.detail)
        self._refusal = problem
        if not self._answering():
            self._send(problem)

    def _answering(self) -> bool:
        """Whether a complete request still waits for its response."""
        complete = self.cycle is not None and not self.cycle.more_body
        return bool(self.pipeline) or (complete and not self.cycle.response_complete)

    def _send(self, problem: Problem) -> None:
        """Write a problem outside of any request, and close."""
        if self.transport.is_closing():
            return
        identifier = request_id(None)
        response = problem.response("", identifier)
        headers = [*response.raw_headers, (b"x-request-id", identifier.encode()), (b"connection", b"close")]
        head = b"".join(b"%b: %b\r\n" % header for header in headers)
        status = f"HTTP/1.1 {int(problem.status)} {problem.status.phrase}\r\n".encode("ascii")
        self.transport.write(status + head + b"\r\n" + bytes(response.body))
        self._close()
        self._state.metrics.request(UNMATCHED, int(problem.status), 0.0)


def _cancel(timer: asyncio.Handle | None) -> None:
    if timer is not None:
        timer.cancel()
