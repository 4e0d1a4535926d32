"""Which web pages may call the API from a browser (CORS, Fetch standard); none by default."""

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

_EXPOSED = (
    *("X-Request-ID", "Server-Timing", "Retry-After", "retry-after-ms", "WWW-Authenticate"),
    *("X-Truncated-Inputs", "X-Covered"),
)


class Cors(CORSMiddleware):
    """Starlette's CORSMiddleware, except that disallowed requests are answered as if there were no CORS.

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
        allowed = scope["type"] == "http" and self._allows(scope["method"], Headers(scope=scope))
        await (super().__call__ if allowed else self.app)(scope, receive, send)

    def _allows(self, method: str, headers: Headers) -> bool:
        if method == "OPTIONS" and "access-control-request-method" not in headers:
            return False
        if "origin" not in headers or not self.is_allowed_origin(headers["origin"]):
            return False
        return method != "OPTIONS" or self.preflight_response(headers).status_code == 200
