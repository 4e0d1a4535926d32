"""Several engines on one scheduler."""

import threading
import time
from collections.abc import Sequence

import pytest

from service.engine.lane_scheduler import LaneScheduler
from service.sharing.scoreboard import LANES, Scoreboard

pytestmark = pytest.mark.alone


def compete(scheduler: LaneScheduler, owners: Sequence[tuple[str, int]], seconds: float = 0.3) -> list[str]:
    """Owners that always have work, with so many tokens a batch, in the order of their turns."""
    order, inside = list[str](), list[int]()
    until = time.monotonic() + seconds

    def work(name: str, tokens: int) -> None:
        while time.monotonic() < until:
            with scheduler.turn(name) as turn:
                inside.append(1)
                assert len(inside) <= scheduler.lanes
                scheduler.charge(turn, tokens)
                order.append(name)
                time.sleep(0.001)
                inside.pop()

    threads = [threading.Thread(target=work, args=owner) for owner in owners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scheduler.demand == 0
    return order


@pytest.mark.parametrize("lanes", [1, 2])
def test_engines_that_always_have_work_get_equal_turns(lanes: int) -> None:
    """Never more at once than there are lanes, and nobody gets ahead of the others."""
    order = compete(LaneScheduler(lanes), [("a", 10), ("b", 10), ("c", 10)], seconds=1.0)
    counts = [order.count(name) for name in "abc"]
    assert len(order) > 30
    # A thread that the system sets aside between two turns has no work meanwhile, and is owed nothing for it:
    # on a busy machine that happens in one turn of a hundred.
    assert max(counts) - min(counts) <= max(3, 0.05 * len(order) / 3)


def test_shares_are_of_tokens_not_of_turns() -> None:
    """Whoever runs batches of three times the size gets a third of the turns."""
    order = compete(LaneScheduler(), [("large", 300), ("small", 100), ("small", 100)], seconds=0.6)
    large, small = order.count("large"), order.count("small")
    assert large > 20
    assert 2.5 < small / large < 3.5


def test_whoever_was_idle_has_saved_nothing() -> None:
    """After a pause an owner begins where the others are, and does not shut them out to catch up."""
    scheduler = LaneScheduler()
    for _ in range(100):
        with scheduler.turn("busy") as turn:
            scheduler.charge(turn, 1000)
    order = compete(scheduler, [("busy", 100), ("back", 100)])
    assert abs(order.count("busy") - order.count("back")) <= max(3, 0.1 * len(order))


def test_a_process_uses_more_than_its_share_only_while_its_siblings_are_idle() -> None:
    """Its second model waits for its first while a sibling is busy, and no longer than that."""
    scoreboard = Scoreboard(2, ["a", "b"])
    scheduler, sibling = LaneScheduler(2, scoreboard.counters(0)), scoreboard.counters(1)
    granted = threading.Event()

    def second() -> None:
        with scheduler.turn("b"):
            granted.set()

    sibling.own[LANES] = 1
    with scheduler.turn("a"):
        thread = threading.Thread(target=second)
        thread.start()
        assert not granted.wait(0.2)
        sibling.own[LANES] = 0
        assert granted.wait(5)
    thread.join()
