"""Runs Python code off the event loop, in one thread.

Such code holds the interpreter, and the event loop then waits for it for up to a few milliseconds at every
step (`process.py`). With several threads, it would wait for each in turn, and all work would take as long.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from service.system.priority import BESIDE_LOOP, lower_priority

T = TypeVar("T")

# Its thread starts with the first call, so processes can be forked before.
_thread = ThreadPoolExecutor(1, "off-loop", lower_priority, (BESIDE_LOOP,))


def empty_later(lists: tuple[list[Any], ...]) -> None:
    """Empty lists in the thread, one item at a time, after the calls that already wait for it.

    Python frees a list of millions of objects in one go, and would hold the interpreter all that time.
    """
    if lists:
        _thread.submit(_empty, lists)


def _empty(lists: tuple[list[Any], ...]) -> None:
    for one in lists:
        while one:
            one.pop()


async def off_loop(work: Callable[..., T], *arguments: Any) -> T:
    """Call `work` in the thread, after the calls that already wait; returns and raises what it does."""
    return await asyncio.get_running_loop().run_in_executor(_thread, partial(work, *arguments))
