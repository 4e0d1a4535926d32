"""A request while it is answered: its body as it arrives, and its response as it is written."""

from collections.abc import Sequence
from typing import Any

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from service.http.connections.response_head import response_head
from service.http.request_context import context_of

_CONTROL = bytes(code for code in (*range(0x20), 0x7F) if code != ord("\t"))
_NO_BODY = (204, 304)


class Cycle(RequestResponseCycle):
    """One request and its response, whose head is written together with the first bytes of its body.

    uvicorn writes the head and the body separately, which would wake the client twice.
    """

    _head = b""

    def __init__(self, scope: Any, **options: Any) -> None:
        super().__init__(scope, **options)
        self.context = context_of(scope)

    async def send(self, message: Any) -> None:
        """Write a message of the app."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            self._begin(message["status"], message["headers"])
            return
        body = message.get("body", b"")
        self._send(body, last=not message.get("more_body", False))

    def _begin(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.response_started, self.waiting_for_100_continue = True, False
        own = {name: value for name, value in headers if name in (b"content-length", b"connection")}
        lines = [*self.default_headers, *headers]
        if own.get(b"connection") == b"close":
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append((b"connection", b"close"))
        sized = b"content-length" in own
        self.expected_content_length = int(own.get(b"content-length", b"0"))
        self.chunked_encoding = not (sized or self.scope["method"] == "HEAD" or status in _NO_BODY)
        if self.chunked_encoding:
            lines.append((b"transfer-encoding", b"chunked"))
        self._head = response_head(status, lines) + b"\r\n"
        # A line end in a value would begin another header.
        if len(self._head) - len(self._head.translate(None, _CONTROL)) != 2 * (len(lines) + 2):
            raise RuntimeError("a header has a control character")

    def _send(self, body: bytes, *, last: bool) -> None:
        """Write a part of the body, the first one together with the head."""
        if self.response_complete:
            raise RuntimeError("the response was complete")
        if self.scope["method"] == "HEAD":
            body, self.expected_content_length = b"", 0
        elif self.chunked_encoding:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body += b"0\r\n\r\n" if last else b""
        else:
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0 or (last and self.expected_content_length):
                raise RuntimeError("the length of the response differs from its Content-Length")
        head, self._head = self._head, b""
        if head and len(body) > HIGH_WATER_LIMIT:
            self.transport.writelines((head, body))
        else:
            self.transport.write(head + body if head else body)
        if last:
            self.response_complete = True
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()
