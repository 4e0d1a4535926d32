"""Which web pages may ask from a browser (the Fetch standard's CORS protocol); by default, none."""

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

_EXPOSED = ("X-Request-ID", "Server-Timing", "Retry-After", "WWW-Authenticate")


class Cors(CORSMiddleware):
    """Starlette's, but that it leaves errors to the app: what it does not allow is answered as without it.

    Cookies are never asked for; pages send their key themselves.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            expose_headers=_EXPOSED,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["method"] == "OPTIONS":
            headers = Headers(scope=scope)
            asks = "origin" in headers and "access-control-request-method" in headers
            if not asks or self.preflight_response(headers).status_code != 200:
                await self.app(scope, receive, send)
                return
        await super().__call__(scope, receive, send)
