"""`python -m tests.support.timed` is the service, and `/times` says how long requests held its event loop.

For each request since it was last asked: the processor time of the loop's thread in the app, and apart from
that in the server's functions that the app calls to receive and to send, in nanoseconds. What other threads
do, and time for which the thread waited for a core, does not count. `/garbage` says how many objects only the
garbage collector could free.
"""

import gc
import sys
import threading
import time
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.app import create_app
from service.engine.engine import Engine
from service.http.server import open_listeners, serve
from service.lifecycle import Loader
from service.loading import load_engines
from service.settings import Settings, read_settings
from service.system.process import freeze, set_up_process
from service.telemetry.metrics import Metrics
from tests.support.doubles import poisoned


class Clock:
    """Adds up the processor time of this thread in some steps of a task."""

    def __init__(self) -> None:
        self.ns = 0

    def during(self, work: Awaitable[Any]) -> "Steps":
        return Steps(work, self)


class Steps:
    """An awaitable whose steps are timed."""

    def __init__(self, work: Awaitable[Any], clock: Clock) -> None:
        self._work = work
        self._clock = clock

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work if isinstance(self._work, Coroutine) else self._work.__await__()
        given: Any = None
        error: BaseException | None = None
        while True:
            start = time.thread_time_ns()
            try:
                awaited = steps.send(given) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                self._clock.ns += time.thread_time_ns() - start
            given = error = None
            try:
                given = yield awaited
            except BaseException as thrown:
                error = thrown


class Timed:
    """An app whose requests are timed."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.times: list[tuple[int, int]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["path"] == "/times":
            body, self.times = orjson.dumps(self.times), []
            await _answer(send, body)
            return
        if scope["path"] == "/garbage":
            await _answer(send, orjson.dumps(gc.collect()))
            return
        inside, server = Clock(), Clock()

        async def receive_timed() -> Message:
            return await server.during(receive())

        async def send_timed(message: Message) -> None:
            await server.during(send(message))

        try:
            await inside.during(self.app(scope, receive_timed, send_timed))
        finally:
            self.times.append((inside.ns - server.ns, server.ns))


async def _answer(send: Send, body: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def never(_settings: Settings, _metrics: Metrics) -> dict[str, Engine]:
    """Load for ever."""
    threading.Event().wait()
    raise AssertionError("nothing sets the event")


def main(*arguments: str) -> int:
    """Serve as the service does, with its times.

    With `--loading` no model is ever loaded; with `--hanging` the model hangs on a word (`doubles`).
    """
    set_up_process()
    loads: dict[tuple[str, ...], Loader] = {("--loading",): never, ("--hanging",): poisoned}
    app = create_app(read_settings(), loads.get(arguments, load_engines))
    app.state.service.on_ready = freeze
    serve(Timed(app), app.state.service, open_listeners(app.state.service.settings))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
