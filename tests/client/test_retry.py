"""When the client sends a request again: decisions, and the same over a socket."""

import asyncio
import itertools
import json
import math
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from headlight_client import (
    AsyncHeadlight,
    Headlight,
    HeadlightConnectionError,
    HeadlightError,
    HeadlightTimeout,
)
from headlight_client.errors import retry_after
from headlight_client.retry import Attempts, Retries, decide
from tests.support.serving import free_port
from tests.support.stand_in import Reply, refused, stand_in

pytestmark = pytest.mark.alone

ITEM = {
    "index": 0,
    "tokens": ["a"],
    "token_ids": [1],
    "offsets": [[0, 1]],
    "word_ids": [0],
    "segment_ids": [0],
    "special": [False],
    "truncated": False,
    "original_length": 1,
    "embedding": [0.5],
}
ANSWER = Reply(
    pieces=[json.dumps({"model": "m", "data": [ITEM], "usage": {"input_tokens": 1}}).encode()],
    headers={"Content-Type": "application/json"},
)
FIVE = Retries(5, 60.0)


def error(status: int = 429, retry_after: float | None = None) -> HeadlightError:
    return HeadlightError(status, {}, retry_after)


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 500, 504])
def test_other_errors_are_final(status: int) -> None:
    """Only what passes by itself is tried again: not what would fail in the same way."""
    assert decide(error(status, 1.0), FIVE, 0, 0.0, 0.5) is None


@pytest.mark.parametrize(
    "kind", [httpx.ReadTimeout, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.WriteTimeout]
)
def test_timeouts_are_final(kind: type[httpx.TransportError]) -> None:
    """A service that is still at work is not given the same work a second time."""
    assert decide(kind(""), FIVE, 0, 0.0, 0.5) is None


@pytest.mark.parametrize(
    "kind", [httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError]
)
def test_waits_grow_by_doubling_up_to_a_cap(kind: type[httpx.TransportError]) -> None:
    """Without a word from the service the wait doubles from 0.1 s, half of it by chance, up to 5 s."""
    many = Retries(20, 1e9)
    longest = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    for chance in (0.0, 0.25, 0.999):
        waits = [decide(kind(""), many, counted, 0.0, chance) for counted in range(8)]
        assert waits == pytest.approx([wait * (1 + chance) / 2 for wait in longest])


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("asked", [0.001, 0.2, 2.5, 7.0, 40.0])
def test_a_named_time_is_kept(status: int, asked: float) -> None:
    """The client never comes back sooner than it was asked to, nor much later, when it is others' turn."""
    waits = [decide(error(status, asked), FIVE, 0, 0.0, chance) for chance in (0.0, 0.5, 0.999)]
    assert waits == sorted(waits, key=lambda wait: wait or 0.0)
    assert waits[0] == asked
    assert waits[2] is not None
    assert asked < waits[2] < asked + min(0.25, 0.1 * asked)


def test_attempts_and_their_time_are_bounded() -> None:
    """The fifth retry at a time of its own choice is the last, and no wait ends after the time there is."""
    assert decide(error(), FIVE, 4, 0.0, 0.5) is not None
    assert decide(error(), FIVE, 5, 0.0, 0.5) is None
    assert decide(error(retry_after=3.0), FIVE, 0, 57.0, 0.9) == pytest.approx(3.0)
    assert decide(error(retry_after=3.0), FIVE, 0, 57.1, 0.0) is None
    assert decide(error(), FIVE, 0, 60.0, 0.5) is None
    for asked in (None, 3.0):
        assert decide(error(retry_after=asked), Retries(0, 60.0), 0, 0.0, 0.5) is None
    with pytest.raises(ValueError, match="must not be negative"):
        Headlight(retries=-1)


def test_an_attempt_counts_itself() -> None:
    """Each wait counts one attempt, unless the service named its time; the last error is the one raised."""
    attempts = Attempts(Retries(2, 60.0), "http://localhost/encode")
    last = error()
    for failure in (error(), error(retry_after=3.0), error(503, 1.0), error(retry_after=3.0), error()):
        attempts.wait_after(failure)
    with pytest.raises(HeadlightError) as raised:
        attempts.wait_after(last)
    assert raised.value is last


def test_retry_after_is_seconds_or_a_date() -> None:
    """Both forms are read; a date is measured by the service's own clock; anything else says nothing."""
    now = datetime.now(UTC)
    then = format_datetime(now + timedelta(seconds=90), usegmt=True)
    assert retry_after({"retry-after": "17"}) == 17.0
    assert retry_after({"retry-after": then}) == pytest.approx(90, abs=2)
    skewed = format_datetime(now + timedelta(seconds=80), usegmt=True)
    assert retry_after({"retry-after": then, "date": skewed}) == 10.0
    assert retry_after({"retry-after": skewed, "date": then}) == 0.0
    for nothing in ("", "soon", "-1", "1.5", "٣"):
        assert retry_after({"retry-after": nothing}) is None
    assert retry_after({}) is None


def test_milliseconds_go_before_seconds() -> None:
    """The more exact header is read first, of any length; what is no number of milliseconds is ignored."""
    for value, seconds in (("250", 0.25), ("0", 0.0), (" 17.5 ", 0.0175), ("59000.000", 59.0)):
        assert retry_after({"retry-after-ms": value, "retry-after": "7"}) == seconds
        assert retry_after({"retry-after-ms": value}) == seconds
    assert retry_after({"retry-after-ms": "1" + 400 * "0"}) == math.inf
    for nothing in ("", "-1", "+1", "soon", "1e3", "1.", ".5", "1_0", "0x1", "nan", "inf", "1, 2", "٣"):
        assert retry_after({"retry-after-ms": nothing, "retry-after": "7"}) == 7.0
        assert retry_after({"retry-after-ms": nothing}) is None


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_service_is_asked_again_whenever_it_says(status: int) -> None:
    """Refusals that name a time use up no retries, and each is waited for; others count as before."""
    busy = [refused(status, retry_after_ms="60", Retry_After="1") for _ in range(8)]
    with stand_in(*busy, Reply(reset=True), ANSWER) as server, Headlight(server.url, retries=1) as client:
        assert client.encode("a").model == "m"
    times = [one.at for one in server.received[:9]]
    assert len(server.received) == 10
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) >= 0.06
    assert times[-1] - times[0] < 8
    with (
        stand_in(*busy, Reply(reset=True)) as server,
        Headlight(server.url, retries=1) as client,
        pytest.raises(HeadlightConnectionError),
    ):
        client.encode("a")
    assert len(server.received) == 10


def test_a_busy_service_is_asked_no_longer_than_there_is_time() -> None:
    """Refusals that name a time end with the client's own time, or at once if it never asks again."""
    with stand_in(refused(429, retry_after_ms="200")) as server:
        start = time.monotonic()
        with Headlight(server.url, retry_for=1) as client, pytest.raises(HeadlightError, match="Wait"):
            client.encode("a")
        assert time.monotonic() - start < 2
        assert 2 <= len(server.received) <= 6
        server.received.clear()
        with Headlight(server.url, retries=0) as client, pytest.raises(HeadlightError) as raised:
            client.encode("a")
        assert raised.value.retry_after == 0.2
        assert len(server.received) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_a_refused_request_is_sent_again_when_it_was_asked_to(status: int) -> None:
    """Refused with Retry-After: 1, the same request comes again after at least a second."""
    with stand_in(refused(status, Retry_After="1"), ANSWER) as server, Headlight(server.url) as client:
        answer = client.encode("a", dimensions=1)
    first, second = server.received
    assert 1.0 <= second.at - first.at < 2.5
    assert first.body == second.body == {"inputs": "a", "dimensions": 1}
    assert answer[0].tokens == ["a"]


def test_async_waits_let_others_run() -> None:
    """The asynchronous client retries as the other does, and the event loop turns meanwhile."""

    async def run(url: str) -> tuple[int, float]:
        async with AsyncHeadlight(url) as client:
            asked = asyncio.ensure_future(client.encode("a"))
            ticks = 0
            while not asked.done():
                await asyncio.sleep(0.01)
                ticks += 1
            embedding = (await asked)[0].embedding
            assert embedding is not None
            return ticks, float(embedding[0])

    with stand_in(refused(503, Retry_After="1"), Reply(reset=True), ANSWER) as server:
        ticks, number = asyncio.run(run(server.url))
    assert ticks > 10
    assert number == 0.5
    assert len(server.received) == 3


def test_a_wait_that_is_too_long_raises_at_once() -> None:
    """Asked to wait beyond its time, the client says so now, not then."""
    until = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    for asked in ("3600", until):
        with (
            stand_in(refused(429, Retry_After=asked)) as server,
            Headlight(server.url, retry_for=5) as client,
        ):
            start = time.monotonic()
            with pytest.raises(HeadlightError, match="Wait") as raised:
                client.encode("a")
            assert time.monotonic() - start < 2
        assert raised.value.retry_after == pytest.approx(3600, abs=3)
        assert len(server.received) == 1


@pytest.mark.parametrize("said", [{}, {"Retry_After": "0"}, {"Retry_After": "Sat, 01 Jan 2000 00:00:00 GMT"}])
def test_the_last_refusal_is_raised(said: dict[str, str]) -> None:
    """A service that keeps refusing, and names no time to come, is asked once and `retries` times more."""
    with (
        stand_in(refused(503, None, **said)) as server,
        Headlight(server.url, retries=3) as client,
        pytest.raises(HeadlightError) as raised,
    ):
        client.attention("a")
    assert raised.value.status == 503
    assert len(server.received) == 4


def test_a_reset_before_the_answer_is_tried_again() -> None:
    """A connection that breaks before a word was said costs nothing but time."""
    with stand_in(Reply(reset=True), Reply(reset=True), ANSWER) as server, Headlight(server.url) as client:
        assert client.encode("a").model == "m"
    assert len(server.received) == 3


def test_a_reset_within_the_answer_is_the_clients_to_see() -> None:
    """An answer that breaks off is an error of the connection, not a shorter answer."""
    broken = Reply(pieces=ANSWER.pieces, headers=ANSWER.headers, length=10_000)
    with (
        stand_in(broken, ANSWER) as server,
        Headlight(server.url) as client,
        pytest.raises(HeadlightConnectionError, match=f"{server.url}/encode broke before") as raised,
    ):
        client.encode("a")
    assert len(server.received) == 1
    assert isinstance(raised.value.__cause__, httpx.RemoteProtocolError)


def test_a_service_that_is_late_to_start_is_waited_for() -> None:
    """Connections refused are tried again, and without retries the refusal is the error."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with (
        Headlight(url, retries=0) as client,
        pytest.raises(HeadlightConnectionError, match=f"{url}/encode cannot be reached: ") as raised,
    ):
        client.encode("a")
    assert (raised.value.url, raised.value.status) == (f"{url}/encode", None)
    assert isinstance(raised.value.__cause__, httpx.ConnectError)
    answered: list[str] = []

    def ask() -> None:
        with Headlight(f"http://127.0.0.1:{port}", retries=8) as client:
            answered.append(client.encode("a").model)

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.3)
    with stand_in(ANSWER, port=port):
        asking.join(20)
    assert answered == ["m"]


def test_a_timeout_is_not_tried_again() -> None:
    """A service that is slow gets the request once."""
    slow = Reply(pieces=ANSWER.pieces, headers=ANSWER.headers, after_s=0.6)
    with (
        stand_in(slow) as server,
        Headlight(server.url, timeout=0.2) as client,
        pytest.raises(HeadlightTimeout, match=r"/encode sent nothing for 0\.2 s: allow more") as raised,
    ):
        client.encode("a")
    assert isinstance(raised.value.__cause__, httpx.ReadTimeout)
    assert len(server.received) == 1


def test_streams_are_retried_before_they_begin() -> None:
    """A stream that is refused is opened again; one that has begun is not."""
    line = json.dumps(ITEM).encode() + b"\n"
    streamed = {"Content-Type": "application/x-ndjson"}
    begun = Reply(pieces=[line], headers=streamed, length=10_000)
    with stand_in(refused(429, Retry_After="0"), begun) as server, Headlight(server.url) as client:
        items = client.stream_encode("a")
        assert [item.index for item in itertools.islice(items, 1)] == [0]
        with pytest.raises(HeadlightConnectionError, match="broke before the response was complete"):
            next(items)
    assert len(server.received) == 2
