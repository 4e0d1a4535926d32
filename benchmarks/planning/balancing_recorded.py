"""Compares the simulation with the results of `overload.py` in `benchmarks/README.md`; starts no service.

Simulates one replica under the open loops of that program, with the requests of the workload `mixed` in
order: 0.3 and 4 times the best measured rate, evenly spaced, with batches of 512 tokens. The costs are those
of `balancing.py`. The recorded results are from another, quiet hour.

    python -m benchmarks.planning.balancing_recorded --data sts-dev.tsv
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from benchmarks.kit import tables
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.workloads import make_workloads
from benchmarks.planning.balancing import MEASURED
from benchmarks.planning.policies import round_robin
from benchmarks.planning.simulation import simulate
from benchmarks.planning.traffic import Sizes, Traffic
from model.checkpoints.folder import read_folder
from model.checkpoints.source import EMBEDDED, resolve

_BUDGET = 512
_SECONDS = 20.0


@dataclass(frozen=True)
class Recorded:
    """A phase of `overload.py`: requests offered and answered a second; p50, p90 and p99 in milliseconds."""

    name: str
    offered: float
    good: float
    percentiles: tuple[float, float, float]


RECORDED = (
    Recorded("calm", 6.4, 6.3, (66.9, 86.8, 105.8)),
    Recorded("overload", 84.8, 20.8, (1578.5, 1766.3, 1795.8)),
    Recorded("calm again", 6.4, 6.3, (62.2, 82.4, 100.1)),
)


def main() -> None:
    """Simulate and print."""
    parser = parser_for(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="an STS file, tab-separated")
    tokens = count_tokens(parser.parse_args().data)
    rows = [row for recorded in RECORDED for row in compare(recorded, tokens)]
    tables.print_facts("Requests", [("texts", "32"), ("tokens", f"{np.mean(tokens):.0f}")])
    header = ["phase", "way", "good/s", "p50 ms", "p90 ms", "p99 ms"]
    tables.print_table("One replica under the loads of overload.py", header, rows)


def count_tokens(data: Path) -> list[int]:
    """Count the tokens of each request of the workload."""
    tokenizer = read_folder(resolve(EMBEDDED)).tokenizer
    requests = make_workloads(data)["mixed"].requests
    return [sum(len(encoding) for encoding in tokenizer.encode(list(texts))) for texts in requests]


def compare(recorded: Recorded, tokens: Sequence[int]) -> list[list[str]]:
    """Simulate a phase: returns a measured row, a simulated row, and a row of their ratios."""
    count = int(recorded.offered * _SECONDS)
    sizes = Sizes(np.full(count, 32), np.array(list(islice(cycle(tokens), count))))
    traffic = Traffic(np.arange(count) / recorded.offered, sizes, np.zeros(count, np.int64))
    costs = replace(MEASURED, budget=_BUDGET)
    outcome = simulate(traffic, 1, round_robin, costs)
    ended = traffic.arrivals + outcome.latency
    good = float((ended <= _SECONDS).sum()) / _SECONDS
    simulated = [good, *(1e3 * outcome.percentile(p) for p in (50, 90, 99))]
    measured = [recorded.good, *recorded.percentiles]
    ratios = [f"{s / m:.2f}" for s, m in zip(simulated, measured, strict=True)]
    return [
        [recorded.name, "measured", *(f"{figure:.1f}" for figure in measured)],
        ["", "simulated", *(f"{figure:.1f}" for figure in simulated)],
        ["", "simulated / measured", *ratios],
    ]


if __name__ == "__main__":
    main()
