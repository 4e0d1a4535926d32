"""Which web pages may call the API from a browser (CORS, Fetch standard); none by default."""

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

_EXPOSED = ("X-Request-ID", "Server-Timing", "Retry-After", "retry-after-ms", "WWW-Authenticate")


class Cors(CORSMiddleware):
    """Starlette's CORSMiddleware, except that disallowed preflights reach the app as if there were no CORS.

    Cookies are not used; pages send their API key themselves.
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
            preflight = "origin" in headers and "access-control-request-method" in headers
            if not preflight or self.preflight_response(headers).status_code != 200:
                await self.app(scope, receive, send)
                return
        await super().__call__(scope, receive, send)
