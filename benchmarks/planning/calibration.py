"""Measures the costs of a replica on the real service: the constants of the simulation.

Starts the service, or `--replicas` of them, with the settings in the environment (`HEADLIGHT_…`), and

- sends an idle replica one request at a time, of different sizes. Latency =
  `alone_batch_s` + tokens × `alone_token_s` + texts × `alone_text_s` + `request_s` + `fixed_s`;
- loads all replicas at once with `wrk`, in closed loops of different requests. The processor time of the
  service = batches × `batch_s` + tokens × `token_s` + texts × `text_s` + requests × `request_s`, where all
  counts are the service's own. Each lane has a core, so this is also the time that lanes are busy.

The times are fitted by non-negative least squares. If other programs take more than 3 % of the cores, a size
is measured again, at most `--turns` times, and the least disturbed turn counts.

    python -m benchmarks.planning.calibration --data sts-dev.tsv [--replicas 2] [--turns 5] [--seconds 2]
"""

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from scipy.optimize import nnls

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.observed import Undisturbed, least_disturbed
from benchmarks.kit.servers import Headlight
from benchmarks.kit.wire import RepeatingConnection
from benchmarks.kit.workloads import make_texts
from benchmarks.kit.wrk import drive, good
from benchmarks.planning.replica import Costs
from benchmarks.planning.traffic import Floats
from model.lanes import choose_lanes, count_cores
from service.settings import read_settings

_START_S = 120.0
_WARM_S = 1
_CALLS = 40
# Words per text; alone, all texts of a request fit into one batch.
_ALONE = ((1, 8), (1, 30), (1, 100), (2, 100), (4, 20), (8, 30), (16, 8), (16, 20), (5, 100))
_BODIES = 64


@dataclass(frozen=True)
class Turn:
    """Counts of work and its seconds: wall time, `pass_s` of it in the model, or processor time."""

    seconds: float
    pass_s: float
    batches: float
    tokens: float
    texts: float
    requests: float


@dataclass(frozen=True)
class Loaded:
    """A closed loop: texts per request, words per text, and connections to each replica."""

    texts: int
    words: int
    connections: int


_LOADED = (
    Loaded(1, 8, 6),
    Loaded(1, 8, 20),
    Loaded(1, 8, 64),
    Loaded(1, 8, 192),
    Loaded(1, 30, 6),
    Loaded(1, 30, 64),
    Loaded(1, 100, 3),
    Loaded(1, 100, 8),
    Loaded(1, 100, 32),
    Loaded(8, 20, 8),
    Loaded(32, 8, 8),
    Loaded(32, 25, 8),
    Loaded(128, 12, 6),
)


def main() -> None:
    """Start, measure, end, and print."""
    parser = parser_for(__doc__)
    add_arguments(parser)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        servers = start_replicas(stack, arguments.replicas)
        costs, fitted = calibrate(servers, arguments.data, arguments.turns, arguments.seconds)
        info = read_info(servers[0])
    print_machine(info, arguments.replicas)
    print_costs(costs)
    print_fit(fitted)


def add_arguments(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add the arguments of a measurement."""
    parser.add_argument("--data", type=Path, required=required, help="an STS file, tab-separated")
    parser.add_argument("--replicas", type=int, default=1, help="loaded at the same time, on this machine")
    parser.add_argument(
        "--turns", type=int, default=5, help="the most turns, where other programs disturb them"
    )
    parser.add_argument("--seconds", type=int, default=2, help="of each turn under load")


def start_replicas(stack: ExitStack, count: int) -> list[Headlight]:
    """Start the services; the stack ends them."""
    servers = []
    for _ in range(count):
        server = Headlight()
        stack.callback(server.end)
        server.wait_until_ready(_START_S)
        servers.append(server)
    return servers


def read_info(server: Headlight) -> dict[str, Any]:
    """Read what a service says about its model."""
    info: dict[str, Any] = httpx.get(f"{server.url}/info", trust_env=False).json()["models"][0]
    return info


def calibrate(
    servers: Sequence[Headlight], data: Path, turns: int, seconds: int
) -> tuple[Costs, list[list[str]]]:
    """Measure the costs of a replica; also returns how well each size is fitted, as rows of a table."""
    pids = [server.process.pid for server in servers]
    quiet_alone = [
        least_disturbed(partial(time_alone, servers[0], data, *size), pids, turns) for size in _ALONE
    ]
    quiet_loaded = [
        least_disturbed(partial(count_load, servers, load, data, seconds), pids, turns) for load in _LOADED
    ]
    alone, loaded = ([turn.value for turn in quiet] for quiet in (quiet_alone, quiet_loaded))
    first_s, alone_token_s, alone_text_s = _fit(
        [[1, turn.tokens, turn.texts] for turn in alone], [turn.seconds for turn in alone]
    )
    around_s = float(np.median([turn.seconds - turn.pass_s for turn in alone if turn.texts == 1]))
    batch_s, token_s, text_s, request_s = _fit(
        [[turn.batches, turn.tokens, turn.texts, turn.requests] for turn in loaded],
        [turn.seconds for turn in loaded],
    )
    costs = Costs(
        lanes=count_lanes(),
        budget=read_info(servers[0])["max_batch_tokens"],
        batch_s=batch_s,
        token_s=token_s,
        text_s=text_s,
        alone_batch_s=max(0.0, first_s - around_s),
        alone_token_s=alone_token_s,
        alone_text_s=alone_text_s,
        request_s=request_s,
        fixed_s=max(0.0, around_s - request_s),
    )
    return costs, [*_compare_alone(costs, quiet_alone), *_compare_loaded(costs, quiet_loaded)]


def _fit(counts: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Fit non-negative times so that counts × times give the seconds; every row has the same weight."""
    found, _ = nnls(np.array(counts) / np.array(seconds)[:, None], np.ones(len(seconds)))
    return [float(x) for x in found]


def _compare_alone(costs: Costs, turns: Sequence[Undisturbed[Turn]]) -> list[list[str]]:
    rows = []
    for (texts, words), quiet in zip(_ALONE, turns, strict=True):
        turn = quiet.value
        fitted = (
            costs.alone_batch_s
            + turn.tokens * costs.alone_token_s
            + turn.texts * costs.alone_text_s
            + costs.request_s
            + costs.fixed_s
        )
        name = f"{texts} × {words} words, alone"
        measured = f"{1e3 * turn.seconds:.1f} ms"
        rows.append([name, measured, f"{quiet.others:.0%}", f"{fitted / turn.seconds:.2f}"])
    return rows


def _compare_loaded(costs: Costs, turns: Sequence[Undisturbed[Turn]]) -> list[list[str]]:
    rows = []
    for load, quiet in zip(_LOADED, turns, strict=True):
        turn = quiet.value
        fitted = (
            turn.batches * costs.batch_s
            + turn.tokens * costs.token_s
            + turn.texts * costs.text_s
            + turn.requests * costs.request_s
        ) / turn.seconds
        name = f"{load.texts} × {load.words} words, {load.connections} connections"
        measured = f"{1e6 * turn.seconds / turn.tokens:.1f} µs a token"
        rows.append([name, measured, f"{quiet.others:.0%}", f"{fitted:.2f}"])
    return rows


def count_load(servers: Sequence[Headlight], load: Loaded, data: Path, seconds: int) -> Turn:
    """Load all replicas at once: their processor time and their counts, added up."""
    bodies = make_bodies(data, load.texts, load.words)
    run = partial(drive, route="/encode", bodies=bodies, connections=load.connections)
    with ThreadPoolExecutor(len(servers)) as pool:
        list(pool.map(partial(run, seconds=_WARM_S), servers))
        before = np.sum([_totals(server) for server in servers], axis=0)
        for each in pool.map(partial(run, seconds=seconds), servers):
            good(each, "headlight")
        spent = np.sum([_totals(server) for server in servers], axis=0) - before
    return Turn(spent[0], 0.0, *spent[1:].tolist())


def time_alone(server: Headlight, data: Path, texts: int, words: int) -> Turn:
    """Send one request at a time; times are those of the fastest tenth, counts those of one request."""
    before = _totals(server)
    seconds, passes = [], []
    with closing(RepeatingConnection(server.port, make_bodies(data, texts, words))) as connection:
        for _ in range(_CALLS):
            start = time.perf_counter()
            head = connection.post()
            seconds.append(time.perf_counter() - start)
            passes.append(_pass_s(head))
    counts = ((_totals(server) - before) / _CALLS)[1:]
    return Turn(*np.percentile([seconds, passes], 10, axis=1).tolist(), *counts.tolist())


def make_bodies(data: Path, texts: int, words: int) -> list[bytes]:
    """Make requests with a number of texts, each with a number of words."""
    count = min(_BODIES, 2048 // texts)
    made = make_texts(data, words, count * texts)
    return [json.dumps({"inputs": made[i * texts : (i + 1) * texts]}).encode() for i in range(count)]


def print_machine(info: dict[str, Any], replicas: int) -> None:
    """Print what the constants depend on."""
    tables.print_facts(
        "Machine",
        [
            *machine.facts(info["dtype"]),
            ("model", info["name"]),
            ("backend", info["backend"]),
            ("replicas", str(replicas)),
        ],
    )


def print_costs(costs: Costs) -> None:
    """Print the constants, times in microseconds."""
    tables.print_facts(
        "Costs of a replica",
        [
            (name, f"{1e6 * value:.1f} µs" if name.endswith("_s") else str(value))
            for name, value in asdict(costs).items()
        ],
    )


def print_fit(rows: Sequence[list[str]]) -> None:
    """Print how well the constants fit what they were found from."""
    tables.print_table("How well they fit", ["requests", "measured", "others", "fitted / measured"], rows)


def count_lanes() -> int:
    """How many batches the service runs side by side with the settings of the environment."""
    return choose_lanes(read_settings().threads or count_cores())


def _totals(server: Headlight) -> Floats:
    """Read seconds of the processor, batches, tokens, texts and requests from /metrics."""
    samples = server.metrics()
    names = (
        "process_cpu_seconds_total",
        "headlight_batches_total",
        "headlight_input_tokens_total",
        "headlight_inputs_total",
    )
    found = [sum(v for series, v in samples.items() if series.partition("{")[0] == name) for name in names]
    answered = samples['headlight_requests_total{kind="inference",route="/encode",status="200"}']
    return np.array([*found, answered])


def _pass_s(head: bytes) -> float:
    """Read how long the pass took from `Server-Timing`."""
    _, _, rest = head.partition(b"compute;dur=")
    return float(rest.split(b",", 1)[0].split(b"\r", 1)[0]) / 1e3


if __name__ == "__main__":
    main()
