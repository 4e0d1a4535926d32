"""Measures the latency of one short text, and how much of it is not the model.

Starts the service on a free port of the loopback interface and measures:

- start: seconds from the start of the process until `/readyz` answers 200;
- raw: one text at a time over one kept-alive TCP connection, written and read by hand; this is the result,
  because a client library adds its own time;
- httpx: the same through an `httpx.Client` with keep-alive, what a Python client sees;
- forward: the bare `TorchBackend.run` of the same packed texts in the same dtype, in a separate process
  (`peers/bare_model.py`) that does nothing else, while the service is paused;
- the stages as the service reports them in the header `Server-Timing`;
- memory: `VmHWM`, the most the process ever held, once ready and after many texts;
- end: the exit code after SIGTERM, and the seconds it took.

Raw, httpx and forward take turns in blocks, so that noise of the machine affects all of them, and each uses
the same texts: with `--data` (an STS file) those of the workload `lone`, one sentence after another, else one
text repeatedly. The service runs with the settings in the environment (`HEADLIGHT_…`).

    python -m benchmarks.service.latency [--data sts-dev.tsv] [--dtype float32] [--blocks 10] [--per-block 50]
"""

import argparse
import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.servers import Bare, Headlight
from benchmarks.kit.wire import RepeatingConnection
from benchmarks.kit.workloads import make_workloads
from model.checkpoints.source import EMBEDDED

_ANSWER_S = 30.0
_WARM_UP = 50
_SETTLE_S = 0.05
"""Pause between blocks, in which threads that spin for the next product go to sleep."""
_LONG_TEXT = "a man is playing the guitar while two small dogs watch him quietly from under the table"
_MOST_ADDED_MS = 1.0
"""The target for the p50 of a single request, beyond the forward pass."""


def main() -> None:
    """Start the service and the bare model, measure, end them, and print."""
    arguments = parse_arguments()
    texts = [arguments.text]
    if arguments.data is not None:
        texts = [text for request in make_workloads(arguments.data)["lone"].requests for text in request]
    server = Headlight(model=arguments.model, dtype=arguments.dtype)
    with ExitStack() as stack:
        stack.callback(server.end)
        ready_s = server.wait_until_ready(arguments.start_timeout)
        bare = Bare(texts, model=arguments.model, dtype=arguments.dtype)
        stack.callback(bare.end)
        info, figures = measure(server, bare, texts, arguments)
        peak_at_first = server.memory_mib("VmHWM")
        post_many(server, arguments.texts)
        peak = server.memory_mib("VmHWM")
        ended = server.end(arguments.end_timeout)

    tables.print_facts("Machine", [*machine.facts(info["dtype"]), ("model", arguments.model)])
    print_latency(figures, texts, bare.lengths)
    tables.print_facts(
        "The process of the service",
        [
            ("start until ready", f"{ready_s:.2f} s"),
            ("peak memory so far", f"{peak_at_first:.0f} MiB"),
            (f"after {arguments.texts} more texts", f"{peak:.0f} MiB"),
            ("end", f"exit code {ended.code}, {ended.seconds:.2f} s after SIGTERM"),
        ],
    )
    tables.print_checks(
        [
            tables.Check(
                "lone: p50 within 1 ms of the bare forward pass",
                [figures.p50("raw") - figures.p50("forward")],
                _MOST_ADDED_MS,
                at_most=True,
            )
        ]
    )


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--model", default=EMBEDDED, help="the embedded model, a folder or a hub name")
    parser.add_argument("--dtype", default="auto", choices=["auto", "bfloat16", "float32"])
    parser.add_argument("--text", default="A man is playing the guitar on a stage.")
    parser.add_argument("--data", type=Path, help="an STS file, whose sentences go before the text")
    parser.add_argument("--blocks", type=int, default=10, help="turns that each way of asking gets")
    parser.add_argument("--per-block", type=int, default=50, help="requests or passes in a turn")
    parser.add_argument("--texts", type=int, default=1000, help="texts sent before memory is read again")
    parser.add_argument("--start-timeout", type=float, default=120.0)
    parser.add_argument("--end-timeout", type=float, default=40.0)
    return parser.parse_args()


@dataclass
class Figures:
    """Milliseconds of every call, by way of asking, and of the stages the service tells."""

    calls: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    stages: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def p50(self, way: str) -> float:
        """The median of one way of asking."""
        return float(np.median(self.calls[way]))


def measure(
    server: Headlight, bare: Bare, texts: Sequence[str], arguments: argparse.Namespace
) -> tuple[dict[str, Any], Figures]:
    """Let the ways of asking take turns, block by block; also returns the description of the model."""
    figures = Figures()
    bodies = [json.dumps({"inputs": text}).encode() for text in texts]
    headers = {"Content-Type": "application/json"}
    raw = RepeatingConnection(server.port, bodies)
    with (
        closing(raw),
        httpx.Client(base_url=server.url, timeout=_ANSWER_S, headers=headers, trust_env=False) as client,
    ):
        info: dict[str, Any] = client.get("/info").raise_for_status().json()["models"][0]
        of_httpx = cycle(bodies)
        ways: dict[str, Callable[[int], list[float]]] = {
            "raw": partial(time_calls, lambda: tell_stages(raw.post(), figures)),
            "forward": lambda count: bare.ask(f"passes {count}"),
            "httpx": partial(
                time_calls, lambda: client.post("/encode", content=next(of_httpx)).raise_for_status().content
            ),
        }
        for way in ways.values():
            # Whole rounds of the texts: everybody has met them all, and stands at the first again.
            way(len(texts) * -(-_WARM_UP // len(texts)))
        figures.stages.clear()
        for _ in range(arguments.blocks):
            for name, way in ways.items():
                time.sleep(_SETTLE_S)
                figures.calls[name] += way(arguments.per_block)
    return info, figures


def time_calls(call: Callable[[], object], count: int) -> list[float]:
    """Time calls one after the other, in milliseconds each."""
    milliseconds = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        milliseconds.append((time.perf_counter() - start) * 1000)
    return milliseconds


def tell_stages(answer: bytes, figures: Figures) -> None:
    """Keep the durations of `Server-Timing: tokenize;dur=0.1, …`."""
    head = answer.partition(b"\r\n\r\n")[0].decode("latin-1")
    found = re.search(r"^server-timing:\s*(.*?)\s*$", head, re.MULTILINE | re.IGNORECASE)
    if found is None:
        raise SystemExit(f"/encode answered without Server-Timing: {head}")
    for stage, duration in re.findall(r"([\w-]+);dur=([\d.]+)", found[1]):
        figures.stages[stage].append(float(duration))


def post_many(server: Headlight, count: int) -> None:
    """Post short texts of different lengths, one at a time."""
    words = _LONG_TEXT.split()
    with httpx.Client(base_url=server.url, timeout=_ANSWER_S, trust_env=False) as client:
        for i in range(count):
            text = f"{' '.join(words[: 1 + i % len(words)])} {i}"
            client.post("/encode", json={"inputs": text}).raise_for_status()


def print_latency(figures: Figures, texts: Sequence[str], lengths: Sequence[int]) -> None:
    """Print percentiles of every way of asking and of every stage, and what HTTP adds to the model."""
    title = f"Milliseconds for one text of {lengths[0]} tokens: {texts[0]!r}"
    if len(texts) > 1:
        title = f"Milliseconds for one of {len(texts)} texts of {min(lengths)} to {max(lengths)} tokens"
    tables.print_table(
        title,
        ["way", "calls", "p50", "p90", "p99"],
        [percentiles(name, values) for name, values in figures.calls.items()]
        + [percentiles(f"  stage {name}", values) for name, values in figures.stages.items()],
    )
    tables.print_facts(
        "Added to the forward pass, p50",
        [(way, f"{figures.p50(way) - figures.p50('forward'):+.2f} ms") for way in ("raw", "httpx")],
    )


def percentiles(name: str, milliseconds: Sequence[float]) -> list[str]:
    """Make a row of the table."""
    return [name, str(len(milliseconds)), *(f"{p:.2f}" for p in np.percentile(milliseconds, [50, 90, 99]))]


if __name__ == "__main__":
    main()
