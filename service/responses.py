"""Answers that are sent as they lie, piece by piece."""

from collections.abc import Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send


class PiecesResponse(Response):
    """A JSON answer in pieces that are never joined to one; its whole `size` is in Content-Length."""

    media_type = "application/json"

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self.size = sum(len(piece) for piece in self.pieces)
        super().__init__()
        self.headers["content-length"] = str(self.size)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the pieces; a slow reader holds back the next one, not the event loop."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        last = len(self.pieces) - 1
        for i, piece in enumerate(self.pieces):
            await send({"type": "http.response.body", "body": piece, "more_body": i < last})
