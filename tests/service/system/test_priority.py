"""What can wait has a lower priority than the event loop."""

import asyncio
import os
import sys
import threading
from collections.abc import Generator

import pytest

from service.engine.tokenizing import Tokenizing
from service.system.off_loop import off_loop
from service.system.priority import BESIDE_LOOP

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere a priority is that of a whole process"
)


def priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_threads_beside_the_event_loop_step_back() -> None:
    """Those that decode and that tokenize."""

    def steps() -> Generator[None, None, int]:
        yield
        return priority()

    async def run() -> tuple[int, int]:
        tokenizing = Tokenizing("test")
        try:
            return await off_loop(priority), await tokenizing.run(steps())
        finally:
            tokenizing.close()

    lowered = min(priority() + BESIDE_LOOP, 19)
    assert asyncio.run(run()) == (lowered, lowered)
