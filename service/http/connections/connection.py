"""One connection: which of its requests are served, and how long it stays open."""

import asyncio
import logging
import time
from functools import partial
from typing import Any

from service.clients.addresses import client_of, peer_address
from service.clients.recent_connections import FEW
from service.clients.slow_readers import Reader, unread
from service.http.connections.door import REFUSAL_S, Answered, Door, Refused
from service.http.connections.parsing import Parsing, Reading
from service.http.connections.response_head import header_lines, response_head
from service.http.request_body import ABANDON_FACTOR
from service.http.request_context import RequestContext, open_context, request_id
from service.lifecycle import ServiceState
from service.problems import Problem
from service.refusals import Told, told_after
from service.sharing.connections import Channel
from service.telemetry.metrics import CLIENT_GONE, SLOW_READER, UNMATCHED

log = logging.getLogger(__name__)

# Bytes that arrive when an idle connection is about to be closed are usually a request; it is parsed within
# this time, in seconds.
_ARRIVING_S = 0.1
# A request that waits longer than this, in seconds, must be admitted again: the queue may have filled up.
_ADMITTED_S = 0.005
_CLOSE = b"connection: close\r\n"


class Protocol(Parsing):
    """One connection.

    Malformed HTTP is answered with a problem document, after the responses to earlier requests. A head that
    is too large or too slow is refused, and a stalled reader is cut off. An idle connection is closed after
    the keep-alive time, even if bytes arrive that begin no request.
    """

    def __init__(self, *arguments: Any, state: ServiceState, door: Door, **options: Any) -> None:
        super().__init__(*arguments, state=state, **options)
        self._door = door
        self._patience_s = state.settings.patience_s
        self._used = self._unanswered = False
        self._unwanted_bytes, self._arriving = 0, False
        self._refusal: Problem | None = None
        self._told: Told | None = None
        self._served: Any = None  # the request being answered; pipelined ones may wait behind it
        self._discards = False
        """Whether the request being read was refused on arrival, so that its body is discarded."""
        self._closing = False
        """Whether to close the connection once the request being read has arrived completely."""
        self._head_timer: asyncio.TimerHandle | None = None
        self._idle_since = time.monotonic()
        self._rest_timer: asyncio.TimerHandle | None = None
        self._keep_alive_timer: asyncio.TimerHandle | None = None
        self._leaves_to: Channel | None = None
        self.joins = False
        """Whether another process answered requests on this connection before."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Set up the connection, which is closed if no request arrives on it."""
        super().connection_made(transport)
        self.flow = self._reading = Reading(transport)
        self._client = client_of(peer_address({"client": self.client}))
        self._source = self._state.charged_for_reading(self._client)
        self._reader = Reader(
            transport,
            self._state.readers,
            patience_s=self._patience_s,
            cut_off=self._cut_off,
            held_bytes=self._held_bytes,
        )
        if self.joins:
            self._used = True
            self._keep_alive()
        else:
            self._head_timer = self.loop.call_later(self._patience_s, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up: cancel the timers and the request in flight, whose client is gone."""
        for timer in (self._head_timer, self._rest_timer, self._keep_alive_timer):
            if timer is not None:
                timer.cancel()
        self._reader.forget()
        if self._told is not None:
            self._state.absent.remember(self._told)
        for cycle, _ in self.pipeline:  # never started
            self._state.memory.release(cycle.context.permit)
        self.pipeline.clear()
        read = exc is None and self._written()
        super().connection_lost(exc)
        if self._served is not None and not self._served.response_complete:
            self._served.disconnected = True
            self._served.message_event.set()
            context = self._served.context
            context.gone = not read
            if context.task is not None:
                context.task.cancel()
        self._note_unanswered()

    def data_received(self, data: bytes) -> None:
        """Read what the client sent, unless it is refused."""
        if self._refusal is None:
            super().data_received(data)

    def _parse(self) -> None:
        super()._parse()
        if self._message_open:
            if self._head.open and self._head_timer is None:
                self._head_timer = self.loop.call_later(self._patience_s, self._head_is_late)
            elif self._discards and self._rest_timer is None:
                self._rest_timer = self.loop.call_later(self._patience_s, self.close)

    def on_message_begin(self) -> None:
        """Begin a request."""
        if not self._repeating_head:
            self._used = True
            self._arriving = self._discards = False
            self._unwanted_bytes = 0
            self._end_head_timer()
        super().on_message_begin()

    def _head_complete(self, scope: dict[str, Any]) -> None:
        self._end_head_timer()
        state, context, known = self._state, None, True
        verdict: Refused | bool = False
        told: Told | None = None
        if self._source != self._client:
            context = open_context(scope, state)
            known = context.identify()
            self._client = context.permit.client
            # Which client sends the next head is not known yet; mostly it is the same one.
            self._source = state.charged_for_reading(self._client)
        state.presence.note(self._client)
        # A client that does not read is refused by the app instead, which waits for it to read.
        asks = known and self.parser.get_method() == b"POST"
        if asks and not (self._owes_response or self.flow.write_paused):
            told = self._told if self.cycle else state.absent.claim(self._client)  # on a closed connection
            if told is not None and told.client != self._client:
                told = None
            verdict = self._door.refuse(self.url, self.headers, self._client, told)
            if isinstance(verdict, Refused):
                if context is not None and context.key is not None:
                    state.metrics.key_used(context.key)
                self._refuse_on_arrival(verdict)
                return
            self._told = None
        # The body may arrive before the request is served, and is charged to its client from here on.
        context = context or open_context(scope, state)
        context.waited_s, self._waited_s = self._waited_s, 0.0
        in_use, permit = state.recent_connections.note(self), context.permit
        permit.only_connection, permit.few_connections = in_use == 1, in_use <= FEW
        permit.admitted = verdict is True
        if told is not None:
            self._told = told.admitted(permit, time.monotonic())
        self._accept_head()

    @property
    def _owes_response(self) -> bool:
        """Whether an earlier request still waits for its response."""
        return bool(self.pipeline) or not (self.cycle is None or self.cycle.response_complete)

    def _refuse_on_arrival(self, refused: Refused) -> None:
        """Answer a request with its refusal, and have its body discarded."""
        self._told = refused.told
        self.cycle, self._discards = Answered, True  # type: ignore[assignment]
        keeps = self.parser.should_keep_alive() and self.parser.get_http_version() != "1.0"
        further = header_lines(self.server_state.default_headers)
        says_so = _CLOSE in refused.head
        self._closing = says_so or not keeps
        further += _CLOSE if self._closing and not says_so else b""
        self.transport.write(b"".join((refused.head, further, b"\r\n", refused.body)))
        self._turns.rest(self._client, REFUSAL_S)
        self._state.metrics.request(refused.route, refused.status, 0.0)
        self._idle_since = time.monotonic()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._served = cycle
        self._reader.begin()
        context = cycle.context
        begin = partial(self._begin, cycle, app, context, time.monotonic())
        if self._probes:
            self._probes = False
            begin()
        else:
            self._turns.begin(context.permit.client, begin)

    def _begin(self, cycle: Any, app: Any, context: RequestContext, since: float) -> None:
        """Serve a request in a task of its own, now that its client has a turn."""
        waited_s = time.monotonic() - since
        context.waited_s += waited_s
        context.permit.admitted &= waited_s <= _ADMITTED_S
        if cycle.disconnected:  # the client has gone meanwhile
            self._state.memory.release(context.permit)
            endpoint, _ = self._state.endpoints.find(cycle.scope["path"], cycle.scope["method"])
            self._state.metrics.request(UNMATCHED if endpoint is None else endpoint.label, CLIENT_GONE, 0.0)
            return
        work = self._turns.timed(context.permit, cycle.run_asgi(app))
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def on_body(self, body: bytes) -> None:
        """Add a part of a body; after the response, discard it, and close the connection at too much."""
        self._head.reported = True
        if not self.cycle.response_complete and not self._state.memory.arrived(
            self.cycle.context.permit, len(body)
        ):
            body = b""  # no memory for it: the request is refused when its body is read
        super().on_body(body)
        if self.cycle.response_complete:
            self._unwanted_bytes += len(body)
            if self._unwanted_bytes > ABANDON_FACTOR * self._state.settings.max_body_bytes:
                self.close()

    def _message_complete(self) -> None:
        if self._rest_timer is not None:
            self._rest_timer.cancel()
            self._rest_timer = None
        self._waited_s = 0.0
        if self._closing:
            self.close()
        elif not self.cycle.response_complete:
            self.cycle.context.arrived = True
        else:
            self._keep_alive()
            if self._leaves_to is not None:
                self.leave(self._leaves_to)
        if self.flow.read_paused and not self.pipeline:
            # A large body has paused reading; resume it, also to notice that the client disconnects.
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """Continue with the next request, or send the pending refusal."""
        self.server_state.total_requests += 1
        self._idle_since = time.monotonic()
        permit = self._served.context.permit
        self._told = told_after(permit, self._told, self._idle_since)
        if self.transport.is_closing():
            self._reader.expect()
        elif self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._message_open and not self._head.open and self._served is self.cycle:
            # The rest of the body is still arriving: the connection is not kept open for it indefinitely.
            self._rest_timer = self.loop.call_later(self._patience_s, self.close)
        else:
            self._keep_alive()
        if not self.transport.is_closing() and self._waits_since is None:
            if self._unparsed:
                self._parse()
            self._resume_unless_full()
        if self._refusal is not None and not self._answering():
            self._send(self._refusal)
        elif self._leaves_to is not None:
            self.leave(self._leaves_to)
        self._note_unanswered()

    def _note_unanswered(self) -> None:
        unanswered = not self.transport.is_closing() and (
            self._waits_since is not None or self._owes_response
        )
        if unanswered != self._unanswered:
            self._unanswered = unanswered
            self._state.count_unanswered(1 if unanswered else -1)

    def leave(self, channel: Channel | None) -> None:
        """Have another process serve the next request; with None the connection stays here after all.

        Between two requests it leaves at once, otherwise after the response. It stays while its client waits
        as it was told to, which only this process knows about.
        """
        self._leaves_to = channel
        waits = self._told is not None and not self._told.over(time.monotonic())
        stays = self._state.draining or not self.idle or self._refusal is not None or waits
        if channel is None or stays:
            return
        self.transport.pause_reading()  # what arrives from here on is for the other process
        if not self.transport.get_write_buffer_size() and channel.send(
            self.transport.get_extra_info("socket")
        ):
            self.transport.abort()  # closes our file descriptor, not the connection
        else:
            self.transport.resume_reading()

    def active_since(self, moment: float) -> bool:
        """Whether a request is being served, or has been since `moment`, in `time.monotonic` seconds."""
        return (self._used and self._idle_since > moment) or not self.idle

    @property
    def idle_since(self) -> float | None:
        """When it became idle, in `time.monotonic` seconds; None while a request is read or answered."""
        return self._idle_since if self.idle else None

    @property
    def has_unread(self) -> bool:
        """Whether bytes have arrived that are about to be read."""
        reads = not (self.flow.read_paused or self.transport.is_closing())
        return reads and unread(self.transport) > 0

    def pause_writing(self) -> None:
        """Wait for the reader, but not indefinitely."""
        super().pause_writing()
        self._reader.expect()

    def resume_writing(self) -> None:
        """Continue: the reader has caught up."""
        if not self.transport.is_closing():
            self._reader.has_read()
        super().resume_writing()

    def close(self) -> None:
        """Close the connection once the reader has read everything written."""
        self.transport.close()
        self._reader.expect()

    def _cut_off(self, why: str) -> None:
        """Abort the connection of a slow reader, and count it."""
        log.info("slow reader cut off: %s", why)
        self._state.metrics.rejected.labels(SLOW_READER).inc()
        if self._served is not None and not self._served.response_complete:
            self._served.context.cut_off = True
        self.transport.abort()

    def _held_bytes(self) -> int:
        return 0 if self._served is None else self._served.context.permit.memory_bytes

    def _written(self) -> bool:
        """Whether the whole body of the response being sent has been written, though not yet its end."""
        served = self._served
        if served is None or not served.response_started or served.chunked_encoding:
            return False
        return bool(served.expected_content_length == 0)

    def _end_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _keep_alive(self) -> None:
        """Start waiting for the next request; a running timer is kept, and checks later what has happened."""
        if self._keep_alive_timer is None:
            self._keep_alive_timer = self.loop.call_later(self.timeout_keep_alive, self._is_idle_for_long)

    def _is_idle_for_long(self) -> None:
        """Close the connection if it has been idle for the keep-alive time.

        Its last response may still be in transit. A request that has just arrived is served: otherwise its
        client would see a reset (RFC 9112 §9.6).
        """
        self._keep_alive_timer = None
        left = self._idle_since + self.timeout_keep_alive - time.monotonic()
        if not self.idle:
            left = float(self.timeout_keep_alive)
        elif left <= 0:
            if self._arriving or not unread(self.transport):
                self.close()
                return
            self._arriving, left = True, _ARRIVING_S
        self._keep_alive_timer = self.loop.call_later(left, self._is_idle_for_long)

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._waits_since is not None or (self._head.open and self.pipeline):
            # The end of the head may have arrived, but wait behind other connections or pipelined requests.
            self._head_timer = self.loop.call_later(self._patience_s, self._head_is_late)
        elif self._head.open:
            detail = f"The head of the request did not arrive within {self._patience_s:g} s."
            self._refuse(Problem("request-timeout", detail, members={"limit": self._patience_s}))
        elif not self._used:
            self.transport.close()

    def _refuse(self, problem: Problem) -> None:
        """Refuse the latest request, after the responses to earlier ones."""
        log.log(self._state.settings.level_of_refusals, "connection refused: %s", problem.detail)
        self._refusal = problem
        if not self._answering():
            self._send(problem)

    def _answering(self) -> bool:
        """Whether a complete request still waits for its response."""
        if self.pipeline:
            return True
        return self.cycle is not None and not (self.cycle.more_body or self.cycle.response_complete)

    def _send(self, problem: Problem) -> None:
        """Write a problem that belongs to no request, and close the connection."""
        if self.transport.is_closing():
            return
        identifier = request_id(None)
        response = problem.response("", identifier)
        headers = [*response.raw_headers, (b"x-request-id", identifier.encode()), (b"connection", b"close")]
        self.transport.write(response_head(problem.status, headers) + b"\r\n" + bytes(response.body))
        self.close()
        self._state.metrics.request(UNMATCHED, int(problem.status), 0.0)
        if self._source == self._client:
            self._state.presence.note(self._client)
            self._turns.rest(self._client, REFUSAL_S)
