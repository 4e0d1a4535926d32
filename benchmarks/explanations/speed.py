"""Measures what explanations cost over HTTP, compared with the passes that they need, and with hooks.

Starts the service on a free port of the loopback interface, in each precision, with the embedded model and a
classifier of the same weights (`fitted_classifier.py`) whose last layer is random. Compared in turn, one
request at a time:

- all heads of a text of 32 tokens, with encoding that text once more than there are heads, in one request;
- the same, with `transformers` in float32 and a hook for each head, on as many cores
  (`peers/hooked_heads.py`);
- the parts of a pair of sentences, with `/similarity` of the two;
- occlusion of a text of 64 words, with encoding the 65 texts that it runs.

Before the measurement, both sides' numbers of tokens are compared, and the effects of heads with the hooks'.

    python -m benchmarks.explanations.speed [--dtypes float32,bfloat16] [--rounds 15]
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.explanations.fitted_classifier import write_classifier
from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for, some_of
from benchmarks.kit.servers import Headlight, Process
from benchmarks.kit.turns import take_turns
from benchmarks.kit.wire import BlockingConnection, request_bytes
from model.checkpoints.source import EMBEDDED, resolve

_START_S = 180.0
_OK = 200
_NAME = "random"
_WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "looked", "at", "the", "moon", "as", "it", "rose")
_CLOSE = {"float32": 1e-3, "bfloat16": 0.3}
"""How far apart the effects of heads may be, of logits of about 1."""
_MS = 1e3

Asked = Mapping[str, tuple[str, dict[str, Any]]]
"""Routes and bodies of requests, by their names."""
RATIOS = (
    ("all heads / encoding the text for each", "heads", "texts of heads", 0.65),
    ("parts of a pair / similarity", "parts", "similarity", 1.1),
    ("occlusion of 64 words / encoding their texts", "occlusion", "texts of words", 1.1),
)
"""What is divided by what, and the most that it should be."""
_HOOKS_BOUND = 12.0
_TURN_S = 0.3
"""For so long short requests are repeated in a turn."""


def main() -> None:
    """Measure in each precision, and print."""
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / _NAME
        config = json.loads((resolve(EMBEDDED) / "config.json").read_text(encoding="utf-8"))
        weight = np.random.default_rng(0).normal(size=(2, config["hidden_size"])) / 10
        write_classifier(folder, ["first", "second"], weight, np.zeros(2))
        asked = requests(config["num_hidden_layers"] * config["num_attention_heads"])
        for dtype in arguments.dtypes:
            seconds, hooked = measure(folder, dtype, asked, arguments.rounds)
            print_measured(dtype, seconds, hooked)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    every = [*_CLOSE]
    parser.add_argument("--dtypes", type=some_of(every), default=every)
    parser.add_argument("--rounds", type=int, default=15)
    return parser.parse_args()


def text_of(words: int) -> list[str]:
    """Return so many words, each of which is one token."""
    return list(islice(cycle(_WORDS), words))


def requests(heads: int) -> Asked:
    """Make all requests, given how many heads the model has in all its layers."""
    short, long = " ".join(text_of(30)), text_of(64)
    occluded = [" ".join([*long[:i], "[MASK]", *long[i + 1 :]]) for i in range(len(long))]
    first, second = (
        "It rained all day and the match was cancelled.",
        "They did not play because of the weather.",
    )
    return {
        "heads": ("/explain", {"model": _NAME, "inputs": short, "method": "heads"}),
        "texts of heads": ("/predict", {"model": _NAME, "inputs": [short] * (heads + 1)}),
        "parts": ("/explain", {"inputs": [[first, second]], "method": "parts"}),
        "similarity": ("/similarity", {"source": first, "texts": [second]}),
        "occlusion": ("/explain", {"model": _NAME, "inputs": " ".join(long), "method": "occlusion"}),
        "texts of words": ("/predict", {"model": _NAME, "inputs": [" ".join(long), *occluded]}),
    }


def measure(
    folder: Path, dtype: str, asked: Asked, rounds: int
) -> tuple[dict[str, list[float]], list[float]]:
    """Return the seconds of each request in every round, and those of the hooks."""
    server = Headlight(model=f"{EMBEDDED},{folder}", dtype=dtype)
    hooks = Process(
        [sys.executable, "-m", "benchmarks.peers.hooked_heads"],
        {"HOOKED_MODEL": str(folder), "HF_HUB_OFFLINE": "1"},
        pipes=True,
        quiet=False,
    )
    try:
        server.wait_until_ready(_START_S)
        connection = BlockingConnection(server.port)

        def caller(route: str, body: dict[str, Any]) -> Callable[[], None]:
            request = request_bytes(server.port, route, json.dumps(body).encode())

            def call() -> None:
                head, start = connection.ask(request)
                if head.status != _OK:
                    raise SystemExit(f"{route} answered {head.status}: {start.decode()}")

            return call

        calls = {name: caller(*one) for name, one in asked.items()}
        text = asked["heads"][1]["inputs"]
        with httpx.Client(base_url=server.url, timeout=_START_S, trust_env=False) as client:
            answers = {name: client.post(route, json=body).json() for name, (route, body) in asked.items()}
        compare(answers, hooks.ask(text), _CLOSE[dtype])
        seconds = take_turns({**calls, "hooks": lambda: hooks.ask(text)}, rounds, shortest_s=_TURN_S)
    finally:
        hooks.end()
        server.end()
    return seconds, seconds.pop("hooks")


def compare(answers: Mapping[str, dict[str, Any]], hooked: Any, close: float) -> None:
    """End the program unless both sides run the same tokens, and find the same effects of heads."""
    for _, ours, theirs, _ in RATIOS:
        tokens = [answers[name]["usage"]["input_tokens"] for name in (ours, theirs)]
        if tokens[0] != tokens[1]:
            raise SystemExit(f"{ours} ran {tokens[0]} tokens, but {theirs} ran {tokens[1]}.")
    found = np.array(answers["heads"]["data"][0]["heads"])
    furthest = float(np.abs(found - np.array(hooked)).max())
    if furthest > close:
        raise SystemExit(
            f"The effects of heads differ from the hooks' effects by {furthest:.4f}; at most {close} is "
            "allowed."
        )


def print_measured(dtype: str, seconds: Mapping[str, list[float]], hooked: list[float]) -> None:
    """Print the times, and the ratios round by round."""
    tables.print_facts("Machine", machine.facts(dtype))
    rows = [
        [name, f"{_MS * float(np.median(some)):.1f}"] for name, some in {**seconds, "hooks": hooked}.items()
    ]
    tables.print_table(f"One request in {dtype}", ["request", "median ms"], rows)
    checks = [
        tables.Check(title, np.divide(seconds[ours], seconds[theirs]).tolist(), bound, at_most=True)
        for title, ours, theirs, bound in RATIOS
    ]
    times = np.divide(hooked, seconds["heads"]).tolist()
    tables.print_checks([*checks, tables.Check("a hook for each head / all heads", times, _HOOKS_BOUND)])


if __name__ == "__main__":
    main()
