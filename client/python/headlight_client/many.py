"""A call that takes several requests: some on their way at a time, one answer in the order of the inputs."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from anyio.from_thread import start_blocking_portal

from headlight_client.answers import Answer, AttentionMaps, Encoded, joined
from headlight_client.calls import Call
from headlight_client.errors import HeadlightError
from headlight_client.retry import RETRIED, Progress
from headlight_client.splitting import MAX_INPUTS, Limits, Parts

T = TypeVar("T", bound=Encoded | AttentionMaps)
R = TypeVar("R")

_UNAUTHORIZED = 401


def is_small(call: Call[Any], info: Mapping[str, Any] | None) -> bool:
    """Whether a call is sent as it is, and split only when the service refuses that.

    `info` is what `/info` said, if it was asked already.
    """
    limits = Limits.of(info or {}, call.model)
    size = call.frame_bytes + sum(map(len, call.inputs)) + len(call.inputs)
    fits = len(call.inputs) <= min(limits.inputs, MAX_INPUTS) and size <= limits.body_bytes
    return (fits or len(call.inputs) == 1) and not call.progress


def parts_of(
    call: Call[Any], limits: Limits, concurrency: int, refused: HeadlightError | None = None
) -> Parts:
    """Cut a call into requests that the service takes; it may have refused the whole as too large."""
    parts = Parts([len(row) for row in call.inputs], limits, call.frame_bytes, concurrency)
    if refused is not None:
        parts.learn(refused, len(call.inputs))
    return parts


def without_info(error: HeadlightError) -> Mapping[str, Any]:
    """Go on with what is usual where there is no `/info`; raises what would fail in any case."""
    if error.status is None or error.status in RETRIED or error.status == _UNAUTHORIZED:
        raise error
    return {}


async def ask_all(
    call: Call[T], parts: Parts, ask: Callable[[range, Progress], Awaitable[Answer[T]]], concurrency: int
) -> Answer[T]:
    """Ask for all parts, `concurrency` at a time; the first HeadlightError is raised and ends the others."""
    answers: dict[int, Answer[T]] = {}
    progress = Progress()

    async def work(done: Callable[[int], object]) -> None:
        for part in parts:
            try:
                answers[part.start] = await ask(part, progress)
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
    return joined([answers[start] for start in sorted(answers)])


def run_apart(work: Callable[[], Coroutine[Any, Any, R]]) -> R:
    """Run a coroutine in an event loop of its own, in a thread of its own: in a notebook one runs already.

    KeyboardInterrupt cancels it, and with it what is on its way.
    """
    with start_blocking_portal() as portal:
        return portal.start_task_soon(work).result()


@contextmanager
def _bar(total: int, *, shown: bool) -> Iterator[Callable[[int], object]]:
    """Draw how many texts are done; raises ModuleNotFoundError without tqdm."""
    if not shown:
        yield lambda _: None
        return
    try:
        tqdm = importlib.import_module("tqdm.auto").tqdm  # text in a terminal, a widget in a notebook
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "progress=True draws with tqdm: pip install tqdm, or leave it out."
        ) from None
    with tqdm(total=total, unit="text") as bar:
        yield bar.update
