"""Simulates the tail latency of 1 to 100 replicas behind a load balancer, for different policies.

Each replica behaves like the service (`replica.py`), with measured times: those of `MEASURED`
below, or with `--calibrate` those of this machine (`calibration.py`). Requests are those of
`traffic.py`, at a share of the total capacity of the replicas; the first tenth of a run does not
count. All policies get the same traffic. Prints latency percentiles by policy and number of replicas, the p99
also relative to the policy of the fewest tokens, and the refused share; how much of the capacity can be used
before the p99 is twice that of single requests; and how many tokens wait in the queue at each load.

    python -m benchmarks.planning.balancing [--seed 0] [--calibrate --data sts-dev.tsv]
"""

import argparse
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from benchmarks.kit import tables
from benchmarks.kit.command_line import parser_for
from benchmarks.planning import calibration
from benchmarks.planning.policies import BASELINE, POLICIES
from benchmarks.planning.replica import Costs
from benchmarks.planning.simulation import Outcome, each_alone, simulate
from benchmarks.planning.traffic import ARRIVALS, Sizes, Traffic, draw_clients, mixed_sizes, single_sizes

MEASURED = Costs(
    lanes=2,
    budget=1024,
    batch_s=7.67e-3,
    token_s=92.8e-6,
    text_s=0.0,
    alone_batch_s=3.76e-3,
    alone_token_s=52.6e-6,
    alone_text_s=0.0,
    request_s=0.393e-3,
    fixed_s=1.003e-3,
)
"""all-MiniLM-L6-v2 with PyTorch in bfloat16, on two cores of an AMD EPYC (`benchmarks/README.md`)."""

REPLICAS = (1, 2, 4, 8, 16, 32, 64, 100)
LOADS = (0.5, 0.7, 0.9)
_LEAST_REQUESTS, _REQUESTS_A_REPLICA = 40_000, 1_500
_CLIENTS_A_REPLICA = 16
_WARM_UP = 0.1

SIZES: dict[str, Callable[[int, np.random.Generator], Sizes]] = {
    "mixed": mixed_sizes,
    "single texts": single_sizes,
}
_ROOM_REPLICAS = (1, 4, 16, 100)
_ROOM_POLICIES = (BASELINE, "least requests", "two choices, requests", "round robin", "random")
_ROOM_REQUESTS = 40_000
_ROOM_STEPS = 6
_TWICE = 2.0
_QUEUE_POLICIES = ("least requests", "two choices, requests", "random")
_QUEUE_LOADS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Setting:
    """What is simulated: how requests come, the share of the capacity that they need, and the replicas."""

    arrivals: str
    load: float
    replicas: int


def main() -> None:
    """Simulate and print."""
    arguments = parse_arguments()
    costs = calibrate(arguments) if arguments.calibrate else MEASURED
    calibration.print_costs(costs)
    print_requests(costs, arguments.seed)
    for arrivals in ARRIVALS:
        for load in LOADS:
            outcomes = {n: run(Setting(arrivals, load, n), costs, arguments.seed) for n in REPLICAS}
            print_outcomes(f"{arrivals} arrivals at {load} of the capacity", outcomes)
    print_room(costs, arguments.seed)
    print_queues(costs, arguments.seed)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calibrate", action="store_true", help="measure the costs on this machine")
    calibration.add_arguments(parser, required=False)
    arguments = parser.parse_args()
    if arguments.calibrate and arguments.data is None:
        parser.error("--calibrate needs --data, an STS file")
    return arguments


def calibrate(arguments: argparse.Namespace) -> Costs:
    """Measure the costs of a replica, and name the machine."""
    with ExitStack() as stack:
        servers = calibration.start_replicas(stack, arguments.replicas)
        costs, _ = calibration.calibrate(servers, arguments.data, arguments.turns, arguments.seconds)
        calibration.print_machine(calibration.read_info(servers[0]), arguments.replicas)
    return costs


def make_traffic(
    setting: Setting,
    costs: Costs,
    seed: int,
    *,
    requests: int,
    sizes: Callable[[int, np.random.Generator], Sizes] = mixed_sizes,
) -> Traffic:
    """Draw the traffic of a setting: the same sizes from the same seed, whatever the load."""
    rng = np.random.default_rng([seed, setting.replicas])
    drawn = sizes(requests, rng)
    clients = draw_clients(requests, _CLIENTS_A_REPLICA * setting.replicas, rng)
    rate = setting.load * setting.replicas * capacity(costs, drawn)
    return Traffic(ARRIVALS[setting.arrivals](requests, rate, rng), drawn, clients)


def capacity(costs: Costs, sizes: Sizes) -> float:
    """How many such requests a second one replica can answer."""
    return costs.capacity(float(sizes.tokens.mean()), float(sizes.texts.mean()))


def run(setting: Setting, costs: Costs, seed: int) -> dict[str, Outcome]:
    """Let every policy balance the same traffic; with one replica, all do the same."""
    requests = max(_LEAST_REQUESTS, _REQUESTS_A_REPLICA * setting.replicas)
    traffic = make_traffic(setting, costs, seed, requests=requests)
    names = POLICIES if setting.replicas > 1 else [BASELINE]
    return {
        name: simulate(traffic, setting.replicas, POLICIES[name], costs, seed).after(_WARM_UP)
        for name in names
    }


def find_room(name: str, kind: str, replicas: int, costs: Costs, seed: int) -> float:
    """Find the load at which the p99 is twice that of the same requests alone, within one hundredth."""
    low, high = 0.0, 1.0
    for _ in range(_ROOM_STEPS):
        load = (low + high) / 2
        setting = Setting("Poisson", load, replicas)
        traffic = make_traffic(setting, costs, seed, requests=_ROOM_REQUESTS, sizes=SIZES[kind])
        outcome = simulate(traffic, replicas, POLICIES[name], costs, seed).after(_WARM_UP)
        alone = each_alone(traffic.sizes, costs).percentile(99)
        low, high = (load, high) if outcome.percentile(99) <= _TWICE * alone else (low, load)
    return low


def print_queues(costs: Costs, seed: int) -> None:
    """Print how many tokens wait, by how much of the capacity is used: what an autoscaler would see."""
    rows = []
    for name in _QUEUE_POLICIES:
        for replicas in _ROOM_REPLICAS:
            cells = []
            for load in _QUEUE_LOADS:
                traffic = make_traffic(
                    Setting("Poisson", load, replicas), costs, seed, requests=_ROOM_REQUESTS
                )
                outcome = simulate(traffic, replicas, POLICIES[name], costs, seed).after(_WARM_UP)
                cells.append(f"{outcome.queued.mean():.0f}")
            rows.append([f"{name}, {replicas}", *cells])
    header = ["policy, replicas", *map(str, _QUEUE_LOADS)]
    tables.print_table("Tokens that wait, per replica, by the share of the capacity used", header, rows)


def print_requests(costs: Costs, seed: int) -> None:
    """Print what a replica can answer, and the latencies of requests that find it idle."""
    rows = []
    for kind, draw in SIZES.items():
        sizes = draw(_LEAST_REQUESTS, np.random.default_rng(seed))
        alone, rate = each_alone(sizes, costs), capacity(costs, sizes)
        figures = (sizes.texts.mean(), sizes.tokens.mean(), rate, rate * sizes.tokens.mean() / 1e3)
        latencies = (alone.percentile(p) for p in (50, 99, 99.9))
        rows.append([kind, *(f"{x:.1f}" for x in figures), *(f"{1e3 * s:.1f}" for s in latencies)])
    header = ["requests", "texts", "tokens", "capacity /s", "ktokens/s", "alone p50 ms", "p99", "p99.9"]
    tables.print_table("What requests are, and one replica", header, rows)


def print_outcomes(title: str, outcomes: dict[int, dict[str, Outcome]]) -> None:
    """Print percentiles by policy and number of replicas, and refusals where there were any."""
    for percent in (50, 99, 99.9):
        rows = []
        for name in POLICIES:
            cells = []
            for by_policy in outcomes.values():
                cell = ""
                if name in by_policy:
                    cell = f"{1e3 * by_policy[name].percentile(percent):.0f}"
                    if percent == 99 and name != BASELINE:
                        ratio = by_policy[name].percentile(99) / by_policy[BASELINE].percentile(99)
                        cell += f" ({ratio:.1f})"
                cells.append(cell)
            rows.append([name, *cells])
        told = " (to least tokens)" if percent == 99 else ""
        _print_by_replicas(f"{title}: p{percent} in ms{told}", outcomes, rows)
    if any(outcome.refused for by_policy in outcomes.values() for outcome in by_policy.values()):
        rows = [
            [name, *(_refused(by_policy.get(name)) for by_policy in outcomes.values())] for name in POLICIES
        ]
        _print_by_replicas(f"{title}: refused, %", outcomes, rows)


def print_room(costs: Costs, seed: int) -> None:
    """Print how much of the capacity can be used."""
    for kind in SIZES:
        rows = [
            [name, *(f"{find_room(name, kind, n, costs, seed):.2f}" for n in _ROOM_REPLICAS)]
            for name in _ROOM_POLICIES
        ]
        header = ["replicas", *map(str, _ROOM_REPLICAS)]
        tables.print_table(
            f"{kind}: share of the capacity at which the p99 is twice that alone", header, rows
        )


def _refused(outcome: Outcome | None) -> str:
    return f"{100 * outcome.refused:.1f}" if outcome is not None and outcome.refused else ""


def _print_by_replicas(
    title: str, replicas: dict[int, dict[str, Outcome]], rows: Sequence[list[str]]
) -> None:
    tables.print_table(title, ["replicas", *map(str, replicas)], rows)


if __name__ == "__main__":
    main()
