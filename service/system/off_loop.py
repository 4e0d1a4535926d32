"""Runs Python code beside the event loop, in one thread.

Such code holds the interpreter, for which the event loop then waits up to a few milliseconds at every step
(`process.py`). With several threads it would wait for each of them in turn, and all would take as long.
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
    """Take out of lists what they hold, one item at a time, after what others have called in the thread.

    Python frees a list of millions of objects in one go, and would hold the interpreter for as long.
    """
    if lists:
        _thread.submit(_empty, lists)


def _empty(lists: tuple[list[Any], ...]) -> None:
    for one in lists:
        while one:
            one.pop()


async def off_loop(work: Callable[..., T], *arguments: Any) -> T:
    """Call something in the thread, after what others have called there; returns and raises what it does."""
    return await asyncio.get_running_loop().run_in_executor(_thread, partial(work, *arguments))
