"""Clients whose requests are refused, or need no model, rest while others send requests."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from itertools import count

from service.clients.presence import PRESENT_S, Presence
from service.clients.turns import Turns
from service.engine.permit import Permit
from service.sharing.scoreboard import Scoreboard
from tests.support.engines import perform

REQUEST_S = 0.005


async def request(turns: Turns, client: str, *, queued: bool = False) -> float:
    """Read a request, serve it in `REQUEST_S` of the event loop; returns when it was read."""
    read = asyncio.get_running_loop().create_future()
    turns.read(client, lambda: read.set_result(time.monotonic()))
    when: float = await asyncio.wait_for(read, 10)

    async def serve() -> None:
        until = time.perf_counter() + REQUEST_S
        while time.perf_counter() < until:
            pass

    await asyncio.ensure_future(turns.timed(Permit(client, queued=queued), serve()))
    return when


async def pause(turns: Turns, client: str, *, queued: bool = False) -> float:
    """How long after the end of a client's request the next one is read, in seconds."""
    await request(turns, client, queued=queued)
    ended = time.monotonic()
    return await request(turns, client, queued=queued) - ended


async def shortest_pause(turns: Turns, client: str, *, queued: bool = False) -> float:
    """The shortest of some, since others run here; a client that rests does so after each request."""
    return min([await pause(turns, client, queued=queued) for _ in range(8)])


def present(*clients: str) -> Turns:
    """Turns of a loop on which these clients have just sent something."""
    presence = Presence()
    for client in clients:
        presence.note(client)
    return Turns(presence)


def test_a_client_rests_after_what_took_no_queue_if_others_are_there() -> None:
    """A flood of refusals leaves the cores to the passes of other clients."""

    async def work() -> None:
        turns = present("flood", "other")
        assert await pause(turns, "flood") >= 3 * REQUEST_S

    perform(work)


def test_a_client_that_is_alone_never_rests() -> None:
    """Nobody gains by its resting."""

    async def work() -> None:
        presence = Presence()
        turns = Turns(presence)
        presence.note("other")
        await asyncio.sleep(1.5 * PRESENT_S)
        presence.note("flood")
        assert await shortest_pause(turns, "flood") < REQUEST_S

    perform(work)


def test_work_for_a_model_needs_no_rest() -> None:
    """The queue of a model shares that fairly already, and a rest would waste the model's time."""

    async def work() -> None:
        turns = present("heavy", "other")
        assert await shortest_pause(turns, "heavy", queued=True) < REQUEST_S

    perform(work)


def test_others_do_not_wait_for_a_client_that_rests() -> None:
    """Its steps wait; those of others are done in their turns, at once if nothing else waits."""

    async def work() -> None:
        turns = present("flood", "other")
        turns.rest("flood", 1.0)
        done = list[str]()
        turns.read("flood", lambda: done.append("flood"))
        turns.begin("flood", lambda: done.append("begun"))
        turns.probe("other", lambda: done.append("probe"))
        turns.read("other", lambda: done.append("read"))
        turns.begin("other", lambda: done.append("begin"))
        assert done == ["read", "begin"]
        await asyncio.sleep(0)
        assert done == ["read", "begin", "probe"]
        # A rest has an end, after which everything is done though nothing else arrives.
        until = time.monotonic() + 5
        while turns.waiting and time.monotonic() < until:
            await asyncio.sleep(0.01)
        assert done[3:] == ["begun", "flood"]

    perform(work)


def test_a_longer_rest_of_one_client_delays_no_other() -> None:
    """Each of those that rest has its own time, also if that is moved while it waits."""

    async def work() -> None:
        turns, done = present("a", "b"), list[str]()
        turns.rest("a", 0.005)
        turns.rest("b", 0.010)
        for client in ("a", "b"):
            turns.read(client, partial(done.append, client))
        turns.rest("a", 1.0)
        while turns.waiting:
            await asyncio.sleep(0.001)
        assert done == ["b", "a"]

    perform(work)


def test_presence_is_that_in_all_processes() -> None:
    """The flood may be on one process, and the client that suffers on another."""
    scoreboard = Scoreboard(2, ["model"])
    first, second = Presence(scoreboard.counters(0)), Presence(scoreboard.counters(1))
    first.note("a")
    second.note("a")
    assert not first.has_others("a")
    assert first.has_others("b")
    second.note("b")
    assert first.has_others("a")
    assert second.has_others("a")
    time.sleep(1.2 * PRESENT_S)
    second.note("a")
    assert not first.has_others("a")


def test_what_is_seen_between_two_requests_counts() -> None:
    """A client that sends many requests does not hide the one before it."""
    presence = Presence()
    presence.note("polite")
    for _ in range(3):
        presence.note("flood")
    assert presence.has_others("flood")


def test_newcomers_do_not_stay_before_a_client_that_returns() -> None:
    """However many clients come for the first time, one that has used the loop before has its turns."""

    async def work() -> None:
        turns, read, newcomers = Turns(), list[str](), count()

        def arrive() -> None:
            name = f"newcomer {next(newcomers)}"
            turns.read(name, partial(take, name, arrive), later=True)

        def take(name: str, then: Callable[[], None] = lambda: None) -> None:
            read.append(name)
            until = time.perf_counter() + 0.0002
            while time.perf_counter() < until:
                pass
            then()

        for _ in range(5):
            arrive()
        turns.charge("polite", 0.05)
        turns.read("polite", partial(take, "polite"), later=True)
        until = time.monotonic() + 5
        while "polite" not in read and time.monotonic() < until:
            await asyncio.sleep(0)
        assert "polite" in read
        assert len(read) < 5000

    perform(work)


def test_steps_of_a_client_stay_in_order() -> None:
    """What arrives when a rest is over waits behind what arrived before that."""

    async def work() -> None:
        turns, done = present("flood", "other"), list[int]()
        turns.rest("flood", 0.001)
        turns.read("flood", partial(done.append, 1))
        time.sleep(0.02)  # the rest is over, and the loop has not noticed
        turns.read("flood", partial(done.append, 2))
        turns.begin("flood", partial(done.append, 3))
        while turns.waiting:
            await asyncio.sleep(0.001)
        assert done.index(1) < done.index(2)

    perform(work)


def test_probes_never_rest() -> None:
    """Not even those of a client that sends errors beside them."""

    async def work() -> None:
        turns, done = present("flood", "other"), list[str]()
        turns.rest("flood", 1.0)
        turns.probe("flood", partial(done.append, "probe"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert done == ["probe"]

    perform(work)


def test_what_reading_took_is_rested_for() -> None:
    """A body in a thousand pieces costs the loop more in reading than in the error that it gets."""

    async def work() -> None:
        turns = present("flood", "other")

        def slowly() -> None:
            until = time.perf_counter() + 0.02
            while time.perf_counter() < until:
                pass

        turns.read("flood", slowly)
        turns.rest("flood", 0.0)
        rested = asyncio.get_running_loop().create_future()
        start = time.monotonic()
        turns.read("flood", lambda: rested.set_result(time.monotonic()))
        assert await asyncio.wait_for(rested, 5) - start >= 0.06

    perform(work)
