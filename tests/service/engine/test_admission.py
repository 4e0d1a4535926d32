"""What a queue takes, and when what it refuses should come back."""

import heapq
import math
import random
from dataclasses import replace

import pytest

from service.engine.admission import (
    Backlog,
    Demand,
    Load,
    Retry,
    RetryTimes,
    exceeds,
    fits_beside_heaviest,
    wait_s,
)
from service.sharing.scoreboard import Scoreboard

LIMIT_S = 30.0
NOTHING = Load(0.0, 0.0, 0)


def test_an_idle_device_takes_any_request() -> None:
    """However much it is: no other request would be served earlier if it were refused."""
    assert not exceeds(Demand("a", 10**6, 1000.0), NOTHING, LIMIT_S)


def test_what_cannot_be_done_in_time_is_refused() -> None:
    """Behind twenty seconds of work six more can be done within thirty; ten would leave nothing to spare."""
    load = Load(20.0, 0.0, 2)
    assert not exceeds(Demand("b", 100, 6.0), load, LIMIT_S)
    assert exceeds(Demand("b", 100, 10.0), load, LIMIT_S)


def test_a_client_leaves_as_much_free_as_it_uses() -> None:
    """So that a newcomer finds room, whatever one client sends."""
    load = Load(12.0, 12.0, 1)
    assert exceeds(Demand("a", 100, 3.0), load, LIMIT_S)
    assert not exceeds(Demand("newcomer", 100, 3.0), Load(12.0, 0.0, 1), LIMIT_S)


def test_a_light_client_has_a_part_that_heavy_ones_cannot_fill() -> None:
    """When heavy clients have filled theirs, a short text is still taken, and the next heavy one is not."""
    full = Load(26.0, 0.0, 3)
    assert exceeds(Demand("heavy", 10_000, 3.0), full, LIMIT_S)
    assert not exceeds(Demand("light", 10, 0.01), full, LIMIT_S)


def test_a_light_client_is_taken_beside_one_that_fills_the_time() -> None:
    """Two processes took a request of a whole deadline each; what is small is done beside these."""
    full = Load(2 * LIMIT_S, 0.0, 1)
    light, heavy = Demand("light", 10, 0.01, LIMIT_S), Demand("heavy", 10_000, 3.0, LIMIT_S)
    assert exceeds(light, full, LIMIT_S)
    assert fits_beside_heaviest(light, full, 0.0, LIMIT_S)
    assert not fits_beside_heaviest(heavy, full, 0.0, LIMIT_S)
    assert not fits_beside_heaviest(light, full, 4.0, LIMIT_S), "other light ones have filled their part"
    assert not fits_beside_heaviest(replace(light, within_s=0.015), full, 0.0, LIMIT_S)


def test_what_comes_back_when_it_was_told_to_may_exceed_its_share() -> None:
    """But not take the part that is for light clients, and it must be in time."""
    load = Load(20.0, 20.0, 1)
    assert exceeds(Demand("a", 100, 6.0), load, LIMIT_S)
    assert not exceeds(Demand("a", 100, 6.0, returned=True), load, LIMIT_S)
    assert exceeds(Demand("a", 100, 6.5, returned=True), load, LIMIT_S)
    assert exceeds(Demand("a", 100, 6.0, within_s=20.0, returned=True), load, LIMIT_S)


def test_a_short_deadline_is_met_in_equal_shares() -> None:
    """Beside a long queue of another client, a light one gets an answer within a second, and no heavy one."""
    load = Load(10.0, 0.0, 1)
    assert not exceeds(Demand("light", 10, 0.1, within_s=1.0), load, LIMIT_S)
    assert exceeds(Demand("heavy", 10, 2.0, within_s=1.0), load, LIMIT_S)


def test_the_work_of_other_processes_and_models_counts() -> None:
    """They run on the same cores."""
    scoreboard = Scoreboard(2, ["one", "two"])
    here, there = Backlog(scoreboard.counters(0)), Backlog(scoreboard.counters(1))
    here.set("one", 1.0)
    here.set("two", 2.0)
    there.set("one", 4.0)
    assert here.beside("one") == pytest.approx(6.0)
    assert there.beside("one") == pytest.approx(3.0)


def simulate(
    clients: int, seconds: float, limit_s: float, processes: int, *, whole: bool
) -> tuple[int, float]:
    """Send one request of each client at once; those refused come back as they were told, five times at most.

    A client that reads milliseconds may come before its time, and is told the same time again.

    Returns how many were answered, and the whole time relative to that of the work. A clock of its own runs:
    the device takes `seconds` for a request, and requests are refused as a queue refuses them.
    """
    scoreboard = Scoreboard(processes, ["model"])
    times = [RetryTimes(scoreboard.counters(slot)) for slot in range(processes)]
    arrivals = [(client / 1000, client, 0) for client in range(clients)]
    promised: dict[int, tuple[float, Retry]] = {}
    heapq.heapify(arrivals)
    ends, answered = 0.0, 0
    while arrivals:
        now, client, tries = heapq.heappop(arrivals)
        left = max(0.0, ends - now)
        demand, load = Demand("all", 100, seconds), Load(left, left, 1)
        if not exceeds(demand, load, limit_s):
            ends = max(now, ends) + seconds
            answered += 1
        elif tries < 5:
            told_at, found = promised.get(client, (now, Retry(0.0, 0)))
            if now < told_at + found.seconds:
                found = found.later(now - told_at)
            else:
                found = times[client % processes].after(
                    str(client), wait_s(demand, load, limit_s), seconds, limit_s / 4, now
                )
            promised[client] = now, found
            later = found.whole if whole else found.milliseconds / 1000
            heapq.heappush(arrivals, (now + later, client, tries + 1))
    return answered, ends / (clients * seconds)


@pytest.mark.parametrize("whole", [True, False], ids=["seconds", "milliseconds"])
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("clients", [12, 24, 100])
@pytest.mark.parametrize(
    ("seconds", "limit_s"), [(1.0, 30.0), (2.0, 30.0), (1.0, 4.0), (2.0, 6.0), (2.0, 2.0)]
)
def test_clients_that_come_back_when_they_are_told_to_are_all_answered(
    clients: int, seconds: float, limit_s: float, processes: int, whole: bool
) -> None:
    """With five retries, whether they read seconds or milliseconds, and nearly as fast as the work allows."""
    for seed in range(10):
        random.seed(seed)
        answered, ratio = simulate(clients, seconds, limit_s, processes, whole=whole)
        assert answered == clients
        assert ratio <= 1.3


def test_in_one_second_no_more_come_back_than_fit_at_once() -> None:
    """Of a queue of a tenth of a second, clients that read whole seconds come back over many seconds."""
    random.seed(0)
    for clients in (12, 24, 100):
        assert simulate(clients, 0.02, 0.1, 1, whole=True)[0] == clients


def test_the_milliseconds_are_less_than_a_minute_and_the_seconds_are_true() -> None:
    """Libraries take more milliseconds than that for a mistake, and come back at once or never."""
    retry_times = RetryTimes()
    times = [retry_times.after("a", 10.0, 5.0, 10.0, now=100.0) for _ in range(1000)]
    assert all(0 < time.milliseconds < 60_000 and time.whole >= 1 for time in times)
    assert math.isclose(min(time.seconds for time in times), 10.0, abs_tol=1.0)
    assert times[50].whole >= 10 + 50 * 5
    assert 595 < max(time.whole for time in times) <= 600


def test_a_process_that_shares_the_cores_takes_what_its_part_of_them_can_do() -> None:
    """Others go on with what they get: ten seconds and six more take 32 s of two processes, or 16 s alone."""
    demand = Demand("b", 100, 6.0)
    shared = Load(16.0, 0.0, 2, here_s=10.0, sharers=2)
    assert exceeds(demand, shared, LIMIT_S)
    assert not exceeds(demand, replace(shared, sharers=1), LIMIT_S)
    assert not exceeds(demand, replace(shared, here_s=4.0), LIMIT_S)
    wait = wait_s(demand, shared, LIMIT_S)
    assert not exceeds(demand, replace(shared, seconds=16.0 - wait, here_s=10.0 - wait / 2), LIMIT_S)


def test_a_sibling_that_has_little_work_takes_no_part_of_the_cores() -> None:
    """What a few short texts take is no reason to refuse long ones."""
    scoreboard = Scoreboard(3, ["one"])
    here, *others = (Backlog(scoreboard.counters(slot)) for slot in range(3))
    for other, seconds in zip(others, (0.1, 4.0), strict=True):
        other.set("one", seconds)
    assert here.sharers(0.5) == 2


def test_what_one_client_announces_does_not_put_off_the_others() -> None:
    """Twenty requests that would take ten seconds each, of which none need ever come."""
    retry_times = RetryTimes()
    flood = [retry_times.after("flood", 5.0, 10.0, 7.5, now=100.0) for _ in range(20)]
    assert flood[19].seconds >= 5 + 19 * 10, "its own come one after the other"
    assert retry_times.after("other", 5.0, 1.0, 7.5, now=100.0).seconds < 30
    assert retry_times.after("flood", 5.0, 10.0, 7.5, now=700.0).seconds < 30, "once they are over, as before"


def test_light_clients_have_their_part_in_each_process() -> None:
    """What others have filled is not theirs, and of two processes this one has half."""
    light = Demand("light", 10, 0.01)
    assert not exceeds(light, Load(28.0, 0.0, 3, here_s=28.0), LIMIT_S)
    assert not exceeds(light, Load(20.0, 0.0, 3, here_s=14.0, sharers=2), LIMIT_S)
    assert exceeds(replace(light, seconds=3.0), Load(20.0, 0.0, 3, here_s=14.0, sharers=2), LIMIT_S)


def test_other_models_of_the_process_count_as_its_own() -> None:
    """They take their turns with it."""
    backlog = Backlog()
    backlog.set("one", 1.0)
    backlog.set("two", 2.0)
    assert backlog.here("one") == 2.0


def test_short_requests_are_not_told_more_than_a_minute_for_the_sake_of_whole_seconds() -> None:
    """A hundred requests of 36 ms: clients that read whole seconds come back in a minute at the latest."""
    retry_times = RetryTimes()
    times = [retry_times.after(str(i), 0.01, 0.036, 0.018, now=100.0) for i in range(100)]
    assert max(time.seconds for time in times) < 6
    assert max(time.whole for time in times) < 60
