"""Measures models of real size, over HTTP, beside `transformers` and ONNX Runtime without a service.

Models have random weights, the embedded model's tokenizer and `transformers`' configs; they are written to
`--place`, where they are found again. Loads:

- lone: one text of each of `--lengths` tokens, as far as the model reads so many, over one connection;
- mixed: `--texts` texts of log-normal lengths (a median of 55 words, at most 512 tokens), one in each
  request, over 16 connections.

The service runs with the settings in the environment (`HEADLIGHT_…`), in float32 unless they say otherwise.
Its peers run in processes of their own, in float32, with texts sorted by length and 32 to a batch, the mixed
load in one call (`peers/sorted_batches.py`): `transformers` with `sdpa` attention, and ONNX Runtime on a
plain export. All take turns, round by round, in reversed order every other round; a process without the turn
is paused. A turn begins with a short text that is not counted, and repeats a load for half a second, of which
the median counts. Vectors are compared first. The table has the least and the median of the seconds over the
rounds, and ratios within a round, with the quartiles in brackets.

    python -m benchmarks.service.real_sizes [--models bert-base] [--lengths 128,512] [--peers transformers]
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import httpx
import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import numbers, parser_for, some_of
from benchmarks.kit.servers import Headlight, Process
from benchmarks.peers.plain_export import export_plain
from benchmarks.peers.sorted_batches import OPENED
from benchmarks.service.real_models import MODELS, longest_of, mixed_texts, text_of, write_real
from model.onnx.file import GRAPH

HEADLIGHT = "headlight"
OF_MIXED = 2.0
OF_LONE = {("bert", 128): 1.15, ("bert", 512): 1.15, ("modernbert", 2048): 2.0, ("modernbert", 8192): 2.5}
"""The targets for the speed of headlight / `transformers`: of one text by family and tokens, and mixed."""
_CONNECTIONS, _LONGEST_MIXED = 16, 512
_START_S, _ANSWER_S = 300.0, 300.0
_SAME = 0.9999
_TURN_S, _WAKING = 0.5, 40
"""A turn repeats a short load for so long, after a text of so many characters that is not counted."""
Timed = Callable[[Sequence[str]], tuple[float, list[float]]]
"""Runs texts; returns the seconds, and the vector of the first text."""


def main() -> None:
    """Measure the models one after the other, and print."""
    arguments = parse_arguments()
    os.environ.setdefault("HEADLIGHT_DTYPE", "float32")
    tables.print_facts("Machine", machine.facts(os.environ["HEADLIGHT_DTYPE"]))
    checks: list[tables.Check] = []
    with ExitStack() as stack:
        place = arguments.place or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in arguments.models:
            checks += measure_model(write_real(place, name), arguments)
    if checks:
        tables.print_checks(checks)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--models", type=some_of(tuple(MODELS)), default=list(MODELS))
    parser.add_argument("--lengths", type=numbers, default=[128, 512, 2048, 8192], help="none: empty")
    parser.add_argument("--texts", type=int, default=256, help="of the mixed load; 0 leaves it out")
    parser.add_argument("--peers", type=some_of(tuple(OPENED)), default=list(OPENED))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--place", type=Path, help="where models are kept; by default they are removed again")
    return parser.parse_args()


def measure_model(folder: Path, arguments: argparse.Namespace) -> list[tables.Check]:
    """Start all contestants on a model, let them take turns with each load, and print their table."""
    longest = longest_of(folder)
    loads = {f"{n} tokens": [text_of(folder, n)] for n in arguments.lengths if n <= longest}
    if arguments.texts:
        texts = mixed_texts(folder, arguments.texts, min(longest, _LONGEST_MIXED))
        loads[f"{arguments.texts} mixed"] = texts
    with contestants(folder, arguments.peers) as started:
        compare(started, [text_of(folder, 30), text_of(folder, 90)])
        seconds = {load: take_turns(started, texts, arguments.rounds) for load, texts in loads.items()}
    print_table(folder.name, seconds)
    return make_checks(folder.name, seconds)


@contextmanager
def contestants(folder: Path, peers: Sequence[str]) -> Iterator[Mapping[str, tuple[Process, Timed]]]:
    """Start the service and its peers; each is paused."""
    folders = {name: folder_of(name, folder) for name in peers}
    with ExitStack() as stack:
        server = Headlight(model=folder, processes=os.environ.get("HEADLIGHT_PROCESSES", "auto"))
        stack.callback(server.end)
        server.wait_until_ready(_START_S)
        client = httpx.Client(
            base_url=server.url,
            timeout=_ANSWER_S,
            trust_env=False,
            limits=httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS),
        )
        stack.enter_context(client)
        pool = stack.enter_context(ThreadPoolExecutor(_CONNECTIONS))
        started: dict[str, tuple[Process, Timed]] = {HEADLIGHT: (server, partial(over_http, client, pool))}
        server.pause()
        for name, place in folders.items():
            command = [sys.executable, "-m", "benchmarks.peers.sorted_batches", name, str(place)]
            peer = Process(command, {}, pipes=True)
            stack.callback(peer.end)
            started[name] = peer, partial(in_process, peer)
            in_process(peer, ["ready"])
            peer.pause()
        yield started


def folder_of(peer: str, folder: Path) -> Path:
    """Return the folder that a peer runs; the plain export of a model is beside it, and made once."""
    if peer != "onnxruntime":
        return folder
    plain = folder.with_name(f"{folder.name}-onnx")
    if not (plain / GRAPH).exists():
        plain.mkdir(exist_ok=True)
        shutil.copy(folder / "tokenizer.json", plain)
        export_plain(plain, folder)
    return plain


def over_http(
    client: httpx.Client, pool: ThreadPoolExecutor, texts: Sequence[str]
) -> tuple[float, list[float]]:
    """Send each text in a request of its own."""

    def ask(text: str) -> httpx.Response:
        body = {"inputs": text, "columns": [], "normalize": True, "pooling": "mean"}
        return client.post("/encode", json=body).raise_for_status()

    start = time.perf_counter()
    answers = [*pool.map(ask, texts)] if len(texts) > 1 else [ask(texts[0])]
    seconds = time.perf_counter() - start
    vector: list[float] = answers[0].json()["data"][0]["embedding"]
    return seconds, vector


def in_process(peer: Process, texts: Sequence[str]) -> tuple[float, list[float]]:
    """Have a peer run all texts."""
    seconds, vector = peer.ask(json.dumps(list(texts)))
    return seconds, vector


def take_turns(
    started: Mapping[str, tuple[Process, Timed]], texts: Sequence[str], rounds: int
) -> dict[str, list[float]]:
    """Let all run a load in each round, in reversed order every other round: the median seconds of a turn."""
    seconds: dict[str, list[float]] = {name: [] for name in started}
    for number in range(rounds):
        for name, (process, run) in [*started.items()][:: -1 if number % 2 else 1]:
            process.go_on()
            run([texts[0][:_WAKING]])
            turn = [run(texts)[0]]
            while sum(turn) < _TURN_S:
                turn.append(run(texts)[0])
            process.pause()
            seconds[name].append(statistics.median(turn))
    return seconds


def compare(started: Mapping[str, tuple[Process, Timed]], texts: Sequence[str]) -> None:
    """End the program unless all make the same vectors."""
    for text in texts:
        vectors = {}
        for name, (process, run) in started.items():
            process.go_on()
            vectors[name] = np.array(run([text])[1])
            process.pause()
        for name, vector in vectors.items():
            cosine = float(vector @ vectors[HEADLIGHT])
            if cosine < _SAME:
                raise SystemExit(
                    f"The cosine to the vector of {name} is {cosine:.6f}: the two do not run the same model."
                )


def print_table(model: str, seconds: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Print the seconds of each load, and how much longer the peers take."""
    peers = [name for name in next(iter(seconds.values()), {}) if name != HEADLIGHT]
    rows = []
    for load, of_load in seconds.items():
        shown = [f"{min(values):.3f} / {np.median(values):.3f}" for values in of_load.values()]
        ratios = [tables.ratio(of_load[peer], of_load[HEADLIGHT]) for peer in peers]
        rows.append([load, *shown, *ratios])
    header = ["", HEADLIGHT, *peers, *(f"{peer} / {HEADLIGHT}" for peer in peers)]
    tables.print_table(f"{model}: seconds, least / median", header, rows)


def make_checks(model: str, seconds: Mapping[str, Mapping[str, Sequence[float]]]) -> list[tables.Check]:
    """Hold the speed of `transformers` to the targets."""
    checks = []
    for load, of_load in seconds.items():
        if (theirs := of_load.get("transformers")) is None:
            continue
        family, count = model.partition("-")[0], int(load.partition(" ")[0])
        bound = OF_MIXED if "mixed" in load else OF_LONE.get((family, count))
        if bound is not None:
            values = np.divide(theirs, of_load[HEADLIGHT]).tolist()
            checks.append(tables.Check(f"{model}, {load}: speed / transformers", values, bound))
    return checks


if __name__ == "__main__":
    main()
