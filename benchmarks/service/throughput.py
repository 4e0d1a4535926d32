"""Measures requests per second under load, compared with infinity-emb and with the bare model.

Starts on free ports of the loopback interface:

- headlight, with the settings in the environment (`HEADLIGHT_…`);
- with `--plain`, also headlight on PyTorch's kernels alone;
- or, with `--graph`, an exported folder of the same model, run by ONNX Runtime;
- the peer, infinity-emb, with the same folder of weights, the same dtype and otherwise its own defaults;
  `--peer` is its command, and without it headlight is measured alone; with `--peer-engine optimum`, it runs a
  plain export of the embedded model, rounded by `quantize_dynamic`, in ONNX Runtime;
- for the workload `mixed`, the bare model (`peers/bare_model.py`): no HTTP, its texts tokenized and packed in
  advance, in the way that a short trial found to be fastest.

They take turns within each round, in reversed order every other round; a process without the turn is paused.
A turn begins with one second of warm-up; of the load that follows, the first second counts only for the
percentiles. Ratios are formed within a round. Tokens per second are read from the service's own counter
during the load. The vectors of both servers are compared before the measurement; an error in an answer ends
the program.

    python -m benchmarks.service.throughput --data sts-dev.tsv --peer infinity_emb [--rounds 3] [--seconds 8]
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for, some_of
from benchmarks.kit.servers import Bare, Headlight, Process, Server
from benchmarks.kit.turns import Contestant, alternating
from benchmarks.kit.workloads import NAMES, Workload, make_workloads
from benchmarks.kit.wrk import RAMP_S, Load, drive, good, steady
from model.checkpoints.source import EMBEDDED, resolve

HEADLIGHT, PLAIN, PEER, BARE = "headlight", "plain", "peer", "bare"
OF_PEER = {"single": 5.0, "mixed": 5.0, "long": 3.0}
"""The targets for requests per second / the peer's, with PyTorch."""
INT8_OF_PEER = {"single": 7.0, "mixed": 6.5, "long": 3.7, "lone": 8.0}
"""The same in eight bits, with the peer in bfloat16: its own eight bits change vectors (cosine 0.92)."""
INT8_OF_GRAPH = dict.fromkeys(NAMES, 1.5)
"""The same in eight bits, with the peer on a graph in eight bits."""
GRAPH_OF_PEER = {"single": 2.0, "mixed": 2.0, "long": 2.0}
"""The same as with PyTorch, with a graph."""
OF_PLAIN = {"mixed": 1.25, "long": 1.25}
"""The targets for requests per second / its own without native kernels."""
OF_BARE = {"mixed": 0.8}
"""The target for tokens per second / the bare model's."""

_START_S = 180.0
_ANSWER_S = 60.0
_END_S = 0.3
"""Left out at the end of a load when tokens are counted: the load must not be over before."""
_SAME = 0.98  # eight bits included
_PEER_MODEL = "m"
_PEER_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}


@dataclass(frozen=True)
class Turn:
    """The result of one turn: what the client saw, and tokens per second; None if not measured."""

    load: Load | None = None
    tokens_per_s: float | None = None


Loaded = Callable[[Workload, int], Turn]
"""Runs a workload on one contestant for a number of seconds."""


def main() -> None:
    """Start all contestants, let them take turns, end them, and print."""
    arguments = parse_arguments()
    workloads = make_workloads(arguments.data)
    checks: list[tables.Check] = []
    with ExitStack() as stack:
        contestants, facts = start(stack, arguments, workloads["mixed"])
        tables.print_facts("Machine", facts)
        for workload in (workloads[name] for name in arguments.workloads):
            rounds = measure(workload, contestants, arguments.rounds, arguments.seconds)
            print_rounds(workload, rounds)
            checks += make_checks(workload, rounds, targets(arguments, dict(facts)["dtype"]))
    if checks:
        tables.print_checks(checks)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="an STS file, tab-separated")
    parser.add_argument("--peer", help="the command infinity_emb, of version 0.0.78")
    parser.add_argument(
        "--peer-engine", choices=("torch", "optimum"), default="torch", help="optimum: a graph in eight bits"
    )
    parser.add_argument("--model", default=EMBEDDED, help="the embedded model, a folder or a hub name")
    parser.add_argument(
        "--graph", type=Path, help="an exported folder of that model, which headlight serves in its place"
    )
    parser.add_argument("--plain", action="store_true", help="also measure it on PyTorch's kernels alone")
    parser.add_argument("--processes", default="auto", help="of headlight")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=8, help="of each turn, 2 at least")
    parser.add_argument("--workloads", type=some_of(NAMES), default=NAMES, help=",".join(NAMES))
    arguments = parser.parse_args()
    if arguments.peer_engine == "optimum" and (arguments.peer is None or arguments.model != EMBEDDED):
        parser.error(f"--peer-engine optimum needs --peer, and runs only the model {EMBEDDED}.")
    return arguments


def start(
    stack: ExitStack, arguments: argparse.Namespace, mixed: Workload
) -> tuple[dict[str, tuple[Process, Loaded]], list[tuple[str, str]]]:
    """Start the contestants one by one, and pause each; the stack ends them. Also returns the facts."""
    headlight = Headlight(model=arguments.graph or arguments.model, processes=arguments.processes)
    stack.callback(headlight.end)
    headlight.wait_until_ready(_START_S)
    info = httpx.get(f"{headlight.url}/info", trust_env=False).json()["models"][0]
    contestants: dict[str, tuple[Process, Loaded]] = {
        HEADLIGHT: (headlight, partial(drive_headlight, headlight))
    }
    facts = [
        *machine.facts(info["dtype"]),
        ("model", arguments.model),
        ("backend", info["backend"]),
        ("batches", f"{info['max_batch_tokens']} tokens"),
    ]
    headlight.pause()
    if info["backend"] == "torch":
        facts.append(("kernels", info["kernels"] or "PyTorch's"))
    if arguments.plain:
        plain = Headlight(model=arguments.model, native="off", processes=arguments.processes)
        stack.callback(plain.end)
        plain.wait_until_ready(_START_S)
        plain.pause()
        contestants[PLAIN] = (plain, partial(drive_headlight, plain))
    if arguments.peer is not None:
        dtype = "bfloat16" if info["dtype"] == "int8" else info["dtype"]
        folder, engine = resolve(arguments.model), arguments.peer_engine
        folder = with_graph(stack, folder) if engine == "optimum" else folder
        peer = start_peer(stack, arguments.peer, folder, dtype, engine)
        headlight.go_on()
        facts.append(("cosine to peer", f"{lowest_cosine(headlight, peer, mixed.requests[0]):.6f} (lowest)"))
        headlight.pause()
        peer.pause()
        contestants[PEER] = (peer, partial(drive_peer, peer))
    # The bare model is PyTorch's: what it runs is no measure of a graph.
    if arguments.graph is None and set(arguments.workloads) & set(OF_BARE):
        bare = Bare([text for request in mixed.requests for text in request], model=arguments.model)
        stack.callback(bare.end)
        facts.append(("bare", describe(bare.ask("calibrate"))))
        bare.pause()
        contestants[BARE] = (bare, partial(run_bare, bare))
    return contestants, facts


def start_peer(stack: ExitStack, command: str, folder: Path, dtype: str, engine: str = "torch") -> Server:
    """Start infinity-emb, which warms up by itself, and wait for it."""
    program = shutil.which(command)
    if program is None:
        raise SystemExit(f"--peer is {command}, and there is no such command.")
    home = stack.enter_context(tempfile.TemporaryDirectory())
    options = {
        "--model-id": ".",  # optimum finds no graph by its path, only by its name in the folder
        "--engine": engine,
        "--pooling-method": "mean" if engine == "optimum" else "auto",  # optimum reads no folder's pooling
        "--served-model-name": _PEER_MODEL,
        "--device": "cpu",
        "--dtype": dtype,
        "--batch-size": "32",
        "--port": "{port}",
        "--host": "127.0.0.1",
        "--log-level": "warning",
    }
    peer = Server(
        [str(Path(program).absolute()), "v2", *(word for option in options.items() for word in option)],
        {**_PEER_ENVIRONMENT, "INFINITY_HOME": home},
        ready="/health",
        quiet=True,
        folder=folder,
    )
    stack.callback(peer.end)
    peer.wait_until_ready(_START_S)
    return peer


def with_graph(stack: ExitStack, folder: Path) -> Path:
    """Copy the embedded model, beside a plain export of it in eight bits, until the stack ends."""
    # Imports of PyTorch and transformers that nothing else here needs.
    from benchmarks.passes.graphs import export_plain  # noqa: PLC0415
    from benchmarks.service.runtimes import round_graph  # noqa: PLC0415

    place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    copy = Path(shutil.copytree(folder, place / "model"))
    round_graph(export_plain(place)).rename(copy / "model_quantized.onnx")  # infinity-emb looks for this name
    return copy


def lowest_cosine(headlight: Server, peer: Server, texts: Sequence[str]) -> float:
    """Compare the vectors of both servers; ends the program if they are not from the same model."""
    answers = [
        httpx.post(f"{server.url}{route}", json=body, timeout=_ANSWER_S, trust_env=False)
        for server, route, body in (
            (headlight, "/encode", {"inputs": list(texts)}),
            (peer, "/embeddings", {"model": _PEER_MODEL, "input": list(texts)}),
        )
    ]
    ours, theirs = (
        np.array([item["embedding"] for item in answer.raise_for_status().json()["data"]])
        for answer in answers
    )
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    lowest = float(((ours * theirs).sum(axis=1) / norms).min())
    if lowest < _SAME:
        raise SystemExit(
            f"The cosine of the two servers' vectors is as low as {lowest:.6f}, and should be {_SAME} at "
            "least: they do not run the same model."
        )
    return lowest


def describe(calibrated: Mapping[str, int]) -> str:
    """Describe how the bare model is fed."""
    lanes = "one at a time" if calibrated["lanes"] == 1 else f"{calibrated['lanes']} side by side"
    return f"batches of {calibrated['budget']} tokens, {lanes}"


def drive_headlight(server: Headlight, workload: Workload, seconds: int) -> Turn:
    """Load the service while reading how many tokens it has run."""
    bodies = [json.dumps({"inputs": texts}).encode() for texts in workload.requests]
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(
            drive, server, "/encode", bodies, connections=workload.connections, seconds=seconds
        )
        time.sleep(RAMP_S)
        before, start_s = server.total("headlight_input_tokens_total"), time.perf_counter()
        time.sleep(max(0.0, seconds - RAMP_S - _END_S))
        tokens = server.total("headlight_input_tokens_total") - before
        tokens_per_s = tokens / (time.perf_counter() - start_s)
        return Turn(good(load.result(), HEADLIGHT), tokens_per_s)


def drive_peer(server: Server, workload: Workload, seconds: int) -> Turn:
    """Load the peer."""
    bodies = [json.dumps({"model": _PEER_MODEL, "input": texts}).encode() for texts in workload.requests]
    load = drive(server, "/embeddings", bodies, connections=workload.connections, seconds=seconds)
    return Turn(good(load, PEER))


def run_bare(bare: Bare, _: Workload, seconds: int) -> Turn:
    """Let the bare model run its texts, which are those of the workload."""
    return Turn(tokens_per_s=bare.ask(f"run {seconds}"))


def measure(
    workload: Workload, contestants: Mapping[str, tuple[Process, Loaded]], rounds: int, seconds: int
) -> list[dict[str, Turn]]:
    """Let the contestants of this workload take turns."""
    taking_part = {
        name: Contestant(process, partial(run, workload))
        for name, (process, run) in contestants.items()
        if name != BARE or workload.name in OF_BARE
    }
    measured = []
    for turns in alternating(taking_part, rounds, seconds):
        for name, turn in turns.items():
            if turn.load is not None:
                steady(turn.load, name)
        measured.append(turns)
    return measured


def ratios(rounds: Sequence[Mapping[str, Turn]], other: str) -> list[float]:
    """Divide headlight by another, round by round: requests per second, or tokens where there are none."""
    found = []
    for turns in rounds:
        if other not in turns:
            continue
        ours, theirs = turns[HEADLIGHT], turns[other]
        if ours.load is not None and theirs.load is not None:
            found.append(ours.load.steady_per_s / theirs.load.steady_per_s)
        elif ours.tokens_per_s is not None and theirs.tokens_per_s is not None:
            found.append(ours.tokens_per_s / theirs.tokens_per_s)
    return found


def targets(arguments: argparse.Namespace, dtype: str) -> Mapping[str, float]:
    """Return the targets for requests per second / the peer's."""
    if arguments.peer_engine == "optimum":
        return INT8_OF_GRAPH if dtype == "int8" else {}
    if arguments.graph is not None:
        return GRAPH_OF_PEER
    return INT8_OF_PEER if dtype == "int8" else OF_PEER


def make_checks(
    workload: Workload, rounds: Sequence[Mapping[str, Turn]], of_peer: Mapping[str, float]
) -> list[tables.Check]:
    """Check the ratios of one workload against their targets."""
    checks = []
    held = ((PLAIN, OF_PLAIN, "requests/s"), (PEER, of_peer, "requests/s"), (BARE, OF_BARE, "tokens/s"))
    for other, bounds, unit in held:
        values = ratios(rounds, other)
        if values and workload.name in bounds:
            name = f"{workload.name}: {unit}, {HEADLIGHT} / {other}"
            checks.append(tables.Check(name, values, bounds[workload.name]))
    return checks


def print_rounds(workload: Workload, rounds: Sequence[Mapping[str, Turn]]) -> None:
    """Print the results of each round, the median over the rounds, and the ratios."""
    columns: dict[str, list[float]] = {}
    for name in rounds[0]:
        loads = [turns[name].load for turns in rounds]
        for unit, attribute in (("/s", "steady_per_s"), ("p50 ms", "p50_ms"), ("p99 ms", "p99_ms")):
            if loads[0] is not None:
                columns[f"{name} {unit}"] = [getattr(load, attribute) for load in loads]
        tokens = [turns[name].tokens_per_s for turns in rounds]
        if tokens[0] is not None:
            columns[f"{name} ktokens/s"] = [each / 1e3 for each in tokens if each is not None]
        if values := [] if name == HEADLIGHT else ratios(rounds, name):
            columns[f"to {name}"] = values
    rows = [[str(number), *cells] for number, cells in enumerate(_cells(columns), start=1)]
    medians = {name: [float(np.median(values))] for name, values in columns.items()}
    rows.append(["median", *_cells(medians)[0]])
    texts = "1 text" if workload.texts == 1 else f"{workload.texts} texts"
    connections = "1 connection" if workload.connections == 1 else f"{workload.connections} connections"
    tables.print_table(f"{workload.name}: {texts} a request, {connections}", ["round", *columns], rows)


def _cells(columns: Mapping[str, Sequence[float]]) -> list[list[str]]:
    """Write columns of numbers as rows of cells, ratios with more digits."""
    written = [
        [f"{value:.2f}" if name.startswith("to ") else f"{value:.1f}" for value in values]
        for name, values in columns.items()
    ]
    return [list(row) for row in zip(*written, strict=True)]


if __name__ == "__main__":
    main()
