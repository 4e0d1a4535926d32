"""Who was told to come back, and is recognized when that time has come."""

import time

from service.engine.admission import Retry
from service.refusals import Absent, Told


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


def test_who_reads_milliseconds_is_told_the_rest_of_a_long_wait() -> None:
    """It comes back after a minute, before its time: it waited, but does not go before others yet."""
    one = Told("a", 100.0, Retry(150.0, 151))
    assert one.is_early(158.9)
    assert not one.is_early(159.1)
    assert not one.returns(159.1)
    assert one.returns(250.1)


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


def test_many_clients_that_never_come_back_are_forgotten() -> None:
    """The first ones go first, and of one client only so many refusals are remembered."""
    absent = Absent()
    for i in range(5000):
        absent.remember(told(f"client {i}", 0.2, ago=1))
        absent.remember(told("flood", 0.2, ago=1))
    assert absent.claim("client 0") is None
    assert absent.claim("client 4999") is not None
