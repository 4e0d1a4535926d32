"""Wraps every request: its id, metrics and log line, and a response whatever happens."""

import asyncio
import logging
import time
from urllib.parse import quote

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.echo import ECHO, cut
from service.engine.admission import Retry
from service.http.connections.open_files import is_shortage
from service.http.request_context import RequestContext, open_context
from service.lifecycle import ServiceState
from service.problems import INTERNAL_ERROR, Problem, shut_down_too_soon
from service.refusals import retry_after
from service.system.off_loop import empty_later
from service.telemetry.metrics import CLIENT_GONE, UNMATCHED
from service.telemetry.request_record import Ended

log = logging.getLogger("service.access")

_LINE = "%s %s %d in %.1f ms"
_MAX_QUERY_BYTES = 1000
# Paths without a route are logged above DEBUG at most once in this many seconds.
_UNKNOWN_S = 1.0
_CONTROL = (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)


class PanicError(Exception):
    """A Rust library panicked; only the current operation has failed."""


def is_panic(error: BaseException) -> bool:
    """Whether an error is a panic (`pyo3_runtime.PanicException`, not exported), not the end of a task.

    In Python panics are not Exceptions, so ordinary handlers do not catch them.
    """
    return not isinstance(error, (Exception, *_CONTROL))


def _internal_error(error: Exception, identifier: str) -> Problem:
    """Log an internal error; returns the problem to answer the request with."""
    if is_shortage(error):
        log.error("request %s failed: too many open files", identifier)
        return Problem(
            "not-ready",
            "The service has too many open files and connections: retry in a moment.",
            headers=retry_after(Retry.after(1.0)),
        )
    log.error("request %s failed", identifier, exc_info=error)
    return Problem("internal-error", INTERNAL_ERROR)


class RequestMiddleware:
    """The outermost ASGI application: `app` answers requests, and `other` handles start and end."""

    def __init__(self, app: ASGIApp, state: ServiceState, *, other: ASGIApp) -> None:
        self.app = app
        self.state = state
        self.other = other
        self._refusals = state.settings.level_of_refusals
        self._unknown_at = -_UNKNOWN_S
        """When a path without a route was logged last, in `time.monotonic` seconds."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.other(scope, receive, send)
            return
        context = open_context(scope, self.state)
        context.path = scope["path"]
        context.endpoint, scope["path_params"] = self.state.endpoints.find(scope["path"], scope["method"])
        bodiless = scope["method"] == "HEAD"
        if not context.inference:
            if bodiless:
                scope = {**scope, "method": "GET"}  # uvicorn omits the body
            if len(scope["query_string"]) > _MAX_QUERY_BYTES:
                scope = {**scope, "query_string": b""}  # unused by these endpoints, but slow to parse
        await self._serve(scope, receive, send, context, bodiless=bodiless)

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, context: RequestContext, *, bodiless: bool
    ) -> None:
        start, status, record = time.perf_counter(), 0, context.record

        async def receive_counted() -> Message:
            message = await receive()
            record.bytes_in += len(message.get("body", b""))
            self.state.memory.check_arrived(context.permit)
            return message

        async def send_counted(message: Message) -> None:
            nonlocal status
            size = 0
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", context.request_id.encode())]
            elif not bodiless:
                size = len(message.get("body", b""))
            await send(message)
            record.bytes_out += size

        try:
            await self._run(scope, receive_counted, send_counted, context)
        except ClientDisconnect:
            status = CLIENT_GONE
        except asyncio.CancelledError:
            # The client is gone, or the process ends. If the response has begun, the server closes the
            # connection.
            if not (status or context.gone):
                await context.error(shut_down_too_soon())(scope, receive, send_counted)
        except Exception as error:
            problem = _internal_error(error, context.request_id)
            if status:
                raise
            await context.error(problem)(scope, receive, send_counted)
        finally:
            complete = status and not (context.gone or context.cut_off)
            self.state.memory.release(context.permit)
            empty_later(context.permit.emptied)
            self._count(
                scope["method"], context, status if complete else CLIENT_GONE, time.perf_counter() - start
            )

    async def _run(self, scope: Scope, receive: Receive, send: Send, context: RequestContext) -> None:
        """Run the app; turns a panic into an Exception.

        The task of an inference request is registered, so that the drain and the connection can cancel it.
        """
        task = asyncio.current_task() if context.inference else None
        if task is not None:
            context.task = task
            self.state.begin(task)
        try:
            await self.app(scope, receive, send)
        except BaseException as error:
            if is_panic(error):
                raise PanicError(f"{type(error).__name__}: {error}") from error
            raise
        finally:
            if task is not None:
                context.task = None
                self.state.end(task)

    def _count(self, method: str, context: RequestContext, status: int, seconds: float) -> None:
        endpoint, record = context.endpoint, context.record
        route = UNMATCHED if endpoint is None else endpoint.label
        if method == "OPTIONS" and status == 200:
            route = UNMATCHED  # a CORS preflight
        inference = context.inference and route is not UNMATCHED
        self.state.metrics.request(route, status, seconds)
        if self.state.traces is not None and inference:
            self.state.traces.record(record, method, route, status, seconds)
        if 400 <= status < 500 and status != CLIENT_GONE:
            level = self._level_of_refusal(context)
        else:
            level = logging.INFO if inference else logging.DEBUG
        if log.isEnabledFor(level):
            # A record made by hand: `log.log` would spend time on finding the calling line of code.
            values = (method, route, status, 1e3 * seconds)
            extra = {"ended": Ended(record, route, status, seconds)}
            log.handle(log.makeRecord(log.name, level, "", 0, _LINE, values, None, extra=extra))

    def _level_of_refusal(self, context: RequestContext) -> int:
        """Return the level of a 4xx's log line: DEBUG for a path without a route soon after another one."""
        if context.endpoint is None:
            context.record.path = cut(quote(context.path[: ECHO + 1], errors="replace"))
            now = time.monotonic()
            if now - self._unknown_at < _UNKNOWN_S:
                return logging.DEBUG
            self._unknown_at = now
        return self._refusals
