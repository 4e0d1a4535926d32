"""Measures an installation without PyTorch: seconds until ready, memory, and disk space.

Makes a virtual environment with the packages of `requirements-onnx.lock` and this project, unless `--python`
names one, and starts the service in it with an exported folder, `--starts` times. Then it loads the last one:
single texts and texts in batches on several connections, and attention maps of one head.

- ready: seconds from the start of the process until `/readyz` answers 200;
- peak: `VmHWM`, the most the process ever held, once ready and after the load;
- libraries: whether anything of PyTorch is mapped into the process;
- packages: the size of the environment's site-packages, without pip.

    python -m benchmarks.service.footprint FOLDER --data sts-dev.tsv [--python PATH] [--starts 5]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.servers import Headlight
from benchmarks.kit.workloads import make_workloads
from benchmarks.kit.wrk import drive, good

READY_S, PEAK_MB, PACKAGES_MB = 2.0, 350.0, 400.0
_START_S = 60.0
_ROOT = Path(__file__).parents[2]
_INSTALLER = ("pip", "setuptools", "wheel", "pkg_resources", "_distutils_hack")


def main() -> None:
    """Measure and print."""
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as place:
        python = arguments.python or make_environment(Path(place))
        checks = [
            *measure(python, arguments),
            tables.Check("packages, MB", [packages_mb(python)], PACKAGES_MB, at_most=True, digits=0),
        ]
    tables.print_facts("Machine", [*machine.facts("float32"), ("folder", arguments.folder.name)])
    tables.print_checks(checks)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("folder", type=Path, help="an exported folder of the embedded model, float32")
    parser.add_argument("--data", type=Path, required=True, help="an STS file, tab-separated")
    parser.add_argument("--python", type=Path, help="the Python of an environment without PyTorch")
    parser.add_argument("--starts", type=int, default=5)
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


def measure(python: Path, arguments: argparse.Namespace) -> list[tables.Check]:
    """Start the service several times, and put the last one under load."""
    ready: list[float] = []
    at_start: list[float] = []
    for start in range(arguments.starts):
        server = Headlight(python=python, model=arguments.folder.resolve())
        try:
            ready.append(server.wait_until_ready(_START_S))
            at_start.append(server.memory_mib("VmHWM") * machine.MB_PER_MIB)
            if start + 1 == arguments.starts:
                load(server, arguments)
                peak = server.memory_mib("VmHWM") * machine.MB_PER_MIB
                mapped = Path(f"/proc/{server.process.pid}/maps").read_text(encoding="utf-8")
                print("of PyTorch, mapped into the process:", "something" if "torch" in mapped else "nothing")
        finally:
            server.end()
    return [
        tables.Check("ready, s", ready, READY_S, at_most=True),
        tables.Check("peak when ready, MB", at_start, PEAK_MB, at_most=True, digits=0),
        tables.Check("peak after the load, MB", [peak], PEAK_MB, at_most=True, digits=0),
    ]


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
    httpx.get(f"{server.url}/metrics", trust_env=False).raise_for_status()


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
