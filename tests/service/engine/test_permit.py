"""What a request keeps until it has ended."""

import threading
from typing import Any

import pytest

from model.contract import Encoding
from service.engine.permit import Permit
from service.system.off_loop import empty_later, off_loop
from tests.support.engines import perform


class Mortal:
    """An object that says which thread freed it."""

    def __init__(self, freed: list[str]) -> None:
        self.freed = freed

    def __del__(self) -> None:
        self.freed.append(threading.current_thread().name)


def of_mortals(count: int, freed: list[str]) -> Encoding:
    tokens: Any = [Mortal(freed) for _ in range(count)]
    return Encoding(tokens, [], [], [], [], [], truncated=False, original_length=count)


@pytest.mark.parametrize("longest", [256, 10_000])
def test_many_tokens_are_freed_beside_the_event_loop(longest: int) -> None:
    """Neither those of many texts nor those of one that runs in windows hold the loop when a request ends."""
    freed: list[str] = []

    async def work() -> None:
        permit, encodings = Permit(), [of_mortals(5000, freed)]
        permit.keep(encodings, (), 5000)
        permit.keep_long(encodings, longest)
        encodings.clear()
        assert not freed
        empty_later(permit.emptied)
        await off_loop(lambda: None)

    perform(work)
    assert freed == ["off-loop_0"] * 5000


def test_few_tokens_are_freed_at_once() -> None:
    """For those it is not worth to wake a thread."""
    freed, permit = list[str](), Permit()
    permit.keep([of_mortals(100, freed)], (), 100)
    permit.keep_long([of_mortals(100, freed)], 50)
    assert len(freed) == 200
    assert not permit.emptied
