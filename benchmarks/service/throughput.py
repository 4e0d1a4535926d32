"""Measures requests per second under load, compared with other servers and with no server at all.

headlight runs with the settings in the environment (`HEADLIGHT_…`), or with `--graph` an exported folder of
the same model. It takes turns with any of these, and with nothing else it is measured alone:

- `--bare`: the bare model (`peers/bare_model.py`), only for the workload `mixed`: no HTTP, its texts
  tokenized and packed in advance, in the way that a short trial found to be fastest;
- `--peer COMMAND`: infinity-emb with the same folder of weights, the same dtype and otherwise its own
  defaults; with `--peer-engine optimum`, a plain export in eight bits, in ONNX Runtime;
- `--runtime onnxruntime` or `openvino`: that runtime in process, on a plain export, with two threads and its
  texts in the order of arrival, 8 to a batch (`peers/bare_runtime.py`): what a server of such a graph could
  not exceed. `--python` is the Python that has OpenVINO, and in eight bits nncf too;
- `--plain`: headlight on PyTorch's kernels alone; `--one-process`: headlight in one process; `--before
  CHECKOUT`: headlight of another checkout.

The order is reversed every other round; a process without the turn is paused. A turn begins with one second
of warm-up; of the load that follows, the first second counts only for the percentiles. Ratios are formed
within a round, and the table shows the median, with the quartiles in brackets. Tokens per second are read
from the service's own counter. The vectors of all are compared before the measurement; an error in an answer
ends the program. The load client is `wrk`, on the same cores.

    python -m benchmarks.service.throughput --data sts-dev.tsv --peer infinity_emb [--connections 2,4,8]
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.kit import machine, tables, turns
from benchmarks.kit.command_line import numbers, parser_for, some_of
from benchmarks.kit.workloads import NAMES, Workload, make_workloads
from benchmarks.service.contestants import HEADLIGHT, Contestant, Contestants, Turn
from model.checkpoints.source import EMBEDDED

_SHOWN: dict[str, Callable[[Turn], float]] = {
    "requests/s": lambda turn: turn.requests_per_s,
    "p50 ms": lambda turn: turn.p50_ms,
    "p99 ms": lambda turn: turn.p99_ms,
    "ktokens/s": lambda turn: turn.tokens_per_s / 1e3,
    "idle %": lambda turn: 100 * turn.idle,
}


def main() -> None:
    """Start all contestants, let them take turns, end them, and print."""
    arguments = parse_arguments()
    workloads = make_workloads(arguments.data)
    loads = [workloads[name] for name in arguments.workloads]
    single = workloads["single"].requests
    loads += [Workload(f"single, {n}", n, single) for n in arguments.connections]
    checks: list[tables.Check] = []
    with ExitStack() as stack:
        contestants = Contestants(stack, arguments, workloads["mixed"])
        contestants.add_headlight()
        if arguments.peer is not None:
            contestants.add_infinity()
        if arguments.bare:
            contestants.add_bare_model()
        if arguments.runtime is not None:
            contestants.add_runtime()
        facts = [*machine.facts(contestants.info["dtype"]), *contestants.facts]
        tables.print_facts("Machine", facts)
        for load in loads:
            rounds = measure(load, contestants.all, arguments.rounds, arguments.seconds)
            print_rounds(load, rounds)
            checks += make_checks(load, rounds, contestants.all)
    if checks:
        tables.print_checks(checks)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="an STS file, tab-separated")
    parser.add_argument("--model", default=EMBEDDED, help="the embedded model, a folder or a hub name")
    parser.add_argument(
        "--graph", type=Path, help="an exported folder of that model, which headlight serves in its place"
    )
    parser.add_argument("--processes", default="auto", help="of headlight")
    parser.add_argument("--bare", action="store_true", help="beside the bare model")
    parser.add_argument("--peer", help="beside infinity-emb: the command infinity_emb, of version 0.0.78")
    parser.add_argument(
        "--peer-engine", choices=("torch", "optimum"), default="torch", help="optimum: a graph in eight bits"
    )
    parser.add_argument(
        "--runtime", choices=("onnxruntime", "openvino"), help="beside this runtime in process"
    )
    parser.add_argument(
        "--runtime-float32", action="store_true", help="that runtime in float32 also beside eight bits"
    )
    parser.add_argument("--python", help="of that runtime's environment")
    parser.add_argument("--plain", action="store_true", help="beside itself on PyTorch's kernels alone")
    parser.add_argument("--one-process", action="store_true", help="beside itself in one process")
    parser.add_argument("--before", type=Path, help="beside the service of this checkout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=8, help="of each turn, 2 at least")
    parser.add_argument("--workloads", type=some_of(NAMES), default=NAMES, help=",".join(NAMES))
    parser.add_argument(
        "--connections",
        type=numbers,
        default=[],
        help="also single sentences over these numbers of connections, such as 2,4,8",
    )
    arguments = parser.parse_args()
    if arguments.model != EMBEDDED and (arguments.runtime or arguments.peer_engine == "optimum"):
        parser.error(f"--runtime and --peer-engine optimum run only the model {EMBEDDED}.")
    if arguments.bare and arguments.graph is not None:
        parser.error("--bare runs PyTorch's model, which cannot be compared with --graph.")
    return arguments


def measure(
    load: Workload, contestants: Mapping[str, Contestant], rounds: int, seconds: int
) -> list[dict[str, Turn]]:
    """Let those who take part in this workload take turns."""
    taking_part = {
        name: turns.Contestant(one.process, partial(one.run, load))
        for name, one in contestants.items()
        if one.only is None or load.name in one.only
    }
    measured = list(turns.alternating(taking_part, rounds, seconds))
    for name in taking_part:
        if any(each[name].requests_per_s == 0 for each in measured):
            raise SystemExit(f"{name} answered hardly any requests: raise --seconds.")
    return measured


def ratios(rounds: Sequence[Mapping[str, Turn]], other: str) -> list[float]:
    """Divide headlight by another, round by round: requests per second, or tokens where those are counted."""
    pairs = [(each[HEADLIGHT], each[other]) for each in rounds]
    if np.isnan(pairs[0][1].requests_per_s):
        return [ours.tokens_per_s / theirs.tokens_per_s for ours, theirs in pairs]
    return [ours.requests_per_s / theirs.requests_per_s for ours, theirs in pairs]


def make_checks(
    load: Workload, rounds: Sequence[Mapping[str, Turn]], contestants: Mapping[str, Contestant]
) -> list[tables.Check]:
    """Check the ratios of one workload against their targets."""
    checks = []
    for other in [name for name in rounds[0] if name != HEADLIGHT]:
        bounds = contestants[other].bounds
        bound = bounds.get(load.name, bounds.get("others"))
        if bound is not None:
            checks.append(tables.Check(f"{load.name}: {HEADLIGHT} / {other}", ratios(rounds, other), bound))
    return checks


def print_rounds(load: Workload, rounds: Sequence[Mapping[str, Turn]]) -> None:
    """Print the medians of all over the rounds, and the ratios to headlight."""
    rows = []
    for name in rounds[0]:
        medians = [np.median([shown(each[name]) for each in rounds]) for shown in _SHOWN.values()]
        values = ratios(rounds, name)
        compared = "" if name == HEADLIGHT else tables.ratio(values, np.ones(len(values)).tolist())
        rows.append([name, *("" if np.isnan(m) else f"{m:.1f}" for m in medians), compared])
    texts = "1 text" if load.texts == 1 else f"{load.texts} texts"
    connections = "1 connection" if load.connections == 1 else f"{load.connections} connections"
    tables.print_table(
        f"{load.name}: {texts} a request, {connections}; medians of {len(rounds)} rounds",
        ["", *_SHOWN, "headlight / it"],
        rows,
    )


if __name__ == "__main__":
    main()
