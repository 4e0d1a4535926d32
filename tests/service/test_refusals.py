"""Who was told to come back, and is recognized when that time has come."""

import time

from service.engine.admission import Retry
from service.engine.permit import Permit
from service.refusals import Absent, Told, told_after


def told(client: str, seconds: float, *, ago: float) -> Told:
    """What a client was told some seconds ago."""
    return Told(client, time.monotonic() - ago, Retry.after(seconds))


def test_a_client_returns_when_it_was_told_to() -> None:
    """Not before, up to the whole second that some read instead and a while after, and no later."""
    one = Told("a", 100.0, Retry(1.5, 4))
    assert one.waits(101.4)
    assert not one.returns(101.4)
    assert one.returns(101.5)
    assert one.returns(104.5)
    assert not one.returns(110.0)
    assert one.over(110.0)


def test_a_client_that_reads_milliseconds_is_told_the_rest_of_a_long_wait() -> None:
    """It comes back after a minute, before its time: it waited, but does not go before others yet."""
    one = Told("a", 100.0, Retry(150.0, 151))
    assert one.is_early(158.9)
    assert not one.is_early(159.1)
    assert not one.returns(159.1)
    assert one.returns(250.1)


def test_a_flood_after_the_first_minute_is_no_patience() -> None:
    """It may come once a minute before its time, no more often."""
    one = Told("a", 100.0, Retry(150.0, 151)).again(160.0)
    assert one.returns(250.0)
    assert one.again(219.5).returns(250.0)
    assert not one.again(170.0).returns(250.0)


def test_only_a_body_as_large_as_that_which_was_refused_comes_back() -> None:
    """Or else what was told to a short one would let in a long one."""
    one, permit = Told("a", 100.0, Retry(1.5, 4), 1000), Permit(body_bytes=1500)
    assert one.covers(1500, 102.0)
    assert not one.covers(5000, 102.0)
    assert one.admitted(permit, 102.0) is None
    assert permit.returned
    permit.body_bytes = 5000
    assert not permit.returned


def test_what_was_told_is_over_once_its_request_is_answered() -> None:
    """Also if it came before its time; if it was refused once more, the same moment holds."""
    told, served, refused = Told("a", 100.0, Retry(150.0, 151), 10), Permit(), Permit()
    for permit in (served, refused):
        kept = told.admitted(permit, 160.0)
    assert told_after(served, kept, 161.0) is None
    refused.retry = refused.promised
    assert told_after(refused, kept, 161.0) == kept
    assert told_after(Permit(client="a", retry=Retry(2.0, 2)), None, 161.0) == Told("a", 161.0, Retry(2.0, 2))
    assert told_after(Permit(), told, 161.0) == told, "another route"


def test_who_asks_again_before_its_time_does_not_return() -> None:
    """A flood that repeats its requests at once would fill the queue with them."""
    one = Told("a", 100.0, Retry(1.5, 4))._replace(patient=False)
    assert one.waits(101.4)
    assert not one.returns(101.5)


def test_a_client_whose_connection_was_closed_is_recognized_once_for_each_refusal() -> None:
    """When its time has come: what another client was told, or what is over, is no reason."""
    absent = Absent()
    for one in (told("a", 0.2, ago=60), told("a", 0.2, ago=1), told("a", 30, ago=1), told("b", 0.2, ago=1)):
        absent.remember(one)
    assert absent.claim("c") is None
    first = absent.claim("a")
    assert first is not None
    assert first.retry.seconds == 0.2
    assert absent.claim("a") is None
    assert absent.claim("b") is not None
    assert absent.claim("b") is None
    absent.remember(told("d", 150.0, ago=58))
    assert absent.claim("d") is None
    absent.remember(told("e", 150.0, ago=60))
    assert absent.claim("e") is not None
    for seconds in (300.0, 65.0):
        absent.remember(told("f", seconds, ago=66))
    first = absent.claim("f")
    assert first is not None
    assert first.retry.seconds == 65.0, "not that which is not due"


def test_many_clients_that_never_come_back_are_forgotten() -> None:
    """The first ones go first, and of one client only so many refusals are remembered."""
    absent = Absent()
    for i in range(5000):
        absent.remember(told(f"client {i}", 0.2, ago=1))
        absent.remember(told("flood", 0.2, ago=1))
    assert absent.claim("client 0") is None
    assert absent.claim("client 4999") is not None
