"""Measures seconds until ready, and memory: in each precision, and without PyTorch.

Starts the service with the embedded model in one precision after the other, in one process, for a number of
rounds. With `--exported`, an exported folder in float32, it also starts it without PyTorch: in a virtual
environment with the packages of `requirements-onnx.lock` and this project, unless `--python` names one. Each
service is loaded: single texts and texts in batches on several connections, and attention maps of one head.

- ready: seconds from the start of the process until `/readyz` answers 200;
- resident: VmRSS, two seconds after it is ready, and after the load;
- peak: VmHWM, the most the process ever held, once ready and after the load;
- packages: the size of the environment's site-packages, without pip.

Medians over the rounds; the checks hold eight bits to bfloat16 within a round.

    python -m benchmarks.service.footprint --data sts-dev.tsv [--dtypes int8,bfloat16] [--exported FOLDER]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for, some_of
from benchmarks.kit.servers import Headlight
from benchmarks.kit.workloads import make_workloads
from benchmarks.kit.wrk import drive, good
from model.checkpoints.source import EMBEDDED

DTYPES = ("int8", "bfloat16", "float32")
FIGURES = ("ready s", "resident MiB", "peak MiB", "resident after load", "peak after load")
OF_BFLOAT16 = 1.0
"""The target for memory in eight bits / in bfloat16, when ready: what a load leaves varies."""
READY_S, PEAK_MB, PACKAGES_MB = 2.0, 350.0, 400.0
"""The targets without PyTorch."""

_EXPORTED = "without PyTorch"
_START_S, _SETTLE_S = 120.0, 2.0
_ROOT = Path(__file__).parents[2]
_INSTALLER = ("pip", "setuptools", "wheel", "pkg_resources", "_distutils_hack")


def main() -> None:
    """Measure and print."""
    arguments = parse_arguments()
    settings: dict[str, dict[str, Any]] = {dtype: {"dtype": dtype} for dtype in arguments.dtypes}
    checks: list[tables.Check] = []
    with ExitStack() as stack:
        if arguments.exported is not None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            python = arguments.python or make_environment(place)
            settings[_EXPORTED] = {"python": python, "model": arguments.exported.resolve()}
            size = [packages_mb(python)]
            checks.append(tables.Check("packages, MB", size, PACKAGES_MB, at_most=True, digits=0))
        measured: dict[str, list[list[float]]] = {name: [] for name in settings}
        for _ in range(arguments.rounds):
            for name, chosen in settings.items():
                measured[name].append(measure(name, chosen, arguments))
    tables.print_facts("Machine", [*machine.facts("each"), ("model", EMBEDDED)])
    rows = [
        [name, f"{ready:.2f}", *(f"{value:.0f}" for value in memory)]
        for name, (ready, *memory) in ((n, np.median(rounds, axis=0)) for n, rounds in measured.items())
    ]
    tables.print_table(f"Medians of {arguments.rounds} rounds", ["", *FIGURES], rows)
    checks += make_checks(measured)
    if checks:
        tables.print_checks(checks)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="an STS file, tab-separated")
    parser.add_argument("--dtypes", type=some_of(DTYPES), default=DTYPES, help=",".join(DTYPES))
    parser.add_argument("--exported", type=Path, help="an exported folder of the embedded model, float32")
    parser.add_argument("--python", type=Path, help="the Python of an environment without PyTorch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5, help="of each load")
    return parser.parse_args()


def make_environment(place: Path) -> Path:
    """Install what serves graphs and nothing else; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    python = place / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, "-r", str(_ROOT / "requirements-onnx.lock")], check=True)
    subprocess.run([*install, "--no-deps", str(_ROOT)], check=True)
    return python


def measure(name: str, settings: dict[str, Any], arguments: argparse.Namespace) -> list[float]:
    """Start the service, load it and end it; returns `FIGURES`."""
    server = Headlight(**settings)
    try:
        figures = [server.wait_until_ready(_START_S)]
        time.sleep(_SETTLE_S)
        figures += [server.memory_mib("VmRSS"), server.memory_mib("VmHWM")]
        load(server, arguments)
        figures += [server.memory_mib("VmRSS"), server.memory_mib("VmHWM")]
        mapped = Path(f"/proc/{server.process.pid}/maps").read_text(encoding="utf-8")
        if name == _EXPORTED and "torch" in mapped:
            raise SystemExit(
                "The service loaded PyTorch: pass --python, the Python of an environment without it."
            )
        return figures
    finally:
        server.end()


def load(server: Headlight, arguments: argparse.Namespace) -> None:
    """Ask for vectors, alone and in batches, and for one head of one layer."""
    workloads = make_workloads(arguments.data)
    for name in ("single", "mixed", "long"):
        bodies = [json.dumps({"inputs": texts}).encode() for texts in workloads[name].requests]
        connections = workloads[name].connections
        good(drive(server, "/encode", bodies, connections=connections, seconds=arguments.seconds), name)
    one_head = {"layers": [-1], "heads": [0], "decimals": 4}
    bodies = [json.dumps({"inputs": texts, **one_head}).encode() for texts in workloads["single"].requests]
    good(drive(server, "/attention", bodies, connections=8, seconds=arguments.seconds), "one head")


def make_checks(measured: dict[str, list[list[float]]]) -> list[tables.Check]:
    """Hold eight bits to bfloat16, and the service without PyTorch to its targets."""
    checks = []
    if {"int8", "bfloat16"} <= set(measured):
        pairs = zip(measured["int8"], measured["bfloat16"], strict=True)
        ratios = [int8[1] / bfloat16[1] for int8, bfloat16 in pairs]
        name = "ready: memory in eight bits / bfloat16"
        checks.append(tables.Check(name, ratios, OF_BFLOAT16, at_most=True, digits=3))
    if rounds := measured.get(_EXPORTED):
        ready, _, at_start, _, peak = np.transpose(rounds)
        checks.append(tables.Check("ready, s", ready.tolist(), READY_S, at_most=True))
        for name, values in (("peak when ready, MB", at_start), ("peak after the load, MB", peak)):
            megabytes = (values * machine.MB_PER_MIB).tolist()
            checks.append(tables.Check(name, megabytes, PEAK_MB, at_most=True, digits=0))
    return checks


def packages_mb(python: Path) -> float:
    """Add up the files of an environment's packages, in MB."""
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    told = subprocess.run([str(python), "-c", where], check=True, capture_output=True, text=True)
    site = Path(told.stdout.strip())
    files = (
        file
        for entry in site.iterdir()
        if not entry.name.startswith(_INSTALLER)
        for file in ([entry] if entry.is_file() else entry.rglob("*"))
    )
    return sum(file.stat().st_blocks * 512 for file in files if file.is_file()) / 1e6


if __name__ == "__main__":
    main()
