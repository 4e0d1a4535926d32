"""An app whose start waits for its models, for servers that send no request before it is over."""

import asyncio

import pytest

from service.app import create_app
from service.lifecycle import ServiceState
from service.problems import Problem
from service.settings import Settings


def test_a_start_that_waits_ends_with_models_that_are_ready() -> None:
    """When the start is over, the first request is answered."""
    app = create_app(Settings(threads=1, max_batch_tokens=64), wait=True)
    state: ServiceState = app.state.service

    async def start() -> None:
        with pytest.raises(Problem):
            state.check_ready()
        async with app.router.lifespan_context(app):
            state.check_ready()

    asyncio.run(start())


def test_a_start_that_waits_fails_with_its_models() -> None:
    """A model that cannot be loaded ends the start, with the sentence that says why."""
    app = create_app(Settings(model="/nowhere"), wait=True)

    async def start() -> None:
        async with app.router.lifespan_context(app):
            raise AssertionError("it started")

    with pytest.raises(RuntimeError, match="/nowhere"):
        asyncio.run(start())
