"""Answers that are made while they are sent."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.serialization.json_writer import Piece


class WholeResponse(Response):
    """An answer that is there, and complete only when its reader has taken nearly all of it.

    What was written in one go is waited for before the end is sent, so that a reader that stands still is
    seen while the request is still being answered.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the answer, then its end."""
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class StreamedResponse(Response):
    """An answer in pieces, each made when the one before it has been handed on.

    A slow reader holds back the next piece, not the event loop. Where the size is not in the headers, the
    answer is sent in chunks; HTTP/1.0 knows none, so there it is collected first. A reader that goes closes
    the generator.
    """

    def __init__(self, pieces: AsyncGenerator[Piece, None], headers: Mapping[str, str]) -> None:
        super().__init__(headers=headers)
        self.pieces = pieces
        self._sized = "content-length" in headers
        if not self._sized:
            del self.headers["content-length"]

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
