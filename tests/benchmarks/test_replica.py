"""A simulated replica makes the batches that the service makes."""

import heapq
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.kit.workloads import mixed_lengths
from benchmarks.planning.policies import at_random
from benchmarks.planning.replica import Costs, Replica, Work
from benchmarks.planning.simulation import simulate
from benchmarks.planning.traffic import Sizes, Traffic, mixed_sizes, poisson
from service.engine.batching import Candidate, take_batch

COSTS = Costs(
    lanes=2,
    budget=1024,
    batch_s=0.002,
    token_s=80e-6,
    text_s=50e-6,
    alone_batch_s=0.002,
    alone_token_s=45e-6,
    alone_text_s=50e-6,
    request_s=0.0005,
    fixed_s=0.0,
)


def text_by_text(traffic: Traffic, costs: Costs) -> np.ndarray:
    """The latencies of one replica whose queue holds texts, and whose batches `take_batch` chooses.

    It is written for itself: a queue of [request, tokens, overtaken], lanes, and a heap of what will end.
    """
    lengths = iter(mixed_lengths(int(traffic.sizes.texts.sum()), 256))
    texts = [[next(lengths) for _ in range(count)] for count in traffic.sizes.texts]
    left = [len(each) for each in texts]
    waiting: list[list[int]] = []
    idle, running = list(range(costs.lanes)), list[tuple[float, int, list[list[int]]]]()
    ended = np.full(len(texts), np.nan)
    coming = list(enumerate(traffic.arrivals))[::-1]
    while coming or running:
        if running and (not coming or running[0][0] <= coming[-1][1]):
            now, lane, ran = heapq.heappop(running)
            idle = sorted([*idle, lane])
            for request, _, _ in ran:
                left[request] -= 1
                if not left[request]:
                    ended[request] = now
        else:
            request, now = coming.pop()
            waiting += [[request, tokens, 0] for tokens in texts[request]]
        while waiting and idle and (idle[0] == 0 or sum(w[1] for w in waiting) >= costs.worth_a_lane):
            undisturbed, lane = len(idle) == costs.lanes, idle.pop(0)
            candidates = [Candidate(w[1], w[2]) for w in waiting[: costs.budget // 4]]
            chosen = take_batch(candidates, costs.budget, sum)
            batch = [waiting[i] for i in chosen]
            for w in waiting[: chosen[-1]]:
                w[2] += 1
            members = set(chosen)
            waiting = [w for i, w in enumerate(waiting) if i not in members]
            still = {w[0] for w in waiting}
            requests = {w[0] for w in batch}
            alone = undisturbed and not waiting and len(requests) == 1
            token_s = costs.alone_token_s if alone else costs.token_s
            seconds = costs.batch_s + sum(w[1] for w in batch) * token_s + len(batch) * costs.text_s
            seconds += costs.request_s * len(requests - still)
            heapq.heappush(running, (now + seconds, lane, batch))
    return ended - traffic.arrivals


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_latencies_are_those_of_the_services_own_batching(load: float) -> None:
    """Tokens that are taken from the head give the latencies of texts that `take_batch` chooses."""
    rng = np.random.default_rng(1)
    texts = mixed_sizes(4000, rng).texts
    ends = np.cumsum(texts)
    tokens = np.add.reduceat(np.array(mixed_lengths(int(ends[-1]), 256)), ends - texts)
    rate = load * COSTS.capacity(float(tokens.mean()), float(texts.mean()))
    traffic = Traffic(poisson(len(texts), rate, rng), Sizes(texts, tokens), np.zeros(len(texts), np.int64))
    modelled = simulate(traffic, 1, at_random, COSTS).latency
    chosen = text_by_text(traffic, COSTS)
    assert not np.isnan(chosen).any()
    assert modelled.mean() == pytest.approx(chosen.mean(), rel=0.05)
    for percent in (50, 90, 99):
        expected = np.percentile(chosen, percent)
        assert np.percentile(modelled, percent) == pytest.approx(expected, rel=0.07)


def replica(*tokens: int, costs: Costs = COSTS) -> Replica:
    """A replica at which requests of one text each wait."""
    made = Replica(costs, Work(tokens, [1] * len(tokens), costs))
    for request in range(len(tokens)):
        assert made.accept(request, 0.0)
    return made


def test_a_batch_is_what_waits_when_a_lane_is_free() -> None:
    """Requests share a batch up to the budget, in order of arrival, and of the last what fits."""
    waiting = replica(600, 300, 600, 100)
    started = [waiting.start(0.0), waiting.start(0.0)]
    assert [s[2] for s in started if s] == [[(0, 600), (1, 300), (2, 124)], [(2, 476), (3, 100)]]
    assert waiting.start(0.0) is None, "there are two lanes"
    assert waiting.waiting_tokens == 0


def test_a_request_ends_with_its_last_part() -> None:
    """What runs in two lanes is answered when the later one is over."""
    waiting = replica(1500)
    first, second = waiting.start(0.0), waiting.start(0.0)
    assert first
    assert second
    assert waiting.finish(second[1], second[2]) == []
    assert waiting.finish(first[1], first[2]) == [0]


def test_other_lanes_leave_little_to_the_first() -> None:
    """What is not worth a lane waits for the first one, but no longer than a tenth of a second."""
    waiting = replica(500)
    assert waiting.start(0.0)
    other = Replica(COSTS, Work([1024, 100], [1, 1], COSTS))
    assert other.accept(0, 0.0)
    assert other.start(0.0)
    assert other.accept(1, 0.0)
    assert other.start(0.05) is None
    late = other.start(0.2)
    assert late
    assert late[1] == 1


def test_a_lone_request_has_all_cores() -> None:
    """It takes the times of all cores; two that share a batch, or one beside a lane at work, do not."""
    lone, two = replica(500).start(0.0), replica(250, 250).start(0.0)
    assert lone
    assert two
    text_s = COSTS.text_s + COSTS.request_s
    assert lone[0] == pytest.approx(COSTS.alone_batch_s + 500 * COSTS.alone_token_s + text_s)
    assert two[0] == pytest.approx(COSTS.batch_s + 500 * COSTS.token_s + 2 * text_s)
    busy = Replica(COSTS, Work([500, 500], [1, 1], COSTS))
    assert busy.accept(0, 0.0)
    assert busy.start(0.0)
    assert busy.accept(1, 0.0)
    beside = busy.start(0.0)
    assert beside
    assert beside[0] == pytest.approx(COSTS.batch_s + 500 * COSTS.token_s + text_s)


def test_the_queue_is_bounded_in_tokens() -> None:
    """What would wait beyond 64 batches is refused whole; where nothing waits, anything fits."""
    huge, limit = 70 * COSTS.budget, COSTS.max_queue_tokens
    sizes = [huge, limit, 1]
    bounded = Replica(COSTS, Work(sizes, [1, 1, 1], COSTS))
    assert bounded.accept(0, 0.0), "an idle service takes any legal request"
    assert not bounded.accept(1, 0.0)
    waiting = Replica(COSTS, Work([limit, 1, 1], [1, 1, 1], COSTS))
    assert waiting.accept(0, 0.0)
    assert not waiting.accept(1, 0.0)
    assert waiting.start(0.0)
    assert waiting.accept(2, 0.0), "a batch of it runs, and no longer waits"


def test_capacity_is_what_a_full_queue_is_run_at() -> None:
    """Requests a second, by the formula and by the clock of a replica that always has work."""
    sizes = mixed_sizes(3000, np.random.default_rng(2))
    costs = replace(COSTS, lanes=1, queue_batches=1_000_000)
    served = Replica(costs, Work(sizes.tokens.tolist(), sizes.texts.tolist(), costs))
    assert all(served.accept(request, 0.0) for request in range(3000))
    now, ended = 0.0, 0
    while (started := served.start(now)) is not None:
        now, lane, batch = started
        ended += len(served.finish(lane, batch))
    assert ended == 3000
    expected = costs.capacity(float(sizes.tokens.mean()), float(sizes.texts.mean()))
    assert 3000 / now == pytest.approx(expected, rel=0.01)
