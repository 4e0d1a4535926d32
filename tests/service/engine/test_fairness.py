"""Whose turn is it, and how much of a queue may each client hold."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.fairness import ClientQueue, ClientQueues, companions, is_light


@dataclass(eq=False)
class Text:
    """A sequence of a client."""

    client: str
    tokens: int


def queues_of(*waiting: tuple[str, Sequence[int]]) -> ClientQueues[Text]:
    queues: ClientQueues[Text] = ClientQueues()
    for client, lengths in waiting:
        queues.add(client, [Text(client, n) for n in lengths])
    return queues


def take(queues: ClientQueues[Text], number: int) -> list[Text]:
    """Take the first ones, and finish them at once."""
    taken = queues.first(number)
    if taken:
        queues.take(taken)
        queues.finish((queue.client, text.tokens) for queue, text in taken)
    return [text for _, text in taken]


def test_one_client_alone_is_served_in_order() -> None:
    """Where there is nobody to be fair to, the order is that of arrival."""
    queues = queues_of(("a", range(1, 50)))
    assert [text.tokens for text in take(queues, 20)] == list(range(1, 21))
    assert [text.tokens for text in take(queues, 100)] == list(range(21, 50))
    assert len(queues) == 0


def test_one_that_comes_later_is_before_what_another_has_piled_up() -> None:
    """A client's first text does not wait for the hundreds of another that came before it."""
    queues = queues_of(("flood", [100] * 500))
    for _ in range(5):
        take(queues, 10)
    queues.add("lone", [Text("lone", 12)])
    assert "lone" in [text.client for text in take(queues, 2)]


def test_clients_that_always_have_work_get_equal_shares_of_the_tokens() -> None:
    """Whatever the lengths of their texts."""
    queues = queues_of(("long", [200] * 300), ("short", [10] * 6000), ("middle", [50] * 1200))
    tokens = dict.fromkeys(("long", "short", "middle"), 0)
    while sum(tokens.values()) < 90_000:
        for text in take(queues, 8):
            tokens[text.client] += text.tokens
    assert all(share == pytest.approx(30_000, abs=1000) for share in tokens.values())


@given(
    arrivals=st.lists(
        st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 256)), max_size=6), max_size=40
    ),
    number=st.integers(1, 5),
)
def test_each_is_served_once_and_in_its_clients_order(
    arrivals: list[list[tuple[str, int]]], number: int
) -> None:
    """Over any arrivals nothing is lost or served twice, and when all is done nothing is remembered."""
    queues: ClientQueues[Text] = ClientQueues()
    sent, served = list[Text](), list[Text]()
    for group in arrivals:
        for client, tokens in group:
            sent.append(Text(client, tokens))
            queues.add(client, [sent[-1]])
        served += take(queues, number)
        assert queues.tokens == sum(text.tokens for text in sent) - sum(text.tokens for text in served)
        assert queues.inputs == len(sent) - len(served)
    while queues.inputs:
        served += take(queues, number)
    for client in "abcdefgh":
        assert [t for t in served if t.client == client] == [t for t in sent if t.client == client]
    assert len(served) == len(sent)
    assert len(queues) == 0


def test_ever_new_clients_starve_nobody() -> None:
    """However many come with a first text, one that was there gets its share beside those that wait."""
    queues = queues_of(("there", [50] * 40))
    for number in range(2000):
        queues.add(f"new {number}", [Text(f"new {number}", 50)])
        take(queues, 2)
        if queues.occupancy("there") == 0:
            break
    assert number < 200


def test_a_client_that_was_served_much_gains_nothing_by_a_pause() -> None:
    """What it had of late is remembered while others wait, and forgotten when it does not count any more."""
    queues = queues_of(("heavy", [100] * 10), ("other", [100] * 100))
    while queues.occupancy("heavy"):
        take(queues, 1)
    ahead = queues.occupancy("other")
    queues.add("heavy", [Text("heavy", 100)] * 2)
    take(queues, 1)
    take(queues, 1)
    assert queues.occupancy("other") < ahead, "it does not begin before those that waited meanwhile"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 400)), max_size=60))
def test_who_comes_first_finds_room_beside_any_flood(requests: list[tuple[str, int]]) -> None:
    """Of 10,000 tokens three clients cannot take so much that a fourth one's 400 do not fit."""
    queues: ClientQueues[Text] = ClientQueues()
    for client, tokens in requests * 3:
        if queues.may_hold(client, tokens, 10_000):
            queues.add(client, [Text(client, tokens)])
    assert all(queues.occupancy(client) <= 5000 for client in "abc")
    assert queues.may_hold("newcomer", 400, 10_000)


def test_one_flood_leaves_room_for_a_largest_request_and_for_others() -> None:
    """Of room for four largest requests one client gets half, another its one, and a third its small one."""
    largest, queues = 65_536, ClientQueues[Text]()
    while queues.may_hold("flood", largest // 8, 4 * largest):
        queues.reserve("flood", largest // 8)
    assert queues.occupancy("flood") == 2 * largest
    assert queues.may_hold("other", largest, 4 * largest)
    queues.reserve("other", largest)
    assert queues.may_hold("third", 512, 4 * largest)


def test_what_comes_back_when_it_was_told_to_is_taken_until_the_queue_is_full() -> None:
    """Whatever its client has there already: newcomers fill the room that it was promised."""
    queues = queues_of(("a", [600]))
    assert not queues.may_hold("a", 600, 1000)
    assert queues.may_hold("a", 600, 1000, returned=True)
    queues.reserve("a", 600)
    assert not queues.may_hold("a", 600, 1000, returned=True)


def test_what_others_hold_beside_the_heaviest_client_counts_what_is_tokenized() -> None:
    """The heaviest may have nothing waiting yet."""
    queues = queues_of(("a", [10]), ("b", [20]))
    assert queues.beside_heaviest == 10
    queues.reserve("c", 1000)
    assert queues.beside_heaviest == 30
    queues.reserve("c", -1000)
    assert queues.beside_heaviest == 10


def test_many_clients_are_forgotten() -> None:
    """A hundred thousand addresses that send something once leave next to nothing behind."""
    queues = queues_of(("there", [50] * 200_000))
    for number in range(20_000):
        queues.add(f"new {number}", [Text(f"new {number}", 10)])
        take(queues, 2)
    assert len(queues) < 5000


def test_light_and_heavy_clients_do_not_share_a_batch() -> None:
    """A batch lasts as long as all of it; clients alike go together."""
    alike = queues_of(("a", [100] * 3), ("b", [100] * 4))
    assert len(companions(alike.first(100))) == 7
    unlike = queues_of(("lone", [12]), ("heavy", [256] * 10), ("small flood", [12] * 16))
    assert {queue.client for queue, _ in companions(unlike.first(100))} == {"lone"}
    take(unlike, 1)
    assert {queue.client for queue, _ in companions(unlike.first(100))} in ({"heavy"}, {"small flood"})
    few = queues_of(("lone", [3]), ("others", [5] * 6))
    assert len(companions(few.first(100))) == 7, "where all is soon over, nothing is gained"
    forty = queues_of(("lone", [9]), ("others", [5] * 20))
    assert len(companions(forty.first(100))) == 1, "half of what forty connections send, with two processes"


def test_who_is_light_beside_what_runs_is_found_behind_others() -> None:
    """What waits of the client whose batch runs is not; what is little beside it is."""
    queues = queues_of(("heavy", [256] * 10))
    queues.take(queues.first(4))
    assert not queues.has_light()
    queues.add("lone", [Text("lone", 12)])
    queues.add("small flood", [Text("small flood", 12) for _ in range(16)])
    assert [queue.client for queue, _ in queues.first_light(1)] == ["lone"]
    assert {queue.client for queue, _ in queues.first_light(100, lightest=12)} == {"lone"}
    queues.finish([("heavy", 1024)])
    assert not is_light(12, 40)


def test_what_is_dropped_is_gone() -> None:
    """Texts of a client that nobody waits for any more are neither served nor counted."""
    queues = queues_of(("a", [10] * 5), ("b", [20]))
    queues.drop({"a"}, lambda _: True)
    assert (queues.tokens, queues.inputs, queues.occupancy("a")) == (20, 1, 0)
    assert [text.client for text in take(queues, 10)] == ["b"]


def test_a_line_says_when_it_is_idle() -> None:
    """It is while nothing waits, runs, or is about to come."""
    queue: ClientQueue[Text] = ClientQueue("a", 0.0)
    assert queue.idle
    queue.reserved = 1
    assert not queue.idle
