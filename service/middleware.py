"""Around every request: its id, its place in the metrics and the log, and an answer whatever happens."""

import asyncio
import itertools
import logging
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.metrics import CLIENT_GONE, INFERENCE_ROUTES, OPERATIONS_ROUTES, UNMATCHED
from service.problems import Problem, gave_up
from service.state import ServiceState

log = logging.getLogger("service.access")

# Under these names a request's scope tells its task to the connection, and the connection that it has ended.
TASK = "task"
GONE = "gone"
# Under this one, its seconds by stage, for the log.
STAGES = "stages"
_SANE_ID = re.compile(r"[A-Za-z0-9._~:+/=@-]{1,128}")


# An id is this process and a number: unique like a random one, which costs a system call each.
_PROCESS = uuid.uuid4().hex[:20]
_NUMBERS = itertools.count(1)


def request_id(given: str | None) -> str:
    """Keep the client's own id when it is a sane token, else make one."""
    if given is not None and _SANE_ID.fullmatch(given):
        return given
    return f"{_PROCESS}{next(_NUMBERS):012x}"


class RequestContext:
    """ASGI middleware, the outermost of ours."""

    def __init__(self, app: ASGIApp, state: ServiceState) -> None:
        self.app = app
        self.state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] == "HEAD" and scope["path"] not in INFERENCE_ROUTES:
            scope = {**scope, "method": "GET"}  # the server leaves the body out
        await self._serve(scope, receive, send, request_id(Headers(scope=scope).get("x-request-id")))

    async def _serve(self, scope: Scope, receive: Receive, send: Send, identifier: str) -> None:
        scope.setdefault("state", {})["request_id"] = identifier
        start, status = time.perf_counter(), 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = identifier
            await send(message)

        async def answer(problem: Problem) -> None:
            response = problem.response(instance=scope["path"], request_id=identifier)
            await response(scope, receive, send_with_id)

        try:
            with self._running(scope):
                await self.app(scope, receive, send_with_id)
        except ClientDisconnect:
            status = CLIENT_GONE
        except asyncio.CancelledError:
            if not (self.state.gave_up or GONE in scope["state"]):
                raise
            if status or GONE in scope["state"]:
                return  # a part of the answer is out: the server closes the connection; or nobody reads
            await answer(gave_up())
        except Exception:
            log.exception("request %s failed", identifier)
            if status:
                raise
            await answer(Problem("internal-error", "The service met an error of its own; its log says more."))
        finally:
            self.state.memory.give_back(scope["state"])
            self._count(scope, identifier, status or CLIENT_GONE, time.perf_counter() - start)

    @contextmanager
    def _running(self, scope: Scope) -> Iterator[None]:
        """Keep an inference request's task where the drain finds it, and the connection when it ends."""
        task = asyncio.current_task()
        if scope["path"] not in INFERENCE_ROUTES or task is None:
            yield
            return
        scope["state"][TASK] = task
        self.state.running.add(task)
        self.state.metrics.in_flight.set(self.state.in_flight)
        try:
            yield
        finally:
            del scope["state"][TASK]
            self.state.running.discard(task)
            self.state.metrics.in_flight.set(self.state.in_flight)

    def _count(self, scope: Scope, identifier: str, status: int, seconds: float) -> None:
        path = scope["path"]
        path = "/docs" if path.startswith("/docs/") else path
        route = path if path in (*INFERENCE_ROUTES, *OPERATIONS_ROUTES) else UNMATCHED
        if scope["method"] == "OPTIONS" and status == 200:
            route = UNMATCHED  # a browser asks whether it may ask
        self.state.metrics.request(route, status, seconds)
        level = logging.INFO if route in INFERENCE_ROUTES else logging.DEBUG
        log.log(
            level,
            "%s %s %d in %.1f ms",
            scope["method"],
            route,
            status,
            1e3 * seconds,
            extra={
                "request_id": identifier,
                "route": route,
                "status": status,
                "seconds": round(seconds, 6),
                "stages": {name: round(value, 6) for name, value in scope["state"].get(STAGES, {}).items()},
            },
        )
