"""Measures texts per second of a table of token vectors over HTTP, beside model2vec.

Starts on free ports of the loopback interface, each with all cores:

- headlight, with the settings in the environment (`HEADLIGHT_…`), in as many processes as it chooses;
- the peer, `peers/static_route.py`: FastAPI around model2vec's `encode`, in `--workers` processes. `--python`
  is that of an environment with model2vec, fastapi and uvicorn.

Both answer with JSON. A request has one sentence, or 32. The servers take turns within each round, in
reversed order every other round; a server without the turn is paused. Ratios are formed within a round. The
vectors of both are compared before the measurement; an error in an answer ends the program. What model2vec
does in one process, without HTTP, is printed beside them: that is what a server of it could not exceed.

    python -m benchmarks.static.rates --model FOLDER --data sts-dev.tsv --python VENV/bin/python
"""

import argparse
import json
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx
import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.servers import Headlight, Server
from benchmarks.kit.turns import Contestant, alternating
from benchmarks.kit.workloads import read_sts
from benchmarks.kit.wrk import Load, drive, good, steady

_ROUTE, _START_S, _TEXTS, _COMPARED = "/encode", 60.0, 2048, 64
_SIZES = (1, 32)
"""Texts of a request."""
_BOUND = 3.0
"""The target for headlight / the peer."""
_CLOSE = 1e-5
_IN_PROCESS = """
import json, sys, time
from model2vec import StaticModel
model, texts = StaticModel.from_pretrained(sys.argv[1]), json.load(sys.stdin)
for size in (1, 32, len(texts)):
    best = 1e9
    for _ in range(5):
        start = time.perf_counter()
        for first in range(0, len(texts), size):
            model.encode(texts[first] if size == 1 else texts[first : first + size])
        best = min(best, time.perf_counter() - start)
    print(f"{size} at a time: {len(texts) / best:.0f} texts/s")
"""


def main() -> None:
    """Start both, compare their vectors, let them take turns, end them, and print."""
    arguments = parse_arguments()
    texts = [text for pair in read_sts(arguments.data) for text in (pair.first, pair.second)][:_TEXTS]
    with ExitStack() as stack:
        servers = {"headlight": start_headlight(arguments.model), "peer": start_peer(arguments)}
        for server in servers.values():
            stack.callback(server.end)
            server.wait_until_ready(_START_S)
        furthest = compare(servers["headlight"], servers["peer"], texts[:_COMPARED])
        for server in servers.values():
            server.pause()
        facts = [*machine.facts("float32"), ("model", str(arguments.model))]
        facts.append(("furthest from model2vec", f"{furthest:.1e}, of {_COMPARED} texts"))
        facts += [("model2vec in process", line) for line in in_process(arguments, texts)]
        tables.print_facts("Machine", facts)
        rounds = measure(servers, texts, arguments)
    print_rounds(rounds)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="an STS file, tab-separated")
    parser.add_argument("--model", type=Path, required=True, help="a folder that model2vec has saved")
    parser.add_argument("--python", required=True, help="of an environment with model2vec, fastapi, uvicorn")
    parser.add_argument("--workers", type=int, default=2, help="processes of the peer")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="of each turn, 2 at least")
    return parser.parse_args()


def start_headlight(model: Path) -> Headlight:
    """Start headlight in a process for each core."""
    return Headlight(model=model, processes="auto")


def start_peer(arguments: argparse.Namespace) -> Server:
    """Start the plain route."""
    options = ["--port", "{port}", "--log-level", "warning", "--workers", str(arguments.workers)]
    return Server(
        [arguments.python, "-m", "uvicorn", "benchmarks.peers.static_route:app", *options],
        {"STATIC_ROUTE_MODEL": str(arguments.model)},
        ready="/openapi.json",
    )


def compare(headlight: Server, peer: Server, texts: Sequence[str]) -> float:
    """Return the largest difference of both servers' vectors; ends the program if they differ."""
    ours, theirs = (
        httpx.post(f"{server.url}{_ROUTE}", json={"inputs": texts}, trust_env=False).raise_for_status().json()
        for server in (headlight, peer)
    )
    vectors = np.array([item["embedding"] for item in ours["data"]])
    furthest = float(np.abs(vectors - np.array(theirs)).max())
    if furthest > _CLOSE:
        raise SystemExit(f"The vectors differ by {furthest:.1e}; at most {_CLOSE} is allowed.")
    return furthest


def in_process(arguments: argparse.Namespace, texts: Sequence[str]) -> list[str]:
    """Return what model2vec does without HTTP, as lines."""
    command = [arguments.python, "-c", _IN_PROCESS, str(arguments.model)]
    ended = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=True)
    return ended.stdout.splitlines()


def measure(
    servers: dict[str, Server], texts: Sequence[str], arguments: argparse.Namespace
) -> list[dict[str, Load]]:
    """Let both take turns with requests of each size."""

    def load(name: str, size: int, seconds: int) -> Load:
        bodies = [
            json.dumps({"inputs": texts[first : first + size]}).encode()
            for first in range(0, len(texts), size)
        ]
        done = drive(servers[name], _ROUTE, bodies, connections=arguments.connections, seconds=seconds)
        return good(done, name)

    contestants = {
        f"{name}, {size}": Contestant(server, partial(load, name, size))
        for size in _SIZES
        for name, server in servers.items()
    }
    return [
        {name: steady(found, name) for name, found in turns.items()}
        for turns in alternating(contestants, arguments.rounds, arguments.seconds)
    ]


def print_rounds(rounds: Sequence[dict[str, Load]]) -> None:
    """Print the rates, and headlight / the peer."""
    rows = []
    for name in rounds[0]:
        size = int(name.partition(", ")[2])
        rates = [size * turns[name].steady_per_s for turns in rounds]
        rows.append([name, f"{np.median(rates):.0f}", f"{np.median([t[name].p50_ms for t in rounds]):.1f}"])
    tables.print_table("Server, texts of a request", ["", "texts/s", "p50 ms"], rows)
    checks = [
        tables.Check(
            f"{size} texts a request: headlight / peer",
            [t[f"headlight, {size}"].steady_per_s / t[f"peer, {size}"].steady_per_s for t in rounds],
            _BOUND,
        )
        for size in _SIZES
    ]
    tables.print_checks(checks)


if __name__ == "__main__":
    main()
