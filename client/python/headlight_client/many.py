"""Calls that take several requests: sent concurrently, and joined into one answer in input order."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Any, TypeVar

from anyio.from_thread import start_blocking_portal

from headlight_client.answers import Answer
from headlight_client.calls import Call
from headlight_client.errors import HeadlightError
from headlight_client.retry import RETRIED, Progress
from headlight_client.splitting import MAX_INPUTS, Limits, Parts

T = TypeVar("T")
R = TypeVar("R")

_UNAUTHORIZED = 401
# How long the main thread waits before it lets Python look for signals.
_LOOK_S = 0.2


def is_small(call: Call[Any], info: Mapping[str, Any] | None) -> bool:
    """Whether to send a call in one request, and split it only if the service refuses that.

    `info` is the document of `/info`, if already fetched.
    """
    limits = Limits.of(info or {}, call.model)
    size = call.frame_bytes + sum(call.sizes) + len(call.inputs)
    fits = len(call.inputs) <= min(limits.inputs, MAX_INPUTS) and size <= limits.body_bytes
    return (fits or len(call.inputs) == 1) and not call.progress


def parts_of(
    call: Call[Any], limits: Limits, concurrency: int, refused: HeadlightError | None = None
) -> Parts:
    """Split a call into requests that the service accepts; `refused` is its refusal of the whole call."""
    parts = Parts(call.sizes, limits, call.frame_bytes, concurrency, call.called)
    if refused is not None:
        parts.learn(refused, len(call.inputs))
    return parts


def without_info(error: HeadlightError) -> Mapping[str, Any]:
    """Fall back to the default limits if `/info` failed; raises an error that the call would meet too."""
    if error.status is None or error.status in RETRIED or error.status == _UNAUTHORIZED:
        raise error
    return {}


async def send_all(
    call: Call[T], parts: Parts, send: Callable[[range, Progress], Awaitable[Answer[T]]], concurrency: int
) -> Answer[T]:
    """Send all parts, `concurrency` at a time; raises the first HeadlightError and cancels the others."""
    answers: dict[int, Answer[T]] = {}
    progress = Progress()

    async def work(done: Callable[[int], object]) -> None:
        for part in parts:
            try:
                answers[part.start] = await send(part, progress)
            except HeadlightError as error:
                parts.refused(error, part)
            else:
                progress.made()
                done(len(part))

    with _bar(len(call.inputs), shown=call.progress) as done:
        tasks = [asyncio.create_task(work(done)) for _ in range(min(concurrency, len(call.inputs)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    # To compare many texts takes seconds, in which an event loop has other things to do.
    return await asyncio.to_thread(call.merge, [answers[start] for start in sorted(answers)])


def run_in_thread(work: Callable[[], Coroutine[Any, Any, R]]) -> R:
    """Run a coroutine in a separate thread and event loop: in a notebook, a loop is already running.

    KeyboardInterrupt cancels it and its requests in flight. A signal that arrives just before the wait begins
    does not end the wait, so it is not one long wait.
    """
    with start_blocking_portal() as portal:
        result = portal.start_task_soon(work)
        while not wait([result], _LOOK_S).done:
            pass
        return result.result()


@contextmanager
def _bar(total: int, *, shown: bool) -> Iterator[Callable[[int], object]]:
    """Draw a progress bar in texts; raises ModuleNotFoundError without tqdm."""
    if not shown:
        yield lambda _: None
        return
    try:
        tqdm = importlib.import_module("tqdm.auto").tqdm  # text in a terminal, a widget in a notebook
    except ModuleNotFoundError:
        raise ModuleNotFoundError("progress=True requires tqdm: pip install tqdm, or leave it out.") from None
    with tqdm(total=total, unit="text") as bar:
        yield bar.update
