"""Responses whose end is sent only after their reader has caught up, and streamed responses."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from service.replies.json_writer import Piece

RawHeaders = Sequence[tuple[bytes, bytes]]


class WholeResponse(Response):
    """A complete response; a long one counts as sent only when its reader has read nearly all of it.

    Its body is drained before the end is sent, so that a stalled reader is noticed while the request is still
    in flight.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the body, and the end of the response."""
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        long = len(self.body) > HIGH_WATER_LIMIT
        await send(start)
        await send({"type": "http.response.body", "body": self.body, "more_body": long})
        if long:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class Answer(WholeResponse):
    """A 200 whose headers are bytes already; Content-Length is added if it is `sized`."""

    status_code = 200

    def __init__(self, headers: RawHeaders, body: bytes = b"", *, sized: bool = True) -> None:
        self.raw_headers = [*headers, (b"content-length", b"%d" % len(body))] if sized else [*headers]
        self.body = body


class StreamedResponse(Answer):
    """A response in pieces, each produced after the previous one was sent.

    A slow reader delays the next piece (back-pressure), not the event loop. Without a Content-Length the body
    is sent chunked; HTTP/1.0 does not have that, so there it is collected first. When the client disconnects,
    the generator is closed.
    """

    def __init__(self, pieces: AsyncGenerator[Piece, None], headers: RawHeaders, size: int | None) -> None:
        length = [] if size is None else [(b"content-length", b"%d" % size)]
        super().__init__([*headers, *length], sized=False)
        self.pieces, self._sized = pieces, size is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the pieces."""
        async with aclosing(self.pieces):
            collected: list[Piece] = []
            if not self._sized and scope["http_version"] == "1.0":
                collected = [piece async for piece in self.pieces]
                self.headers["content-length"] = str(sum(map(len, collected)))
            start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            await send(start)
            for piece in collected:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            async for piece in self.pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
