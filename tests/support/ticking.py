"""`python -m tests.support.ticking` is the service, and `/longest` says how long its event loop was held."""

import asyncio
import os
import sys
import time
from pathlib import Path

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from service.app import create_app
from service.http.server import open_listeners, serve
from service.settings import read_settings
from service.system.process import freeze, set_up_process

_TICK_S = 0.0005
# Of the thread that opens it, on Linux: for how many nanoseconds it ran, and was ready but had to wait.
_SCHEDULED = Path("/proc/thread-self/schedstat")


class Ticker:
    """Measures the steps of an event loop by how late its own turns come.

    Of a turn counts what the loop and the threads that have the interpreter did. The time for which the loop
    was ready and waited for a core does not count, because other threads computed without the interpreter.
    And the whole counts as no more than the processor time of the process, because of other processes.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self) -> None:
        """Tick until it is cancelled."""
        scheduled = os.open(_SCHEDULED, os.O_RDONLY) if _SCHEDULED.exists() else None
        while True:
            clock, queued, processor = time.perf_counter(), _queued_s(scheduled), time.process_time()
            await asyncio.sleep(_TICK_S)
            late = time.perf_counter() - clock - _TICK_S - (_queued_s(scheduled) - queued)
            self.longest_s = max(self.longest_s, min(late, time.process_time() - processor))

    def take(self) -> float:
        """The longest turn since the last call, in seconds."""
        longest, self.longest_s = self.longest_s, 0.0
        return longest


def _queued_s(scheduled: int | None) -> float:
    """How long a thread has waited for a core while it was ready to run, in seconds; 0 where none says."""
    return 0.0 if scheduled is None else int(os.pread(scheduled, 100, 0).split()[1]) / 1e9


class Ticking:
    """An app beside which a ticker runs."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.ticker = Ticker()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            task = asyncio.create_task(self.ticker.run())
            await self.app(scope, receive, send)
            task.cancel()
        elif scope["path"] == "/longest":
            body = orjson.dumps({"seconds": self.ticker.take()})
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": body})
        else:
            await self.app(scope, receive, send)


def main() -> int:
    """Serve as the service does, with its ticker."""
    set_up_process()
    app = create_app(read_settings())
    app.state.service.on_ready = freeze
    serve(Ticking(app), app.state.service, open_listeners(app.state.service.settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
