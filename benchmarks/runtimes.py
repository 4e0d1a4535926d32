"""The service over HTTP, compared with ONNX Runtime in process on a plain export of the same weights.

The bare runtime (`benchmarks/bare_runtime.py`) is what the fastest server of such a graph could not exceed:
it has no HTTP, no queue and no other work, two threads, and its texts in the order of arrival, 8 to a batch
(1 for `lone`; for n connections, n up to 8). Both take turns, the other paused, and ratios are formed within
a round. The load client of the service is `wrk`, on the same cores.

    python -m benchmarks.runtimes --data sts-dev.tsv [--rounds 5] [--seconds 6] [--connections 2,4,8]

With `--openvino PYTHON`, the Python of an environment with OpenVINO, the bare runtime is OpenVINO.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx
import numpy as np

from benchmarks import common
from benchmarks.graphs import export_plain
from benchmarks.load import drive, good
from benchmarks.servers import Headlight, Process
from benchmarks.turns import Contestant, alternating
from benchmarks.workloads import NAMES, Workload, make_workloads
from model.checkpoints.source import EMBEDDED, resolve

SERVICE, BARE = "service", "bare"
OF_BARE = {
    "onnxruntime": {"single": 1.7, "mixed": 5.5, "long": 2.0, "lone": 0.95},
    "openvino": {"single": 1.15, "mixed": 2.5, "long": 1.05, "lone": 0.8},
}
"""The targets for the service's requests per second / the bare runtime's, with bfloat16 instructions."""
OF_SWEEP = 1.1
_CONNECTIONS = (2, 4, 8, 16, 32, 64, 128)
_BATCH = 8
_START_S = 180.0
_SAME = 0.999


def main() -> None:
    """Start both, let them take turns, and print."""
    arguments = parse_arguments()
    workloads = make_workloads(arguments.data)
    single = workloads["single"]
    loads = [workloads[name] for name in arguments.workloads]
    loads += [Workload(f"single, {n}", n, single.requests) for n in arguments.connections]
    runtime = "onnxruntime" if arguments.openvino is None else "openvino"
    python = arguments.openvino or sys.executable
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bare = Process(
            [python, "-m", "benchmarks.bare_runtime", runtime, str(export_plain(place)), _tokenizer()],
            {"ORT_DISABLE_TELEMETRY": "1"},
            pipes=True,
        )
        stack.callback(bare.end)
        service = Headlight(processes=arguments.processes)
        stack.callback(service.end)
        service.wait_until_ready(_START_S)
        info = httpx.get(f"{service.url}/info", trust_env=False).json()["models"][0]
        facts = [
            ("bare runtime", runtime),
            ("kernels", info["kernels"] or "PyTorch's"),
            ("cosine", f"{cosine(service, bare, single):.6f}"),
        ]
        common.print_facts("Machine", [*common.machine(info["dtype"]), *facts])
        service.pause()
        checks = []
        for load in loads:
            rounds = measure(load, service, bare, arguments)
            print_rounds(load, rounds)
            target = OF_BARE[runtime].get(load.name, OF_SWEEP)
            ratios = [turns[SERVICE][0] / turns[BARE][0] for turns in rounds]
            checks.append(common.Check(f"{load.name}: requests/s, service / bare", ratios, target))
    common.print_checks(checks)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="an STS file, tab-separated")
    parser.add_argument("--openvino", help="a Python with OpenVINO, to compare with that")
    parser.add_argument("--processes", default="auto", help="of the service")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=6, help="of each turn")
    parser.add_argument("--workloads", type=common.some_of(NAMES), default=NAMES, help=",".join(NAMES))
    parser.add_argument(
        "--connections", type=common.numbers, default=list(_CONNECTIONS), help="of single sentences"
    )
    return parser.parse_args()


def _tokenizer() -> str:
    return str(resolve(EMBEDDED) / "tokenizer.json")


def cosine(service: Headlight, bare: Process, load: Workload) -> float:
    """Compare a vector of both; ends the program if they do not run the same model."""
    answer = httpx.post(f"{service.url}/encode", json={"inputs": list(load.requests[0])}, trust_env=False)
    ours = np.array(answer.raise_for_status().json()["data"][0]["embedding"])
    found = float(ours @ np.array(bare.ask(json.dumps(load.requests))))
    if found < _SAME:
        raise SystemExit(f"The cosine of both vectors is {found:.6f}: they do not run the same model.")
    return found


def measure(
    load: Workload, service: Headlight, bare: Process, arguments: argparse.Namespace
) -> list[Mapping[str, tuple[float, float]]]:
    """Let both take turns: requests per second, and the median milliseconds of a request or a batch."""
    bodies = [json.dumps({"inputs": texts}).encode() for texts in load.requests]
    bare.go_on()
    bare.ask(json.dumps(load.requests))
    most = min(_BATCH, max(load.connections * load.texts, 1))

    def serve(seconds: int) -> tuple[float, float]:
        seen = drive(service, "/encode", bodies, connections=load.connections, seconds=seconds)
        return good(seen, SERVICE).requests_per_s, seen.p50_ms

    def run(seconds: int) -> tuple[float, float]:
        per_s, milliseconds = bare.ask(json.dumps([seconds, most]))
        return per_s, milliseconds

    contestants = {SERVICE: Contestant(service, serve), BARE: Contestant(bare, run)}
    bare.pause()
    return list(alternating(contestants, arguments.rounds, arguments.seconds))


def print_rounds(load: Workload, rounds: Sequence[Mapping[str, tuple[float, float]]]) -> None:
    """Print the medians of both, and the ratio within rounds."""
    medians = {name: np.median([turns[name] for turns in rounds], axis=0) for name in (SERVICE, BARE)}
    ratios = [turns[SERVICE][0] / turns[BARE][0] for turns in rounds]
    common.print_table(
        f"{load.name}: {np.median(ratios):.2f} times [{min(ratios):.2f}, {max(ratios):.2f}]",
        ["", "requests/s", "p50 ms"],
        [[name, f"{per_s:.1f}", f"{p50:.1f}"] for name, (per_s, p50) in medians.items()],
    )


if __name__ == "__main__":
    main()
