"""Measures pairs per second of `/rerank` with a cross-encoder, compared with `/encode` and infinity-emb.

The cross-encoder has the sizes and the tokenizer of the embedded model (MiniLM-L6) and random weights, on
which speed does not depend. A request is a query and 64 texts of 100 words, each a random word of the
vocabulary, over a number of connections that each send the next request after their answer. Starts on free
ports of the loopback interface:

- headlight, with the settings in the environment (`HEADLIGHT_…`): `/rerank`, and `/encode` of the same pairs;
- the peer, infinity-emb, with the same folder of weights, the same dtype and otherwise its own defaults;
  `--peer` is its command, and without it headlight is measured alone.

They take turns within each round, in reversed order every other round; a process without the turn is paused.
Ratios are formed within a round. Processor time per pair is measured too: it depends little on what else runs
on the machine. The scores of both servers are compared before the measurement; an error in
an answer ends the program.

    python -m benchmarks.service.rerank --peer infinity_emb [--rounds 3] [--seconds 8]
"""

import argparse
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from transformers import AutoConfig, BertForSequenceClassification

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.servers import Headlight, Server
from benchmarks.kit.turns import Contestant, alternating
from benchmarks.peers.infinity import start_infinity
from model.checkpoints.source import EMBEDDED, resolve

RERANK, ENCODE, PEER = "/rerank", "/encode", "peer"
OF_ENCODE = 0.9
"""The target for pairs per second / those of /encode."""

_START_S = 180.0
_ANSWER_S = 60.0
_TEXTS, _WORDS, _QUERY_WORDS = 64, 100, 8
_REQUESTS = 8
_CLOSE = 0.02
"""How far apart scores in bfloat16 may be; random weights give scores of about a half."""

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Turn:
    """Pairs per second, and the processor time of the server per pair."""

    pairs_per_s: float
    cpu_ms: float


def main() -> None:
    """Write the model, start the servers, let them take turns, end them, and print."""
    arguments = parse_arguments()
    requests = make_requests(resolve(EMBEDDED))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "cross-encoder"
        write_cross_encoder(folder)
        headlight = Headlight(model=folder, processes=arguments.processes)
        stack.callback(headlight.end)
        headlight.wait_until_ready(_START_S)
        info = ask(headlight, "/info")["models"][0]
        pairs = list(map(as_pairs, requests))
        contestants = {
            RERANK: Contestant(headlight, partial(drive, headlight, RERANK, requests, arguments.connections)),
            ENCODE: Contestant(headlight, partial(drive, headlight, ENCODE, pairs, arguments.connections)),
        }
        facts = [*machine.facts(info["dtype"]), ("kernels", info["kernels"] or "PyTorch's")]
        if arguments.peer is not None:
            peer = start_infinity(stack, arguments.peer, folder, info["dtype"])
            facts.append(("furthest from peer", f"{furthest(headlight, peer, requests[0]):.4f}"))
            peer.pause()
            theirs = list(map(for_peer, requests))
            contestants[PEER] = Contestant(peer, partial(drive, peer, RERANK, theirs, arguments.connections))
        headlight.pause()
        tables.print_facts("Machine", facts)
        rounds = list(alternating(contestants, arguments.rounds, arguments.seconds))
    print_rounds(rounds)
    values = [turns[RERANK].pairs_per_s / turns[ENCODE].pairs_per_s for turns in rounds]
    tables.print_checks([tables.Check("pairs/s, /rerank / /encode", values, OF_ENCODE)])


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--peer", help="the command infinity_emb, of version 0.0.78")
    parser.add_argument("--processes", default="1", help="of headlight")
    parser.add_argument("--connections", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=8, help="of each turn")
    return parser.parse_args()


def write_cross_encoder(folder: Path) -> None:
    """Save a BERT of the embedded model's sizes with one label and random weights, and its tokenizer."""
    source = resolve(EMBEDDED)
    config = AutoConfig.from_pretrained(source)
    config.num_labels = 1
    torch.manual_seed(0)
    BertForSequenceClassification(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def make_requests(source: Path, seed: int = 0) -> list[Body]:
    """Draw queries and texts of random words, each of which is one token."""
    vocabulary = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    words = sorted(word for word in vocabulary if word.isascii() and word.isalpha())
    draw = random.Random(seed)  # noqa: S311

    def text(count: int) -> str:
        return " ".join(draw.choices(words, k=count))

    return [
        {"query": text(_QUERY_WORDS), "texts": [text(_WORDS) for _ in range(_TEXTS)]}
        for _ in range(_REQUESTS)
    ]


def as_pairs(request: Body) -> Body:
    """Ask `/encode` for the vectors of the same pairs."""
    return {"inputs": [[request["query"], text] for text in request["texts"]]}


def for_peer(request: Body) -> Body:
    """Ask the peer for the same scores."""
    return {"model": "m", "query": request["query"], "documents": request["texts"]}


def ask(server: Server, route: str, body: Body | None = None) -> Any:
    """Get a route, or post a body to it; ends the program unless it is a 200."""
    method = "GET" if body is None else "POST"
    answer = httpx.request(method, f"{server.url}{route}", json=body, timeout=_ANSWER_S, trust_env=False)
    return answer.raise_for_status().json()


def furthest(headlight: Server, peer: Server, request: Body) -> float:
    """Find the largest difference of both servers' scores; ends the program if it is too large."""
    ours = {item["index"]: item["score"] for item in ask(headlight, RERANK, request)["data"]}
    found = ask(peer, RERANK, for_peer(request))["results"]
    largest = max(abs(ours[item["index"]] - item["relevance_score"]) for item in found)
    if largest > _CLOSE or len(found) != len(ours):
        raise SystemExit(f"The scores of the two servers differ by up to {largest:.4f}, more than {_CLOSE}.")
    return largest


def drive(server: Server, route: str, bodies: Sequence[Body], connections: int, seconds: int) -> Turn:
    """Load a route over some connections, each with one request at a time.

    The last requests are waited for, and the time until then counts.
    """
    contents = cycle([json.dumps(body).encode() for body in bodies])
    start, before = time.perf_counter(), cpu_s(server)

    def send(client: httpx.Client) -> int:
        answered = 0
        while time.perf_counter() - start < seconds:
            client.post(route, content=next(contents)).raise_for_status()
            answered += 1
        return answered

    headers = {"Content-Type": "application/json"}
    with (
        httpx.Client(base_url=server.url, timeout=_ANSWER_S, trust_env=False, headers=headers) as client,
        ThreadPoolExecutor(connections) as pool,
    ):
        answered = sum(pool.map(send, [client] * connections))
    pairs = answered * _TEXTS
    return Turn(pairs / (time.perf_counter() - start), 1e3 * (cpu_s(server) - before) / pairs)


def cpu_s(server: Server) -> float:
    """Read the processor time of a server's process, user and system, in seconds."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def print_rounds(rounds: Sequence[Mapping[str, Turn]]) -> None:
    """Print what each contestant did and took, and the ratios to it."""
    rates = {name: [turns[name].pairs_per_s for turns in rounds] for name in rounds[0]}
    times = {name: [turns[name].cpu_ms for turns in rounds] for name in rounds[0]}
    rows = [
        [
            name,
            f"{np.median(rates[name]):.1f}",
            "" if name == RERANK else tables.ratio(rates[RERANK], rates[name]),
            f"{np.median(times[name]):.1f}",
            "" if name == RERANK else tables.ratio(times[name], times[RERANK]),
        ]
        for name in rates
    ]
    header = ["route", "pairs/s", "/rerank to it", "CPU ms/pair", "it to /rerank"]
    tables.print_table(f"Medians of {len(rounds)} rounds, and [quartiles]", header, rows)


if __name__ == "__main__":
    main()
