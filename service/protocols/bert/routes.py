"""The routes that only bert-as-service has; its `/encode` is told from the native one by the body."""

from pydantic import BaseModel

from service.endpoints import Endpoint, Handler
from service.protocols.bert.errors import BertError, render_error
from service.protocols.bert.status import BertClientStatus, BertServerStatus, client_status, server_status
from service.protocols.openai.errors import error_status


def _endpoint(
    path: str,
    handler: Handler,
    summary: str,
    response: type[BaseModel],
    problems: frozenset[str],
    statuses: tuple[int, ...],
) -> Endpoint:
    return Endpoint(
        path,
        handler,
        summary=summary,
        responses={200: {"model": response}},
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
        BertServerStatus,
        _KEYED | {"not-ready"},
        (200, 401, 405, 503),
    ),
    _endpoint(
        "/status/client",
        client_status,
        "How clients are answered (bert-as-service)",
        BertClientStatus,
        _KEYED,
        (200, 401, 405),
    ),
)
