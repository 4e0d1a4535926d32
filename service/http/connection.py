"""HTTP/1.1 as it is spoken with clients: malformed, slow and pipelined requests in our own form."""

import asyncio
import logging
import time
from typing import Any, cast

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.clients.slow_readers import Reader, unread
from service.http.head_meter import HeadMeter
from service.http.request_body import HOPELESS
from service.http.request_context import context_of, open_context, request_id
from service.http.request_head import check_head
from service.lifecycle import ServiceState
from service.problems import Problem
from service.telemetry.metrics import SLOW_READER, UNMATCHED

log = logging.getLogger(__name__)

# Parsed at a time, as long as no request waits behind another: one that waits has up to a hundred times its
# bytes in memory.
_PIECE_BYTES = 8 * 1024
# For so long one connection is parsed before others have their turn: a chunk of one byte takes a microsecond,
# and a quarter of a megabyte of them may be read at a time.
_TURN_S = 0.003
# What has come when an idle connection is to be closed is most often a request; it is seen within this time.
_ARRIVING_S = 0.1


class _Reading(FlowControl):
    """Reads no further while what was read waits to be parsed."""

    behind = False

    def resume_reading(self) -> None:
        if not self.behind:
            super().resume_reading()


class Protocol(HttpToolsProtocol):
    """One connection.

    What is not HTTP gets a problem document, after the answers to what came before it. A head that is too
    large or takes too long is refused, and a reader that stands still is cut off. Of requests that come
    before the last one is answered a few are parsed ahead; the others wait as the bytes they are. Headers
    behind a chunked body are left out (RFC 9110 §6.5.1). An idle connection ends in its time, whatever comes
    on it that begins no request.

    A request that offers to switch protocols (`Upgrade: h2c`, which some clients always send) is served as
    the HTTP/1.1 request it is (RFC 9110 §7.8). The parser would take what follows its head for another
    protocol, so it is replaced by one that has seen the same head without the offer.
    """

    def __init__(self, *arguments: Any, state: ServiceState, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._state = state
        self._patience_s = state.settings.request_timeout_s
        self._repeating_head = False
        self._spoken = False
        self._head = HeadMeter()
        self._unparsed = b""
        self._unwanted_bytes = 0
        self._fault: Problem | None = None  # of a head that is HTTP
        self._refusal: Problem | None = None
        self._served: Any = None  # what is being answered, while others may wait behind it
        self._head_timer: asyncio.TimerHandle | None = None
        self._next_turn: asyncio.Handle | None = None
        self._arriving = False
        self._idle_since = time.monotonic()
        self._rest_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; a connection that stays silent is closed."""
        super().connection_made(transport)
        self.flow = self._reading = _Reading(transport)
        self._reader = Reader(
            transport,
            self._state.readers,
            patience_s=self._patience_s,
            cut_off=self._cut_off,
            held_bytes=self._held_bytes,
        )
        self._head_timer = self.loop.call_later(self._patience_s, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """End: forget the timers, and drop the request that nobody waits for any more."""
        _cancel(self._head_timer)
        _cancel(self._next_turn)
        _cancel(self._rest_timer)
        self._reader.forget()
        for cycle, _ in self.pipeline:  # never begun
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
        """Go on with what was read, and read on unless much of a body waits to be taken."""
        self._reading.behind = False
        self._parse()
        cycle = self.cycle
        waits = cycle is not None and not cycle.response_complete and len(cycle.body) > HIGH_WATER_LIMIT
        if not (self._unparsed or waits):
            self.flow.resume_reading()

    def on_message_begin(self) -> None:
        """Begin a request."""
        if not self._repeating_head:
            self._head.begin()
            self._spoken = True
            self._arriving = False
            self._unset_keepalive_if_required()
            self._unwanted_bytes = 0
            _cancel(self._head_timer)
            self._head_timer = self.loop.call_later(self._patience_s, self._head_is_late)
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        if not self._repeating_head:
            self._head.target(len(url))
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, and only count one behind the body."""
        if not self._repeating_head:
            self._head.header(name, value)
            if self._head.open:
                super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start to serve the request, if its head is one that can be served."""
        if not self._repeating_head:
            self._head.end()
            _cancel(self._head_timer)
            version = self.parser.get_http_version()
            try:
                check_head(version, self.headers)
            except Problem as problem:
                self._fault = problem
                raise
            if version == "1.0":
                self.expect_100_continue = False  # RFC 9110 §10.1.1
            # Its body may be here before it is served, and counts as what its client holds.
            open_context(cast("dict[str, Any]", self.scope), self._state.peers)
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body; nobody wants more of one that is answered, and much more ends it."""
        self._head.body()
        if not self.cycle.response_complete and not self._state.memory.arrived(
            context_of(self.cycle.scope).permit, len(body)
        ):
            body = b""  # there is no room for it: who reads it refuses the request
        super().on_body(body)
        if self.cycle.response_complete:
            self._unwanted_bytes += len(body)
            if self._unwanted_bytes > HOPELESS * self._state.settings.max_body_bytes:
                self._close()

    def on_message_complete(self) -> None:
        """End the request, unless its body is still to come."""
        if not (self.parser.should_upgrade() and self._framing()):
            _cancel(self._rest_timer)
            super().on_message_complete()
            if self.cycle.response_complete and self.timeout_keep_alive_task is None:
                self._idle_again()
            if not self.pipeline:
                # A large body has paused the reading; the end of a connection is read, too.
                self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """Go on with the next request, or refuse what came after the last one that could be read."""
        answered = self._served
        super().on_response_complete()  # may begin to serve another one
        self._idle_since = time.monotonic()
        if self._head.open:
            self._unset_keepalive_if_required()  # the next request has begun
        if answered is not None and answered.more_body:
            # The rest of a body that was not waited for: the connection is not kept for its sake for ever.
            self._rest_timer = self.loop.call_later(self._patience_s, self._close)
            self._unset_keepalive_if_required()
        if self.transport.is_closing():
            self._reader.expect()
        elif self._unparsed and not self._reading.behind:
            self._parse()
        if self._refusal is not None and not self._answering():
            self._send(self._refusal)

    @property
    def idle_since(self) -> float | None:
        """When it became idle, in `time.monotonic` seconds; None while something is read or answered."""
        busy = self._head.open or bool(self._unparsed) or self.transport.is_closing()
        if busy or not (self.cycle is None or (self.cycle.response_complete and not self.cycle.more_body)):
            return None
        return self._idle_since

    def close_idle(self) -> None:
        """Close it for the sake of others; its last answer may still be on its way."""
        self._close()

    def pause_writing(self) -> None:
        """Wait for a reader, but not for ever."""
        super().pause_writing()
        self._reader.expect()

    def resume_writing(self) -> None:
        """Go on: the reader has read."""
        if not self.transport.is_closing():
            self._reader.has_read()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; its last answer may still be on its way.

        A request that has just come is served: closed now, its client would see a reset (RFC 9112 §9.6).
        """
        if not self._arriving and unread(self.transport):
            self._arriving = True
            self._idle_again(_ARRIVING_S)
            return
        super().timeout_keep_alive_handler()
        self._reader.expect()

    def _close(self) -> None:
        """Close the connection when the reader has read what is written."""
        self.transport.close()
        self._reader.expect()

    def _cut_off(self, why: str) -> None:
        """End the connection of a reader that is not waited for any longer, and count it."""
        log.info("a reader is cut off: %s", why)
        self._state.metrics.rejected.labels(SLOW_READER).inc()
        if self._served is not None and not self._served.response_complete:
            context_of(self._served.scope).cut_off = True
        self.transport.abort()

    def _held_bytes(self) -> int:
        return 0 if self._served is None else context_of(self._served.scope).permit.memory_bytes

    def _idle_again(self, seconds: float | None = None) -> None:
        """Begin the time of an idle connection."""
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
        """Repeat the headers that say how long the body is; empty when there is none."""
        framing = ((n, v) for n, v in self.headers if n in (b"content-length", b"transfer-encoding"))
        return b"".join(b"%b: %b\r\n" % pair for pair in framing)

    def _head_is_late(self) -> None:
        if self._head.open and self.pipeline:  # its end may be here already, but others come first
            self._head_timer = self.loop.call_later(self._patience_s, self._head_is_late)
        elif self._head.open:
            detail = f"The head of the request did not arrive within {self._patience_s:g} s."
            self._refuse(Problem("request-timeout", detail, members={"limit": self._patience_s}))
        elif not self._spoken:
            self.transport.close()

    def _refuse_malformed(self) -> None:
        self._refuse(self._fault or self._head.problem())

    def _refuse(self, problem: Problem) -> None:
        """Refuse what came last, after the answers to what came before."""
        log.info("a connection is refused: %s", problem.detail)
        self._refusal = problem
        if not self._answering():
            self._send(problem)

    def _answering(self) -> bool:
        """Whether a request that arrived whole still waits for its answer."""
        complete = self.cycle is not None and not self.cycle.more_body
        return bool(self.pipeline) or (complete and not self.cycle.response_complete)

    def _send(self, problem: Problem) -> None:
        """Write a problem without a request, and close."""
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
