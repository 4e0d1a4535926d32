"""Measures long work against deadlines, and whether clients that wait as they are told are answered.

Starts the service on a free port of the loopback interface, with models of random weights:

- base: BERT-base's size. Clients send 32 texts of 512 tokens each in a closed loop, and after a 429 or 503
  wait as long as its `retry-after-ms`, else its `Retry-After`, says; with `--rude` they do not wait at all.
  The rate of answered tokens is compared with that of the bare model (`peers/bare_model.py`), measured before
  and after;
- long: ModernBERT-base's size, 8,192 positions. Clients send one text of 8,192 tokens each, likewise. With
  `--leave`, clients also close their connections within a pass: how long the cores then go on;
- obedient: the embedded model with a queue of 2,000 tokens. Clients, each from an address of its
  own, send one request of about 500 tokens at the same moment, and at most 5 retries that wait as told. The
  time of the work alone is that of as many requests by two clients that are never refused.

`retries` are requests sent after a wait that an answer named; the wait was true if they are not refused. The
service runs with the settings in the environment (`HEADLIGHT_…`).

    python -m benchmarks.stress.deadlines [--clients 1,16] [--long 4] [--leave] [--obedient 12,24,100]

An empty list leaves a part out: `--clients "" --long ""`.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.closed_loops import REFUSED, Client, Restarting, Seen, together
from benchmarks.kit.command_line import numbers, parser_for
from benchmarks.kit.connections import UNANSWERED, Loop
from benchmarks.kit.observed import cpu_s
from benchmarks.kit.servers import Bare
from benchmarks.passes.families import FAMILIES
from tests.references.families import write_model

_BARE_S, _DRAIN_S = 5.0, 90.0
_PATIENCE_S = 30.0
"""What an answer may take beyond its deadline."""
_TEXTS, _SHORT, _LONG = 32, 512, 8192
_BERT = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "num_hidden_layers": 12}
_WORDS = ("the", "man", "boy", "beats", "hello", "world")
_QUEUE_TOKENS, _OBEDIENT_TEXTS, _OBEDIENT_WORDS, _RETRIES = 2_000, 16, 29, 5
_LEAVE_SHARE, _IDLE_S, _IDLE_SHARE, _SAMPLE_S = 0.3, 0.3, 0.2, 0.05
_OF_BARE, _TRUE_WAITS, _IDLE_BOUND_S = 0.8, 90.0, 1.0


def main() -> None:
    """Measure the parts that were chosen, and print."""
    arguments = parse_arguments()
    tables.print_facts("Machine", machine.facts(arguments.dtype))
    checks: list[tables.Check] = []
    if arguments.clients:
        checks += base(arguments)
    if arguments.long or arguments.leave:
        checks += long(arguments)
    if arguments.obedient:
        checks += obedient(arguments)
    tables.print_checks(checks)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="of each number of clients")
    parser.add_argument("--clients", type=numbers, default=[1, 2, 4, 8, 16], help="of the base part")
    parser.add_argument("--long", type=numbers, default=[4], help="clients of the long part")
    parser.add_argument("--leave", action="store_true", help="also clients that leave within a pass")
    parser.add_argument(
        "--obedient", type=numbers, default=[12, 24, 100], help="clients of the obedient part"
    )
    parser.add_argument("--rude", action="store_true", help="clients that do not wait after a refusal")
    parser.add_argument("--processes", type=numbers, default=[1, 2])
    parser.add_argument("--dtype", default="auto", help="of the large models; float32 makes them slow")
    return parser.parse_args()


def base(arguments: argparse.Namespace) -> list[tables.Check]:
    """Put a service of BERT-base's size under requests of 16,384 tokens."""
    texts = [text_of(_SHORT, seed) for seed in range(_TEXTS)]
    with written("Bert", _SHORT, **_BERT) as folder:
        return under_work("base", folder, texts, arguments.clients, arguments, calibrate=True)


def long(arguments: argparse.Namespace) -> list[tables.Check]:
    """Put a service of ModernBERT-base's size under texts of 8,192 tokens."""
    prefix, layers, sizes = FAMILIES["modernbert"]
    with written(prefix, _LONG, **{**sizes, layers: 22}) as folder:
        return under_work("long", folder, [text_of(_LONG, 0)], arguments.long, arguments)


@contextmanager
def written(prefix: str, positions: int, **sizes: Any) -> Iterator[str]:
    """Save a model of random weights whose tokenizer reads as many tokens as it has positions."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        write_model(folder, prefix, **{**sizes, "max_position_embeddings": positions})
        file = folder / "tokenizer_config.json"
        settings = json.loads(file.read_text(encoding="utf-8")) | {"model_max_length": positions}
        file.write_text(json.dumps(settings), encoding="utf-8")
        yield str(folder)


def text_of(tokens: int, seed: int) -> str:
    """Make a text of words that are one token each, for an input of this many tokens."""
    return " ".join(random.Random(seed).choices(_WORDS, k=tokens - 2))  # noqa: S311


def request_of(texts: Sequence[str]) -> bytes:
    """Make the bytes of a request for sentence vectors."""
    body = json.dumps({"inputs": list(texts)}).encode()
    head = f"POST /encode HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def under_work(
    part: str,
    folder: str,
    texts: Sequence[str],
    clients: Sequence[int],
    arguments: argparse.Namespace,
    *,
    calibrate: bool = False,
) -> list[tables.Check]:
    """Measure the bare model, services of each number of processes, and the bare model again; print."""
    seen: dict[tuple[int, int], Seen] = {}
    idle: dict[tuple[int, int], float] = {}
    bare = Bare(texts, model=folder, dtype=arguments.dtype)
    tokens = sum(bare.lengths)
    if calibrate:
        bare.ask("calibrate")
    rates = [bare.ask(f"run {_BARE_S}")]
    for count in arguments.processes:
        bare.pause()
        service = Restarting(model=folder, dtype=arguments.dtype, processes=count)
        for number in clients:
            seen[count, number] = in_closed_loops(service, request_of(texts), number, arguments)
            print(f"{part}: {number} clients, {count} processes: {seen[count, number].outcomes}", flush=True)
        if arguments.leave and part == "long":
            for number in (1, 4):
                leave_s = _LEAVE_SHARE * tokens / rates[0]
                idle[count, number] = leave(service, request_of(texts), number, leave_s)
        service.end()
        bare.go_on()
        rates.append(bare.ask(f"run {_BARE_S}"))
    bare.end()
    print_seen(part, seen, tokens, float(np.mean(rates)))
    if idle:
        tables.print_table(
            f"Clients that leave {_LEAVE_SHARE * tokens / rates[0]:.1f} s after asking for {tokens} tokens",
            ["processes, clients", "cores idle after s"],
            [[f"{count}, {number}", f"{seconds:.2f}"] for (count, number), seconds in idle.items()],
        )
    return [*checks_of(part, seen, tokens, float(np.mean(rates))), *idle_checks(idle)]


def in_closed_loops(service: Restarting, request: bytes, number: int, arguments: argparse.Namespace) -> Seen:
    """Have clients send a request over and over, and wait for the last answers."""
    server = service.running()
    deadline_s = httpx.get(f"{server.url}/info", trust_env=False).json()["limits"]["request_timeout_s"]
    until = time.monotonic() + 60 * arguments.minutes

    def make(loop: Loop, _: int) -> Client:
        return Client(loop, server.port, request, until=until, rude=arguments.rude)

    return together(server, number, 60 * arguments.minutes + deadline_s + _PATIENCE_S, make)


def leave(service: Restarting, request: bytes, number: int, leave_s: float) -> float:
    """Have clients leave within a pass: seconds until the service's processes are idle."""
    server, loop = service.running(), Loop()
    clients = [
        Client(loop, server.port, request, until=float("inf"), source=f"127.0.2.{i + 1}")
        for i in range(number)
    ]
    loop.run(lambda: False, time.monotonic() + leave_s)
    for client in clients:
        client.close()
    left = idle_since = time.monotonic()
    used = cpu_s(server)
    while (now := time.monotonic()) - idle_since < _IDLE_S and now - left < _DRAIN_S:
        time.sleep(_SAMPLE_S)
        earlier, used = used, cpu_s(server)
        if used - earlier > _IDLE_SHARE * _SAMPLE_S:
            idle_since = time.monotonic()
    loop.close()
    return idle_since - left


def obedient(arguments: argparse.Namespace) -> list[tables.Check]:
    """Send more requests at once than the queue holds, from clients that wait as they are told; print."""
    request = request_of([" ".join(["word"] * _OBEDIENT_WORDS)] * _OBEDIENT_TEXTS)
    rows, checks = [], []
    for count in arguments.processes:
        service = Restarting(max_queue_tokens=_QUEUE_TOKENS, processes=count)
        for number in arguments.obedient:
            alone, seen = crowd(service, request, 2, -(-number // 2)), crowd(service, request, number, 1)
            good = len(seen.of("200"))
            longer = seen.seconds / alone.seconds
            waits = [asked.answer.retry_s or 0.0 for asked in seen.of(*REFUSED)]
            rows.append(
                [
                    f"{count}, {number}",
                    str(good),
                    seen.outcomes,
                    f"{np.median(waits):.2f}, {max(waits):.2f}" if waits else "",
                    f"{seen.true_waits:.0f} %",
                    f"{alone.seconds:.2f}",
                    f"{seen.seconds:.2f}",
                    f"{longer:.1f}",
                    f"{seen.replaced:.0f}",
                ]
            )
            name = f"{number} obedient clients, {count} processes: answered, %"
            checks.append(tables.Check(name, [100 * good / number], 100.0, digits=0))
        service.end()
    header = [
        "answered",
        "answers",
        "named s: p50, most",
        "true",
        "alone s",
        "together s",
        "times",
        "replaced",
    ]
    tables.print_table("Obedient clients with one request each", ["processes, clients", *header], rows)
    return checks


def crowd(service: Restarting, request: bytes, number: int, requests: int) -> Seen:
    """Have clients send a number of requests each, from their own addresses."""
    server = service.running()

    def make(loop: Loop, i: int) -> Client:
        return Client(
            loop,
            server.port,
            request,
            until=float("inf"),
            source=f"127.0.1.{i + 1}",
            requests=requests,
            retries=_RETRIES,
        )

    return together(server, number, 60 * (_RETRIES + 1), make)


def print_seen(part: str, seen: dict[tuple[int, int], Seen], tokens: int, rate: float) -> None:
    """Print what the clients of a part saw."""
    rows = []
    for (count, number), one in seen.items():
        good, refused = one.of("200"), one.of(*REFUSED)
        rows.append(
            [
                f"{count}, {number}",
                one.outcomes,
                quantiles([asked.answer.seconds for asked in good]),
                quantiles([1e3 * asked.answer.seconds for asked in refused]),
                quantiles([asked.answer.retry_s or 0.0 for asked in refused]),
                f"{one.true_waits:.0f} % of {sum(asked.is_retry for asked in one.asked)}",
                f"{len(good) * tokens / one.seconds:.0f}",
                f"{len(good) * tokens / one.seconds / rate:.2f}",
                f"{one.replaced:.0f}",
            ]
        )
    header = ["answers", "200 s: p50, most", "429 ms", "named s", "true", "tokens/s", "of bare", "replaced"]
    title = f"{part}: requests of {tokens} tokens; bare: {rate:.0f} tokens/s"
    tables.print_table(title, ["processes, clients", *header], rows)


def quantiles(values: Sequence[float]) -> str:
    """Show the median and the largest, or nothing."""
    return f"{np.median(values):.2f}, {max(values):.2f}" if values else ""


def checks_of(part: str, seen: dict[tuple[int, int], Seen], tokens: int, rate: float) -> list[tables.Check]:
    """Hold a part to its bounds, by the worst number of clients."""
    every = list(seen.values())
    if not every:
        return []
    missed = [len(one.of("504", *UNANSWERED)) + one.unanswered for one in every]
    shares = [len(one.of("200")) * tokens / one.seconds / rate if one.of("200") else 0.0 for one in every]
    waits = [one.true_waits for one in every if not np.isnan(one.true_waits)]
    return [
        tables.Check(
            f"{part}: 504s and requests without an answer", [max(missed)], 0, at_most=True, digits=0
        ),
        tables.Check(
            f"{part}: workers replaced", [max(one.replaced for one in every)], 0, at_most=True, digits=0
        ),
        tables.Check(f"{part}: tokens/s, of the bare rate", [min(shares)], _OF_BARE),
        *(
            [tables.Check(f"{part}: named waits that were true, %", [min(waits)], _TRUE_WAITS)]
            if waits
            else ()
        ),
    ]


def idle_checks(idle: dict[tuple[int, int], float]) -> list[tables.Check]:
    """Hold the time after which nothing runs any more to its bound."""
    if not idle:
        return []
    longest = max(idle.values())
    return [tables.Check("clients leave: cores idle after s", [longest], _IDLE_BOUND_S, at_most=True)]


if __name__ == "__main__":
    main()
