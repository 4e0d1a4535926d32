"""Calculates how many replicas are needed for a number of texts per day, from a replica's tokens per second.

    mean      = texts a day / 86,400
    peak      = mean × `--peak`
    replicas  = peak × tokens of a text / (tokens a second of a replica × `--utilisation`), rounded up
    with one spare, so that the peak is still served at that utilisation when one is lost

The tokens per second are those of `MEASURED`; with `--measure`, those of the service on this machine with the
settings in the environment (`HEADLIGHT_…`); or your own: `--rate 16=9000 --rate 128=20000`. `--measure` takes
the processor time per token under load, HTTP included, and divides the number of cores by it; other programs
on the machine disturb this little.

    python -m benchmarks.planning.capacity [--texts 1e6 1e9] [--utilisation 0.6] [--rate TOKENS=RATE …]
    python -m benchmarks.planning.capacity --measure
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import httpx

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.observed import least_disturbed
from benchmarks.kit.servers import Headlight
from benchmarks.kit.wrk import drive, good
from model.lanes import count_cores
from service.settings import read_settings

_DAY_S = 86_400
_START_S = 120.0
_WARM_S = 2
_CONNECTIONS = 6
_TURNS = 2
_TEXTS, _REQUEST_TOKENS = 32, 4096
_SINGLE_CONNECTIONS = 64
LENGTHS = (16, 32, 128, 512)


@dataclass(frozen=True)
class Kind:
    """A way to run a replica: its cores, its peak memory, and tokens per second by tokens per text."""

    cores: int
    memory_mb: int
    rates: Mapping[int, float]


MEASURED = {
    "PyTorch bfloat16": Kind(2, 604, {16: 21_100, 32: 20_400, 128: 17_600, 512: 14_900}),
    "ONNX float32": Kind(2, 322, {16: 12_900, 32: 12_800, 128: 11_600, 512: 8_600}),
    "ONNX int8": Kind(2, 342, {16: 26_800, 32: 23_100, 128: 21_400, 512: 15_600}),
}
"""all-MiniLM-L6-v2, many texts per request, on two cores of an AMD EPYC (`benchmarks/README.md`)."""


@dataclass(frozen=True)
class Need:
    """What a load needs: texts per second, replicas, and replicas with a spare."""

    mean: float
    peak: float
    replicas: int

    @property
    def with_spare(self) -> int:
        """The number of replicas if one of them may fail."""
        return self.replicas + 1


def need(texts_a_day: float, tokens: int, rate: float, *, peak: float, utilisation: float) -> Need:
    """Calculate what texts of a length in tokens need, with replicas that run `rate` tokens per second."""
    mean = texts_a_day / _DAY_S
    replicas = math.ceil(mean * peak * tokens / (rate * utilisation))
    return Need(mean, mean * peak, replicas)


def main() -> None:
    """Work it out and print."""
    arguments = parse_arguments()
    kinds = MEASURED
    if arguments.measure:
        kinds = measure()
    elif arguments.rate:
        kinds = {"given": Kind(arguments.cores, arguments.memory, dict(arguments.rate))}
    print_rates(kinds)
    for texts in arguments.texts:
        print_needs(texts, kinds, peak=arguments.peak, utilisation=arguments.utilisation)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--texts", type=float, nargs="+", default=[1e6, 1e9], help="texts a day")
    parser.add_argument("--peak", type=float, default=3.0, help="the busiest moment beside the mean")
    parser.add_argument("--utilisation", type=float, default=0.6, help="of the capacity, at the peak")
    parser.add_argument("--rate", type=read_rate, action="append", help="tokens of a text=tokens a second")
    parser.add_argument("--cores", type=int, default=2, help="of a replica with the rates given")
    parser.add_argument("--memory", type=int, default=560, help="of such a replica, in MB")
    parser.add_argument("--measure", action="store_true", help="measure the rates on this machine")
    return parser.parse_args()


def read_rate(text: str) -> tuple[int, float]:
    """Read `128=20000`."""
    tokens, _, rate = text.partition("=")
    return int(tokens), float(rate)


def measure() -> dict[str, Kind]:
    """Measure the rates of the service, each in its least disturbed turn, as far as its model reads."""
    server = Headlight()
    try:
        server.wait_until_ready(_START_S)
        info = httpx.get(f"{server.url}/info", trust_env=False).json()["models"][0]
        threads = read_settings().threads or count_cores()
        rows, rates = [], {}
        singles = [(1, tokens, _SINGLE_CONNECTIONS) for tokens in LENGTHS[:1]]
        several = [(min(_TEXTS, _REQUEST_TOKENS // n), n, _CONNECTIONS) for n in LENGTHS]
        for texts, tokens, connections in singles + several:
            if tokens <= info["max_length"]:
                turn = partial(run, server, texts, tokens, connections, threads)
                quiet = least_disturbed(turn, [server.process.pid], _TURNS)
                if texts > 1:
                    rates[tokens] = quiet.value
                rows.append([f"{texts} × {tokens}", f"{quiet.value / 1e3:.1f}", f"{quiet.others:.0%}"])
        peak_mb = server.memory_mib("VmHWM") * machine.MB_PER_MIB
    finally:
        server.end()
    tables.print_facts("Machine", [*machine.facts(info["dtype"]), ("backend", info["backend"])])
    tables.print_table("As served", ["texts × tokens", "ktokens/s", "others"], rows)
    return {f"{info['backend']} {info['dtype']}": Kind(threads, round(peak_mb), rates)}


def run(server: Headlight, texts: int, tokens: int, connections: int, cores: int, seconds: int = 4) -> float:
    """Load the service with texts of one length; returns the tokens per second it has on idle cores."""
    body = json.dumps({"inputs": ["word " * (tokens - 2)] * texts}).encode()
    drive(server, "/encode", [body], connections=connections, seconds=_WARM_S)
    names = ("headlight_input_tokens_total", "process_cpu_seconds_total")
    before = [server.total(name) for name in names]
    good(drive(server, "/encode", [body], connections=connections, seconds=seconds), "headlight")
    ran, spent = (server.total(name) - was for name, was in zip(names, before, strict=True))
    return cores * ran / spent


def print_rates(kinds: Mapping[str, Kind]) -> None:
    """Print the rates of a replica."""
    lengths = sorted({tokens for kind in kinds.values() for tokens in kind.rates})
    rows = [
        [name, str(kind.cores), str(kind.memory_mb), *(_thousands(kind.rates.get(n)) for n in lengths)]
        for name, kind in kinds.items()
    ]
    header = ["replica", "cores", "MB", *(f"{n} tokens" for n in lengths)]
    tables.print_table("Thousands of tokens a second of one replica, by the tokens of a text", header, rows)


def print_needs(texts: float, kinds: Mapping[str, Kind], *, peak: float, utilisation: float) -> None:
    """Print what a number of texts per day needs, for each kind of replica and length of text."""
    rows: list[Sequence[str]] = []
    for name, kind in kinds.items():
        for tokens, rate in sorted(kind.rates.items()):
            needed = need(texts, tokens, rate, peak=peak, utilisation=utilisation)
            count = needed.with_spare
            memory_gb = count * kind.memory_mb / 1e3
            figures = [str(tokens), str(needed.replicas), str(count), str(count * kind.cores)]
            rows.append([name, *figures, f"{memory_gb:.1f}"])
    title = (
        f"{texts:,.0f} texts a day: {texts / _DAY_S:,.0f} a second, {peak * texts / _DAY_S:,.0f} at the peak"
    )
    tables.print_table(title, ["replica", "tokens", "replicas", "with one spare", "cores", "GB"], rows)


def _thousands(rate: float | None) -> str:
    return "" if rate is None else f"{rate / 1e3:.1f}"


if __name__ == "__main__":
    main()
