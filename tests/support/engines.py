"""Engines that run while a test does, and what is asked of them."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any
from unittest.mock import patch

from model.contract import Encoding, SentenceWant, Want
from service.engine.engine import Engine, Result
from service.engine.measuring import is_shared
from service.engine.permit import Permit
from service.sharing.scoreboard import Counters, single_process
from service.telemetry.metrics import Metrics
from tests.support.doubles import Watched, tokenizer
from tests.support.serving import parse_metrics

SENTENCE = Want(sentence=SentenceWant(("mean",), (6,), normalize=True))


def encode(*texts: str) -> list[Encoding]:
    """Texts as the embedded model's tokenizer reads them."""
    return tokenizer().encode(texts)


def words(count: int) -> Encoding:
    """A text of `count` tokens, special ones included."""
    (encoding,) = encode(" ".join(["word"] * (count - 2)))
    assert len(encoding) == count
    return encoding


@cache
def measured(name: str) -> Counters:
    """Where the first engine of a name writes how fast its model is; those after it read it there."""
    return single_process([name])


@contextmanager
def running(made: Engine, *, afresh: bool = False) -> Iterator[Engine]:
    """Start an engine and end it; what its warm-up ran is forgotten.

    They share a model, which only the first one warms up and measures, and those that start `afresh`.
    """
    if not afresh:
        made._counters = measured(made.name)
    warm = not afresh and is_shared(made._counters, made.name)
    with patch("service.engine.engine.warm_up") if warm else nullcontext():
        made.start()
    backend = made._backend
    if isinstance(backend, Watched):
        backend.forget()
    try:
        yield made
    finally:
        made.close()
        assert not alive(made)


def alive(made: Engine) -> bool:
    """Whether a thread of an engine that runs batches has not ended."""
    return any(runner._thread.is_alive() for runner in made._runners)


def perform(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine to its end, within twenty seconds."""

    async def bounded() -> Any:
        async with asyncio.timeout(20):
            return await work()

    return asyncio.run(bounded())


def submit(
    made: Engine, encodings: Sequence[Encoding], want: Want = SENTENCE, client: str = ""
) -> "asyncio.Task[Result]":
    """Hand a request to an engine without waiting for its answer."""
    return asyncio.ensure_future(made.submit(encodings, [want] * len(encodings), Permit(client)))


async def until(happened: Callable[[], object]) -> None:
    """Wait until something has happened."""
    while not happened():
        await asyncio.sleep(0.002)


async def hold(made: Engine, backend: Watched) -> "asyncio.Task[Result]":
    """Occupy the worker with a sequence that waits at the gate."""
    backend.gate.clear()
    backend.entered.clear()
    holder = submit(made, encode("hold"))
    await until(backend.entered.is_set)
    return holder


def samples(metrics: Metrics) -> dict[str, float]:
    """Every sample of a registry, by its name and labels."""
    return parse_metrics(metrics.exposition().decode())
