"""Scrapes that come close together share one exposition."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from service.telemetry.scrapes import Scrapes


class Maker:
    """Makes expositions and remembers when it began each."""

    def __init__(self) -> None:
        self.begun: list[float] = []
        self.threads: set[int] = set()

    def __call__(self) -> bytes:
        self.begun.append(time.monotonic())
        self.threads.add(threading.get_ident())
        time.sleep(0.005)
        return b"%d" % len(self.begun)


def test_scrapes_of_a_second_share_one() -> None:
    """As many as there are: one exposition, and after a second another one, made off the event loop."""

    async def scrape() -> None:
        make, scrapes = Maker(), Scrapes()
        start = time.monotonic()
        while time.monotonic() < start + 2.5:
            await asyncio.gather(*(scrapes.answer(make) for _ in range(40)))
            await asyncio.sleep(0.01)
        took = time.monotonic() - start
        assert 2 <= len(make.begun) <= 1 + took
        assert threading.get_ident() not in make.threads

    asyncio.run(scrape())


def test_a_fresh_one_is_not_older_than_its_scrape() -> None:
    """Those that come together share one; however many come, there are ten in a second at most."""

    async def scrape() -> None:
        make, scrapes = Maker(), Scrapes()
        start = time.monotonic()

        async def client() -> None:
            while (asked := time.monotonic()) < start + 0.6:
                number = int(await scrapes.answer(make, fresh=True))
                assert make.begun[number - 1] >= asked

        await asyncio.gather(*(client() for _ in range(20)))
        took = time.monotonic() - start
        assert 2 <= len(make.begun) <= 2 + took / 0.1

    asyncio.run(scrape())


def test_a_client_that_goes_takes_nothing_from_the_others() -> None:
    """The exposition that both wait for is made all the same."""

    async def scrape() -> None:
        make, scrapes = Maker(), Scrapes()
        gone = asyncio.create_task(scrapes.answer(make))
        stays = asyncio.create_task(scrapes.answer(make))
        await asyncio.sleep(0)
        gone.cancel()
        assert await stays == b"1"
        with pytest.raises(asyncio.CancelledError):
            await gone

    asyncio.run(scrape())


def test_one_that_fails_is_made_again() -> None:
    """All that waited for it learn why, and the next scrape does not wait for ever."""

    def fail() -> bytes:
        raise ValueError("no exposition")

    async def scrape() -> None:
        scrapes = Scrapes()
        made: list[Callable[[], bytes]] = [fail, fail]
        ends = await asyncio.gather(*map(scrapes.answer, made), return_exceptions=True)
        assert [str(end) for end in ends] == ["no exposition"] * 2
        assert await asyncio.wait_for(scrapes.answer(Maker()), 5) == b"1"

    asyncio.run(scrape())
