"""The simulation of a fleet gives what queueing theory gives, where that has an answer."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.planning.policies import (
    POLICIES,
    Choose,
    Fleet,
    Policy,
    at_random,
    least_tokens,
    round_robin,
    scraped_every,
    sticky,
    two_by_tokens,
)
from benchmarks.planning.replica import Costs
from benchmarks.planning.simulation import each_alone, simulate
from benchmarks.planning.traffic import (
    ARRIVALS,
    Sizes,
    Traffic,
    draw_clients,
    mixed_sizes,
    poisson,
    single_sizes,
)

ONE_BY_ONE = Costs(
    lanes=1,
    budget=1,
    batch_s=0.0,
    token_s=0.001,
    text_s=0.0,
    alone_batch_s=0.0,
    alone_token_s=0.001,
    alone_text_s=0.0,
    request_s=0.0,
    fixed_s=0.0,
    worth_a_lane=0,
    queue_batches=1_000_000,
)
"""A server that runs one token after the other: a queue as the textbooks have it."""

_ONES = np.ones(200_000, np.int64)

COSTS = Costs(
    lanes=2,
    budget=1024,
    batch_s=0.002,
    token_s=80e-6,
    text_s=0.0,
    alone_batch_s=0.002,
    alone_token_s=45e-6,
    alone_text_s=0.0,
    request_s=0.0005,
    fixed_s=0.0,
)


def traffic_of(tokens: np.ndarray, rate: float, seed: int = 0) -> Traffic:
    """Poisson arrivals of requests with so many tokens."""
    count = len(tokens)
    arrivals = poisson(count, rate, np.random.default_rng(seed))
    return Traffic(arrivals, Sizes(np.ones(count, np.int64), tokens), np.zeros(count, np.int64))


def mixed(
    replicas: int, load: float, *, requests: int = 20_000, seed: int = 0, kind: str = "Poisson"
) -> Traffic:
    """Mixed requests that load so many replicas to this share of their capacity."""
    rng = np.random.default_rng(seed)
    sizes = mixed_sizes(requests, rng)
    rate = load * replicas * COSTS.capacity(float(sizes.tokens.mean()), float(sizes.texts.mean()))
    return Traffic(ARRIVALS[kind](requests, rate, rng), sizes, draw_clients(requests, 16 * replicas, rng))


@pytest.mark.parametrize("utilisation", [0.3, 0.7])
def test_constant_service_waits_as_pollaczek_and_khinchine_say(utilisation: float) -> None:
    """M/D/1: the mean wait is ρ·s / 2(1 − ρ)."""
    waited = simulate(traffic_of(_ONES, 1000 * utilisation), 1, at_random, ONE_BY_ONE).latency - 0.001
    assert waited.mean() == pytest.approx(utilisation * 0.001 / (2 * (1 - utilisation)), rel=0.03)


def test_what_waits_is_what_little_says() -> None:
    """The mean queue is the rate × the mean time for which each token waits to be run (Little 1961)."""
    outcome = simulate(traffic_of(_ONES, 600), 1, at_random, ONE_BY_ONE)
    assert outcome.queued.mean() == pytest.approx(600 * (outcome.latency.mean() - 0.001), rel=0.03)


def test_varying_service_waits_as_pollaczek_and_khinchine_say() -> None:
    """M/G/1: the mean wait is λ·E[S²] / 2(1 − ρ)."""
    tokens = np.random.default_rng(3).geometric(1 / 10, 60_000)
    service = tokens * 0.001
    rate = 0.6 / service.mean()
    waited = simulate(traffic_of(tokens, rate), 1, at_random, ONE_BY_ONE).latency - service
    assert waited.mean() == pytest.approx(rate * (service**2).mean() / (2 * (1 - 0.6)), rel=0.04)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
@pytest.mark.parametrize("load", [0.6, 3.0])
def test_every_request_is_answered_or_refused_once(policy: Policy, load: float) -> None:
    """None is lost, and none is answered sooner than it could be alone; beyond capacity, some are refused."""
    traffic = mixed(4, load, requests=8000)
    outcome = simulate(traffic, 4, policy, COSTS)
    assert len(outcome.latency) == len(outcome.replicas) == 8000
    assert set(outcome.replicas) <= set(range(4))
    assert len(outcome.answered) == round((1 - outcome.refused) * 8000)
    assert (outcome.refused > 0.05) == (load > 1)
    soonest = traffic.sizes.tokens * COSTS.alone_token_s / COSTS.lanes
    assert (np.isnan(outcome.latency) | (outcome.latency > soonest)).all()


def test_a_fleet_that_has_answered_all_is_known_to_be_idle() -> None:
    """What policies know of replicas rises with what is sent, and falls to nothing with the last answer."""
    seen: list[Fleet] = []

    def watched(fleet: Fleet, clients: Sequence[int], rng: np.random.Generator) -> Choose:
        seen.append(fleet)
        return at_random(fleet, clients, rng)

    traffic = mixed(3, 0.8, requests=2000)
    outcome = simulate(traffic, 3, watched, COSTS)
    assert outcome.refused == 0
    assert seen == [Fleet.of(3)]
    assert outcome.queued.max() > 0


def test_more_than_its_capacity_is_refused_and_no_more() -> None:
    """Of twice the capacity, half is answered."""
    traffic = mixed(2, 2.0, requests=40_000)
    sent = traffic.sizes.tokens
    answered = ~np.isnan(simulate(traffic, 2, least_tokens, COSTS).latency)
    late = slice(20_000, None)  # the queues are full by then
    assert sent[late][answered[late]].sum() / sent[late].sum() == pytest.approx(0.5, rel=0.05)


@pytest.mark.in_turns
@pytest.mark.parametrize("load", [0.5, 0.7, 0.9])
@pytest.mark.parametrize("replicas", [2, 8, 32])
def test_the_least_loaded_is_never_worse_than_any(replicas: int, load: float) -> None:
    """On the same traffic, the shortest queue is better than two choices, and they than chance."""
    traffic = mixed(replicas, load)
    outcomes = [simulate(traffic, replicas, p, COSTS) for p in (least_tokens, two_by_tokens, at_random)]
    for figures in ([o.answered.mean() for o in outcomes], [o.percentile(99) for o in outcomes]):
        assert figures[0] <= 1.01 * figures[1]
        assert figures[1] <= 1.01 * figures[2]


def test_all_policies_are_one_with_one_replica() -> None:
    """Where there is no choice, nothing depends on how it is made."""
    traffic = mixed(1, 0.8)
    latencies = [simulate(traffic, 1, policy, COSTS).latency for policy in POLICIES.values()]
    assert all(np.array_equal(latencies[0], other) for other in latencies[1:])


def test_what_is_stale_draws_a_herd() -> None:
    """Who knows the queues of a while ago sends all to the same replicas: worse than knowing nothing."""
    traffic = mixed(8, 0.7)
    knowing = [simulate(traffic, 8, scraped_every(s), COSTS).percentile(99) for s in (0.001, 1.0, 5.0)]
    assert knowing[0] < simulate(traffic, 8, at_random, COSTS).percentile(99) < knowing[1]
    assert knowing[0] < knowing[1]
    assert knowing[0] < knowing[2]


def test_a_heavy_client_overloads_its_replica() -> None:
    """A connection that stays where it is takes its client's whole load there, whatever others have to do."""
    traffic = mixed(8, 0.6, requests=30_000)
    heavy = np.where(np.random.default_rng(99).random(30_000) < 0.25, 0, traffic.clients + 1)
    stuck = Traffic(traffic.arrivals, traffic.sizes, heavy)
    outcome = simulate(stuck, 8, sticky, COSTS)
    share = np.bincount(outcome.replicas, minlength=8) / 30_000
    assert share.max() > 0.25
    refused = np.isnan(outcome.latency)
    assert refused.any()
    assert set(np.array(outcome.replicas)[refused]) == {share.argmax()}
    assert simulate(stuck, 8, round_robin, COSTS).refused == 0


@pytest.mark.in_turns
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_the_same_seed_gives_the_same_run(policy: Policy) -> None:
    """Traffic and choices are drawn from the seeds that are given, and from nothing else."""
    first, again = (simulate(mixed(4, 0.7), 4, policy, COSTS, seed=5) for _ in range(2))
    assert np.array_equal(first.latency, again.latency, equal_nan=True)
    assert first.replicas == again.replicas


def test_other_seeds_give_other_runs() -> None:
    """A seed that changed nothing would make the test above say nothing."""
    assert not np.array_equal(mixed(4, 0.7).arrivals, mixed(4, 0.7, seed=1).arrivals)
    traffic = mixed(4, 0.7)
    first, other = (simulate(traffic, 4, at_random, COSTS, seed=seed).replicas for seed in (0, 1))
    assert first != other


@pytest.mark.parametrize("kind", ARRIVALS)
def test_arrivals_come_at_the_rate_that_was_asked_for(kind: str) -> None:
    """In order, and on average so many a second."""
    arrivals = ARRIVALS[kind](200_000, 50.0, np.random.default_rng(6))
    assert (np.diff(arrivals) >= 0).all()
    assert 200_000 / arrivals[-1] == pytest.approx(50.0, rel=0.05)


def test_bursts_are_bursts() -> None:
    """Counts by the second vary as a Poisson process's do, or much more."""
    dispersion = {}
    for kind, draw in ARRIVALS.items():
        arrivals = draw(100_000, 50.0, np.random.default_rng(7))
        counts = np.bincount(arrivals.astype(np.int64))[:-1]
        dispersion[kind] = counts.var() / counts.mean()
    assert dispersion["Poisson"] == pytest.approx(1.0, abs=0.1)
    assert dispersion["bursty"] > 4


def test_sizes_are_heavy_tailed() -> None:
    """Two fifths of the requests are single texts; the largest tenth has most of the tokens."""
    sizes = mixed_sizes(50_000, np.random.default_rng(8))
    assert sizes.texts.min() == 1
    assert sizes.texts.max() == 256
    assert (sizes.texts == 1).mean() == pytest.approx(0.4, abs=0.02)
    assert np.sort(sizes.tokens)[-5000:].sum() > 0.6 * sizes.tokens.sum()


def test_a_request_alone_waits_for_nobody() -> None:
    """What no load balancer can better: the time of a request on an idle replica."""
    sizes = single_sizes(100, np.random.default_rng(9))
    costs = replace(COSTS, fixed_s=0.001)
    expected = 0.0035 + sizes.tokens * costs.alone_token_s
    assert each_alone(sizes, costs).latency == pytest.approx(expected)
    outcome = simulate(mixed(100, 0.001, requests=500), 100, least_tokens, COSTS)
    alone = each_alone(mixed(100, 0.001, requests=500).sizes, COSTS)
    assert outcome.percentile(99) == pytest.approx(alone.percentile(99), rel=0.01)
