"""Around every request: its id, its place in the metrics and the log, and an answer whatever happens."""

import asyncio
import itertools
import logging
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.clients.addresses import CLIENT, client_of, peer_address
from service.clients.keys import sent_authorization
from service.http.open_files import is_shortage
from service.http.panics import PanicError, is_panic
from service.lifecycle import ServiceState
from service.problems import Problem, gave_up
from service.telemetry.metrics import CLIENT_GONE, INFERENCE_ROUTES, OPERATIONS_ROUTES, UNMATCHED
from service.telemetry.request_record import ACCESS, Access, Ended, counted
from service.telemetry.trace_context import read_traceparent

log = logging.getLogger("service.access")

# Under these names a request's scope tells its task to the connection, and the connection that it has ended.
TASK = "task"
GONE = "gone"
_LINE = "%s %s %d in %.1f ms"
# Under this one, why a connection was ended before its client had the whole answer.
CUT_OFF = "cut_off"
_MOST_OF_A_QUERY = 1000
_SANE_ID = re.compile(r"[A-Za-z0-9._~:+/=@-]{1,128}")


# An id is this process and a number: unique like a random one, which costs a system call each.
_PROCESS = uuid.uuid4().hex[:20]
_NUMBERS = itertools.count(1)


def request_id(given: str | None) -> str:
    """Keep the client's own id when it is a sane token, else make one."""
    if given is not None and _SANE_ID.fullmatch(given):
        return given
    return f"{_PROCESS}{next(_NUMBERS):012x}"


def authorize(request: Request) -> None:
    """Raise the 401 that fits; where a key is required, take down which one opened."""
    state: ServiceState = request.app.state.service
    if not state.keys.required:
        return
    key = state.keys.check(sent_authorization(request))
    if key is not None:
        told = request.scope["state"]
        told[CLIENT] = f"key:{key}"
        told[ACCESS].key = key
        state.metrics.key_used(key)


def _own_error(error: Exception, identifier: str) -> Problem:
    """Log an error that is no answer; returns the problem that is the answer to its request."""
    if is_shortage(error):
        log.error("request %s failed: no file is left to open", identifier)
        return Problem(
            "not-ready",
            "The service has too many files and connections open: try again in a moment.",
            headers={"Retry-After": "1"},
        )
    log.error("request %s failed", identifier, exc_info=error)
    return Problem("internal-error", "The service met an error of its own; its log says more.")


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
        access = self._open(scope)
        receive, send = counted(access, receive, send, bodiless=scope["method"] == "HEAD")
        if scope["method"] == "HEAD" and scope["path"] not in INFERENCE_ROUTES:
            scope = {**scope, "method": "GET"}  # the server leaves the body out
        if len(scope["query_string"]) > _MOST_OF_A_QUERY and scope["path"] not in INFERENCE_ROUTES:
            scope = {**scope, "query_string": b""}  # it means nothing there, and the framework would parse it
        await self._serve(scope, receive, send, access)

    def _open(self, scope: Scope) -> Access:
        """Take down who asks, and within which trace."""
        given, parents, states = None, [], []
        for name, value in scope["headers"]:
            if name == b"x-request-id":
                given = given or value.decode("latin-1")
            elif name == b"traceparent":
                parents.append(value)
            elif name == b"tracestate":
                states.append(value)
        parent = read_traceparent(parents, states) if parents else None
        access = Access(request_id(given), peer_address(scope), self.state.peers.forwarded_for(scope), parent)
        told = scope.setdefault("state", {})
        told["request_id"], told[ACCESS] = access.request_id, access
        told[CLIENT] = client_of(access.forwarded_for or access.peer)
        return access

    async def _serve(self, scope: Scope, receive: Receive, send: Send, access: Access) -> None:
        identifier = access.request_id
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
            await self._run(scope, receive, send_with_id)
        except ClientDisconnect:
            status = CLIENT_GONE
        except asyncio.CancelledError:
            if not (self.state.gave_up or GONE in scope["state"]):
                raise
            if status or GONE in scope["state"]:
                return  # a part of the answer is out: the server closes the connection; or nobody reads
            await answer(gave_up())
        except Exception as error:
            problem = _own_error(error, identifier)
            if status:
                raise
            await answer(problem)
        finally:
            whole = status and not {GONE, CUT_OFF} & scope["state"].keys()
            self.state.memory.give_back(scope["state"])
            self._count(scope, access, status if whole else CLIENT_GONE, time.perf_counter() - start)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the app answer; raises only what is an Exception, or ends the task."""
        with self._running(scope):
            try:
                await self.app(scope, receive, send)
            except BaseException as error:
                if is_panic(error):
                    raise PanicError(f"{type(error).__name__}: {error}") from error
                raise

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

    def _count(self, scope: Scope, access: Access, status: int, seconds: float) -> None:
        path = scope["path"]
        path = "/docs" if path.startswith("/docs/") else path
        route = path if path in (*INFERENCE_ROUTES, *OPERATIONS_ROUTES) else UNMATCHED
        if scope["method"] == "OPTIONS" and status == 200:
            route = UNMATCHED  # a browser asks whether it may ask
        self.state.metrics.request(route, status, seconds)
        if self.state.traces is not None and route in INFERENCE_ROUTES:
            self.state.traces.record(access, scope["method"], route, status, seconds)
        level = logging.INFO if route in INFERENCE_ROUTES else logging.DEBUG
        if log.isEnabledFor(level):
            # Without the line of code that it comes from, which takes a while to find.
            told = (scope["method"], route, status, 1e3 * seconds)
            extra = {"ended": Ended(access, route, status, seconds)}
            log.handle(log.makeRecord(log.name, level, "", 0, _LINE, told, None, extra=extra))
