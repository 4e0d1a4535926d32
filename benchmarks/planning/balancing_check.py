"""Compares the simulation with the real service, given the same requests at the same times.

Starts `--replicas` services with the settings in the environment (`HEADLIGHT_…`), measures their costs
(`calibration.py`), and sends them requests of 1 to 256 texts (`traffic.py`) as a
Poisson process, in an open loop: each request is sent when it is due, without waiting for answers. With
several replicas the client itself balances them, by the policies of the simulation. Each run is then
simulated with the sizes and times of the same requests. Latency counts from the time a request was due.
`others` is the share of the cores that other programs took: a disturbed run proves little.

    python -m benchmarks.planning.balancing_check --data sts-dev.tsv [--replicas 2] [--loads 0.4,0.7]
"""

import argparse
import asyncio
import gc
import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter

import httpx
import numpy as np
import uvloop

from benchmarks.kit import tables
from benchmarks.kit.client import Asked, Client
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.observed import least_disturbed
from benchmarks.kit.servers import Headlight
from benchmarks.kit.workloads import make_texts, mixed_words
from benchmarks.planning import calibration
from benchmarks.planning.balancing import capacity
from benchmarks.planning.policies import BASELINE, POLICIES, Fleet, Policy
from benchmarks.planning.replica import Costs
from benchmarks.planning.simulation import Outcome, simulate
from benchmarks.planning.traffic import Sizes, Traffic, mixed_sizes, poisson
from model.checkpoints.folder import read_folder
from model.checkpoints.source import resolve
from service.settings import read_settings

_WARM_UP = 0.1
_OF_SEVERAL = (BASELINE, "round robin", "random")
_PATIENCE_S = 60.0
_TURNS = 3


@dataclass(frozen=True)
class Requests:
    """What is sent: bodies, and their sizes."""

    bodies: list[bytes]
    sizes: Sizes


def main() -> None:
    """Measure, simulate, and print both."""
    arguments = parse_arguments()
    names = _OF_SEVERAL if arguments.replicas > 1 else _OF_SEVERAL[:1]
    rows = []
    with ExitStack() as stack:
        servers = calibration.start_replicas(stack, arguments.replicas)
        costs, fitted = calibration.calibrate(servers, arguments.data, arguments.turns, arguments.seconds)
        calibration.print_machine(calibration.read_info(servers[0]), arguments.replicas)
        calibration.print_costs(costs)
        calibration.print_fit(fitted)
        for load in arguments.loads:
            rows += [compare(servers, name, load, costs, arguments) for name in names]
    header = ["policy", "load", "requests", "others", "way", "mean", "p50", "p90", "p99", "refused"]
    tables.print_table("Latency in milliseconds", header, [row for both in rows for row in both])


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    calibration.add_arguments(parser)
    parser.add_argument("--loads", type=read_loads, default=[0.4, 0.7], help="shares of the capacity")
    parser.add_argument("--run", type=float, default=40.0, help="seconds of each run")
    return parser.parse_args()


def read_loads(text: str) -> list[float]:
    """Read an argument of numbers with commas between them."""
    return [float(part) for part in text.split(",")]


def compare(
    servers: Sequence[Headlight], name: str, load: float, costs: Costs, arguments: argparse.Namespace
) -> list[list[str]]:
    """Measure and simulate one run, as two rows and one with the ratios."""
    rng = np.random.default_rng(0)
    guess = capacity(costs, mixed_sizes(10_000, rng))
    requests = make_requests(arguments.data, int(load * len(servers) * guess * arguments.run), rng)
    rate = load * len(servers) * capacity(costs, requests.sizes)
    arrivals = poisson(len(requests.bodies), rate, rng)
    traffic = Traffic(arrivals, requests.sizes, np.zeros(len(arrivals), np.int64))
    measure = partial(uvloop_run, [server.port for server in servers], requests, traffic, POLICIES[name])
    real = least_disturbed(measure, [server.process.pid for server in servers], _TURNS)
    simulated = simulate(traffic, len(servers), POLICIES[name], costs)
    facts = [name, f"{load}", str(len(arrivals)), f"{real.others:.0%}"]
    figures = [figures_of(outcome.after(_WARM_UP)) for outcome in (real.value, simulated)]
    ratios = [f"{s / r:.2f}" for r, s in zip(*(f[:-1] for f in figures), strict=True)]
    return [
        [*facts, "measured", *write(figures[0])],
        ["", "", "", "", "simulated", *write(figures[1])],
        ["", "", "", "", "simulated / measured", *ratios, ""],
    ]


def make_requests(data: Path, count: int, rng: np.random.Generator) -> Requests:
    """Make bodies of real words, with as many texts and words as those of the simulation."""
    texts = mixed_sizes(count, rng).texts
    lengths = iter(rng.permutation(mixed_words(int(texts.sum()))).tolist())
    words = cycle(" ".join(make_texts(data, 1000, 20)).split())
    made = [[" ".join(islice(words, length)) for length in islice(lengths, int(number))] for number in texts]
    tokenizer = read_folder(resolve(next(iter(read_settings().models.values())))).tokenizer
    tokens = [sum(len(encoding) for encoding in tokenizer.encode(each)) for each in made]
    bodies = [json.dumps({"inputs": each}).encode() for each in made]
    return Requests(bodies, Sizes(texts, np.array(tokens)))


def uvloop_run(ports: Sequence[int], requests: Requests, traffic: Traffic, policy: Policy) -> Outcome:
    """Send the requests to the services, as the policy says."""
    gc.collect()
    gc.disable()  # its pauses would count as the service's
    try:
        return uvloop.run(send(ports, requests, traffic, policy))
    finally:
        gc.enable()


async def send(ports: Sequence[int], requests: Requests, traffic: Traffic, policy: Policy) -> Outcome:
    """Send every request when it is due, and wait for the answers."""
    loop = asyncio.get_running_loop()
    clients = [Client(port, requests.bodies[:1]) for port in ports]
    fleet = Fleet.of(len(ports))
    choose = policy(fleet, traffic.clients.tolist(), np.random.default_rng(0))
    tokens, latency = requests.sizes.tokens.tolist(), np.full(len(traffic.arrivals), np.nan)
    sent_to: list[int] = []
    ended = 0

    def finish(request: int, asked: Asked) -> None:
        nonlocal ended
        ended += 1
        fleet.requests[sent_to[request]] -= 1
        fleet.tokens[sent_to[request]] -= tokens[request]
        if asked.status == httpx.codes.OK:
            latency[request] = asked.done - asked.due
        elif asked.status != httpx.codes.TOO_MANY_REQUESTS:
            raise SystemExit(f"/encode answered {asked.status}.")

    start = perf_counter()
    for request, arrival in enumerate(traffic.arrivals.tolist()):
        while (wait := start + arrival - perf_counter()) > 0:
            await asyncio.sleep(wait)
        replica = choose(request, arrival)
        sent_to.append(replica)
        fleet.requests[replica] += 1
        fleet.tokens[replica] += tokens[request]
        clients[replica].ask(start + arrival, partial(finish, request), requests.bodies[request])
    until = loop.time() + _PATIENCE_S
    while ended < len(latency) and loop.time() < until:
        await asyncio.sleep(0.01)
    for client in clients:
        client.abort()
    return Outcome(latency, sent_to, np.full(len(latency), np.nan))


def figures_of(outcome: Outcome) -> list[float]:
    """Mean, p50, p90 and p99 in seconds, and the share that was refused."""
    return [float(outcome.answered.mean()), *(outcome.percentile(p) for p in (50, 90, 99)), outcome.refused]


def write(figures: Sequence[float]) -> list[str]:
    """Write a row of them."""
    return [*(f"{1e3 * seconds:.1f}" for seconds in figures[:-1]), f"{figures[-1]:.1%}"]


if __name__ == "__main__":
    main()
