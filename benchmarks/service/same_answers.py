"""Checks that two checkouts of headlight give identical answers: 200 fixed requests to each, one at a time.

Both run in float32 with the same settings, each from its own checkout, with this program's interpreter. For
errors, the status, type and field are compared, but not the sentences. The lines of ndjson are sorted before
they are compared, since they arrive in any order.

    git worktree add /tmp/before COMMIT
    python -m benchmarks.service.same_answers /tmp/before [--model exported] [--native off]
"""

import os
import random
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import httpx
import orjson

from benchmarks.kit.command_line import parser_for
from model.contract import Pooling

ROOT = Path(__file__).parents[2]
_REQUESTS = 200
_START_S = 120.0
# Of the options, this share is given in a request.
_SHARE = 0.2
_TEXT = (
    "the animal did not cross street because it was too tired embedding ünïcode 漢字 naïve 🙂 transformers "
    "attention heads look at separators antidisestablishmentarianism 3.14 don't e-mail"
)
_FORMATS = ("application/json", "application/x-npz", "application/x-safetensors", "application/x-ndjson")


@dataclass(frozen=True)
class Ask:
    """One request."""

    path: str
    body: Mapping[str, Any]
    accept: str = "application/json"


def asks(count: int = _REQUESTS, seed: int = 0) -> list[Ask]:
    """Make the requests: both routes, all formats and most options, some of them wrong."""
    chance = random.Random(seed)  # noqa: S311 - fixed, not secret
    return [_encode(chance) if i % 2 else _attention(chance) for i in range(count)]


def _encode(chance: random.Random) -> Ask:
    outputs = chance.choice((["sentence"], ["sentence"], ["tokens"], ["sentence", "tokens"]))
    body = _inputs(chance) | {"outputs": outputs}
    if "sentence" in outputs:
        body |= _some(
            chance,
            {
                "pooling": get_args(Pooling),
                "pooling_layers": ([-1], [2, 5], [0]),
                "normalize": (True, False),
                "dimensions": (8, 384, 2000),
            },
        )
    if "tokens" in outputs:
        body |= _some(chance, {"layers": ([0], [-1, 3], [7])})
    return Ask("/encode", body, chance.choice(_FORMATS))


def _attention(chance: random.Random) -> Ask:
    body = _inputs(chance) | _some(
        chance,
        {
            "layers": ([0], [5, 2], "all", [6]),
            "heads": ([0], [11, 3], "all", [-1]),
            "queries": ([0], [2, 1], "all"),
            "keys": ([1], [0, 0, 2], "all"),
            "aggregate": ("none", "mean", "max", "rollout"),
            "weights": ("probability", "score", "value_norm"),
            "special_tokens": ("keep", "drop"),
            "level": ("token", "word"),
            "renormalize": (True, False),
            "top_k": (1, 3),
            "summary": (True,),
            "outputs": (["sentence"], ["tokens"]),
        },
    )
    accept = chance.choice(_FORMATS)
    dtype = chance.choice(("", "?dtype=float16", "?dtype=uint8")) if accept in _FORMATS[1:3] else ""
    return Ask(f"/attention{dtype}", body, accept)


def _inputs(chance: random.Random) -> dict[str, Any]:
    words = _TEXT.split()

    def text() -> str:
        return " ".join(chance.choices(words, k=chance.choice((1, 3, 8, 20, 60))))

    count = chance.choice((1, 1, 2, 5))
    inputs: list[Any] = [[text(), text()] if chance.random() < 0.2 else text() for _ in range(count)]
    return {"inputs": inputs} | _some(chance, {"truncation_side": ("left",), "prompt": ("query: ",)})


def _some(chance: random.Random, options: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    return {name: chance.choice(values) for name, values in options.items() if chance.random() < _SHARE}


def main() -> None:
    """Ask both, and print where they differ."""
    parser = parser_for(__doc__)
    parser.add_argument("before", type=Path, help="a checkout of the state to compare with")
    parser.add_argument("--model", help="what both serve: a folder or a name; the embedded model by default")
    parser.add_argument("--native", choices=("on", "off"), default="on")
    chosen = parser.parse_args()
    settings = {"DTYPE": "float32", "NATIVE": chosen.native, "LOG_LEVEL": "warning"}
    if chosen.model:
        settings["MODEL"] = (
            f"model={Path(chosen.model).resolve()}" if Path(chosen.model).exists() else chosen.model
        )
    with ExitStack() as stack:
        before, after = (
            stack.enter_context(served(folder, settings)) for folder in (chosen.before.resolve(), ROOT)
        )
        statuses: Counter[int] = Counter()
        different = 0
        for number, ask in enumerate(asks()):
            first, second = answer(before, ask), answer(after, ask)
            statuses[first[0]] += 1
            if first != second:
                different += 1
                print(f"{number}: {ask.path} {ask.accept} {orjson.dumps(ask.body).decode()[:300]}")
                print(f"   {first[0]} {first[1][:200]!r}\n   {second[0]} {second[1][:200]!r}")
    told = ", ".join(f"{count} × {status}" for status, count in sorted(statuses.items()))
    print(f"{statuses.total()} requests ({told}): {different} answers differ")
    sys.exit(different > 0)


@contextmanager
def served(folder: Path, settings: Mapping[str, str]) -> Iterator[httpx.Client]:
    """Run a checkout's service, and connect to it when it is ready."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADLIGHT_")}
    environment |= {f"HEADLIGHT_{name}": value for name, value in settings.items()}
    environment |= {"HEADLIGHT_PORT": str(port), "PYTHONPATH": str(folder), "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen([sys.executable, "-m", "service"], cwd=folder, env=environment)
    try:
        transport = httpx.HTTPTransport(retries=20)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", transport=transport, timeout=_START_S) as http:
            while http.get("/readyz").status_code != 200:
                assert process.poll() is None, "the service has ended"
            yield http
    finally:
        process.terminate()
        process.wait(30)


def answer(http: httpx.Client, ask: Ask) -> tuple[int, bytes]:
    """Ask, and leave out what may differ."""
    got = http.post(
        ask.path, content=orjson.dumps(ask.body), headers={"Accept": ask.accept, "X-Request-ID": "same"}
    )
    if got.status_code != 200:
        problem = got.json()
        kept = {name: problem.get(name) for name in ("type", "status", "field", "limit", "actual", "allowed")}
        return got.status_code, orjson.dumps(kept)
    if ask.accept.endswith("ndjson"):
        return 200, b"\n".join(sorted(got.content.splitlines()))
    return 200, got.content


if __name__ == "__main__":
    main()
