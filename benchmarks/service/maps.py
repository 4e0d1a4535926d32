"""Measures requests for attention maps per second, compared with a plain route around `transformers`.

Starts on free ports of the loopback interface, each as a separate process with all cores:

- headlight, with the settings in the environment (`HEADLIGHT_…`): maps of the last layer, all heads, as JSON
  and as npz; and maps of the first layer, after which the model can stop;
- the peer, `peers/plain_route.py`: FastAPI and an eager model in float32, with maps of the last layer.
  It always runs and keeps all layers, so its rate is also compared with the first layer. It is measured
  without a return type and with one, which makes its JSON faster.

Each request is a different text, over eight connections that each send the next request after their answer.
The servers take turns within each round, in reversed order every other round; a server without the turn is
paused. Ratios are formed within a round. The maps of both servers are compared before the measurement; an
error in an answer ends the program.

    python -m benchmarks.service.maps --data sts-dev.tsv [--rounds 5] [--seconds 6]
"""

import argparse
import io
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.servers import Headlight, Server
from benchmarks.kit.turns import Contestant, alternating
from benchmarks.kit.workloads import make_texts
from benchmarks.kit.wrk import Load, drive, good, steady
from model.checkpoints.source import EMBEDDED, resolve

_ROUTE = "/attention"
_START_S = 180.0
_ANSWER_S = 60.0
_NPZ = {"Accept": "application/x-npz"}
_PEER_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
_TEXTS = 512
_COMPARED = 16
_CLOSE = 0.02
"""How far apart maps in bfloat16 and in float32 may be."""
PEERS = {"peer": "/attention", "peer, typed": "/typed"}
"""The peer's routes."""


@dataclass(frozen=True)
class Way:
    """A request to headlight: a layer, a format, and the target for its rate / the peer's rate."""

    layer: int
    headers: Mapping[str, str]
    bound: float | None = None

    def body(self, text: str) -> dict[str, Any]:
        """Ask for the maps of one text."""
        return {"inputs": text, "layers": [self.layer]}


WAYS = {
    "last layer, JSON": Way(-1, {}, bound=8.0),
    "last layer, npz": Way(-1, _NPZ, bound=12.0),
    "first layer, JSON": Way(0, {}),
    "first layer, npz": Way(0, _NPZ),
}


def main() -> None:
    """Start both, compare their maps, let them take turns, end them, and print."""
    arguments = parse_arguments()
    texts = make_texts(arguments.data, arguments.words, _TEXTS)
    with ExitStack() as stack:
        headlight = Headlight(model=arguments.model)
        stack.callback(headlight.end)
        headlight.wait_until_ready(_START_S)
        info = httpx.get(f"{headlight.url}/info", trust_env=False).json()["models"][0]
        peer = start_peer(stack, arguments.model)
        furthest, tokens = compare(headlight, peer, texts[:_COMPARED])
        for server in (headlight, peer):
            server.pause()
        tables.print_facts(
            "Machine",
            [
                *machine.facts(info["dtype"]),
                ("model", arguments.model),
                ("request", f"1 text of {tokens:.0f} tokens, {arguments.connections} connections"),
                ("furthest from peer", f"{furthest:.4f}, of {_COMPARED} texts"),
            ],
        )
        rounds = measure(headlight, peer, texts, arguments)
    print_rounds(rounds)
    tables.print_checks(
        [
            tables.Check(f"{name}: requests/s, headlight / {peer}", to_peer(rounds, name, peer), way.bound)
            for peer in PEERS
            for name, way in WAYS.items()
            if way.bound is not None
        ]
    )


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="an STS file, tab-separated")
    parser.add_argument("--model", default=EMBEDDED, help="the embedded model, a folder or a hub name")
    parser.add_argument("--words", type=int, default=24, help="of each text")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=6, help="of each turn, 2 at least")
    return parser.parse_args()


def start_peer(stack: ExitStack, model: str) -> Server:
    """Start the plain route; the stack ends it."""
    options = ["--host", "127.0.0.1", "--port", "{port}", "--log-level", "warning"]
    peer = Server(
        [sys.executable, "-m", "uvicorn", "benchmarks.peers.plain_route:app", *options],
        {**_PEER_ENVIRONMENT, "PLAIN_ROUTE_MODEL": str(resolve(model))},
        ready="/openapi.json",
    )
    stack.callback(peer.end)
    peer.wait_until_ready(_START_S)
    return peer


def compare(headlight: Server, peer: Server, texts: Sequence[str]) -> tuple[float, float]:
    """Find the largest difference of both servers' maps, and the mean number of tokens.

    Ends the program if a map differs by more than the dtype explains.
    """
    furthest, tokens = 0.0, []
    for text in texts:
        theirs = ask(peer, {"text": text}).json()
        tokens.append(len(theirs["tokens"]))
        for way in (way for way in WAYS.values() if way.layer == -1):
            answer = ask(headlight, way.body(text), way.headers)
            if way.headers:
                ours = np.load(io.BytesIO(answer.content), allow_pickle=False)["0.attention"]
            else:
                ours = np.array(answer.json()["data"][0]["attention"])
            furthest = max(furthest, float(np.abs(ours[0] - np.array(theirs["attention"])).max()))
    if furthest > _CLOSE:
        raise SystemExit(
            f"The maps of the two servers differ by {furthest:.4f}; at most {_CLOSE} is allowed: the two do "
            "not run the same model."
        )
    return furthest, float(np.mean(tokens))


def ask(server: Server, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> httpx.Response:
    """Ask once."""
    answer = httpx.post(
        f"{server.url}{_ROUTE}", json=body, headers=headers, timeout=_ANSWER_S, trust_env=False
    )
    return answer.raise_for_status()


def measure(
    headlight: Server, peer: Server, texts: Sequence[str], arguments: argparse.Namespace
) -> list[dict[str, Load]]:
    """Let all ways take turns."""

    def load(
        server: Server, route: str, bodies: Sequence[bytes], headers: Mapping[str, str], seconds: int
    ) -> Load:
        driven = drive(
            server, route, bodies, connections=arguments.connections, seconds=seconds, headers=headers
        )
        return good(driven, "the peer" if server is peer else "headlight")

    contestants = {
        name: Contestant(
            headlight,
            partial(
                load, headlight, _ROUTE, [json.dumps(way.body(text)).encode() for text in texts], way.headers
            ),
        )
        for name, way in WAYS.items()
    }
    plain = [json.dumps({"text": text}).encode() for text in texts]
    for name, route in PEERS.items():
        contestants[name] = Contestant(peer, partial(load, peer, route, plain, {}))
    return [
        {name: steady(found, name) for name, found in turns.items()}
        for turns in alternating(contestants, arguments.rounds, arguments.seconds)
    ]


def to_peer(rounds: Sequence[Mapping[str, Load]], name: str, peer: str) -> list[float]:
    """Divide the rates of a way by the peer's, round by round."""
    return [turns[name].steady_per_s / turns[peer].steady_per_s for turns in rounds]


def print_rounds(rounds: Sequence[Mapping[str, Load]]) -> None:
    """Print the medians over the rounds, and the ratios with their quartiles."""
    rows = []
    for name in rounds[0]:
        loads = [turns[name] for turns in rounds]
        figures = [[getattr(load, unit) for load in loads] for unit in ("steady_per_s", "p50_ms", "p99_ms")]
        peers = [[turns[peer].steady_per_s for turns in rounds] for peer in PEERS]
        ratios = [tables.ratio(figures[0], peer) for peer in peers] if name in WAYS else [""] * len(peers)
        rows.append([name, *(f"{np.median(values):.1f}" for values in figures), *ratios])
    header = ["maps", "requests/s", "p50 ms", "p99 ms", *(f"to {peer}" for peer in PEERS)]
    tables.print_table(f"Medians of {len(rounds)} rounds, and [quartiles]", header, rows)


if __name__ == "__main__":
    main()
