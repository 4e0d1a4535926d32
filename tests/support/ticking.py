"""`python -m tests.support.ticking` is the service, and `/longest` says how long its event loop was held."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from service.app import create_app
from service.http.server import open_listener, serve
from service.process import freeze
from service.settings import read_settings

_TICK_S = 0.0005


class Ticker:
    """Measures the steps of an event loop by how late its own turns come.

    A turn counts with the processor time that the process had meanwhile, where that is less than the time
    that has passed: what other processes took is not the loop's doing.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self) -> None:
        """Tick until it is cancelled."""
        while True:
            clock, processor = time.perf_counter(), time.process_time()
            await asyncio.sleep(_TICK_S)
            late = time.perf_counter() - clock - _TICK_S
            self.longest_s = max(self.longest_s, min(late, time.process_time() - processor))

    def take(self) -> float:
        """The longest turn since the last call, in seconds."""
        longest, self.longest_s = self.longest_s, 0.0
        return longest


def main() -> int:
    """Serve as the service does, with its ticker."""
    app = create_app(read_settings())
    ticker, inner = Ticker(), app.router.lifespan_context

    @asynccontextmanager
    async def ticking(served: FastAPI) -> AsyncIterator[None]:
        async with inner(served):
            task = asyncio.create_task(ticker.run())
            yield
            task.cancel()

    async def longest() -> dict[str, float]:
        return {"seconds": ticker.take()}

    app.router.lifespan_context = ticking
    app.add_api_route("/longest", longest)
    app.state.service.on_ready = freeze
    serve(app, app.state.service, open_listener(app.state.service.settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
