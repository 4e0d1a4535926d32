"""Work with a deadline: it ends in time or is cancelled, and what never waits sets no timer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from service.system.deadline import within

FAR_S = 3600.0


async def at_once() -> str:
    return "done"


async def several_waits() -> list[int]:
    found = []
    for number in range(3):
        await asyncio.sleep(0)
        found.append(await asyncio.to_thread(lambda number=number: number))  # type: ignore[misc]
    return found


async def failing(error: Exception, *, waits: bool) -> None:
    if waits:
        await asyncio.sleep(0)
    raise error


def run(work: Callable[[], Awaitable[Any]], left_s: float = FAR_S) -> Any:
    async def main() -> Any:
        return await within(asyncio.get_running_loop().time() + left_s, work())

    return asyncio.run(main())


def test_it_returns_what_the_work_returns() -> None:
    """With and without waits between."""
    assert run(at_once) == "done"
    assert run(several_waits) == [0, 1, 2]


def test_work_that_never_waits_is_done_even_if_it_is_late() -> None:
    """Nothing could cancel it."""
    assert run(at_once, left_s=-1.0) == "done"


def test_only_work_that_waits_has_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """To set one and to cancel it takes as long as to read a short request."""
    timers, own = list[float | None](), asyncio.timeout_at

    def timeout_at(when: float | None) -> asyncio.Timeout:
        timers.append(when)
        return own(when)

    monkeypatch.setattr(asyncio, "timeout_at", timeout_at)
    run(at_once)
    assert timers == []
    run(several_waits)
    assert len(timers) == 1


@pytest.mark.parametrize("waits", [False, True])
def test_errors_of_the_work_are_raised(waits: bool) -> None:
    """Those of before and after the first wait."""
    with pytest.raises(ValueError, match="its own"):
        run(lambda: failing(ValueError("its own"), waits=waits))


def test_it_is_cancelled_when_the_time_is_over() -> None:
    """And can clean up."""
    ended = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    with pytest.raises(TimeoutError):
        run(forever, left_s=0.01)
    assert ended == ["cleaned up"]


def test_a_cancelled_task_cancels_the_work() -> None:
    """That is no timeout."""
    seen = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main() -> None:
        task = asyncio.create_task(within(asyncio.get_running_loop().time() + FAR_S, work()))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert seen == ["cancelled"]


def test_work_may_go_on_after_an_error_where_it_waits() -> None:
    """Work that catches a cancellation returns its result."""

    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "after all"

    async def main() -> str:
        task = asyncio.create_task(within(asyncio.get_running_loop().time() + FAR_S, stubborn()))
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert asyncio.run(main()) == "after all"


def test_any_awaitable_is_work() -> None:
    """The next item of a generator, as of a stream of outputs, is no coroutine."""

    async def main() -> list[int | None]:
        async def numbers() -> Any:
            yield 1
            await asyncio.sleep(0)
            yield 2

        stream, until = numbers(), asyncio.get_running_loop().time() + FAR_S
        return [await within(until, anext(stream, None)) for _ in range(3)]

    assert asyncio.run(main()) == [1, 2, None]
