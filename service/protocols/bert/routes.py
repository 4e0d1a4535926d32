"""The routes that only bert-as-service has; its `/encode` is told from the native one by the body."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request

from service.endpoints import Endpoint
from service.protocols.bert.errors import BertError, render_error
from service.protocols.bert.status import BertClientStatus, BertServerStatus, client_status, server_status
from service.protocols.openai.errors import error_status


def _endpoint(
    path: str,
    handler: Callable[[Request], Awaitable[BertServerStatus | BertClientStatus]],
    summary: str,
    problems: frozenset[str],
    statuses: tuple[int, ...],
) -> Endpoint:
    return Endpoint(
        path,
        handler,
        summary=summary,
        guarded=True,
        problems=problems,
        statuses=statuses,
        render_error=render_error,
        error_document=BertError,
        error_status=error_status,
        protocol="bert",
    )


_KEYED = frozenset({"unauthorized"})

ENDPOINTS = (
    _endpoint(
        "/status/server",
        server_status,
        "The first model and the limits (bert-as-service)",
        _KEYED | {"not-ready"},
        (200, 401, 405, 503),
    ),
    _endpoint(
        "/status/client",
        client_status,
        "How clients are answered (bert-as-service)",
        _KEYED,
        (200, 401, 405),
    ),
)
