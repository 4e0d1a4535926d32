"""Ends work that takes too long."""

import asyncio
from collections.abc import Awaitable, Generator
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def within(until: float, work: Awaitable[T]) -> T:
    """Await work, but cancel it at a moment of the event loop's clock; raises TimeoutError then.

    What never waits, as a short text on an idle service, needs no timer: to set one and to cancel it takes as
    long as to read the request.
    """
    steps = work.__await__()
    try:
        waits_for = next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    async with asyncio.timeout_at(until):
        return await _rest(steps, waits_for)


@coroutine
def _rest(steps: Generator[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Go on with work that waits."""
    while True:
        try:
            try:
                value = yield waits_for
            except BaseException as error:  # the task is cancelled, or closed
                waits_for = steps.throw(error)
            else:
                waits_for = steps.send(value)
        except StopIteration as end:
            result: T = end.value
            return result
