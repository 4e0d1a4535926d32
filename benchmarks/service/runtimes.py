"""The service over HTTP, compared with ONNX Runtime in process on a plain export of the same weights.

The bare runtime (`peers/bare_runtime.py`) is what the fastest server of such a graph could not exceed:
it has no HTTP, no queue and no other work, two threads, and its texts in the order of arrival, 8 to a batch
(1 for `lone`; for n connections, n up to 8). Both take turns, the other paused, and ratios are formed within
a round. The load client of the service is `wrk`, on the same cores.

    python -m benchmarks.service.runtimes --data sts-dev.tsv [--rounds 5] [--seconds 6] [--connections 2,4,8]

With `--openvino PYTHON`, the Python of an environment with OpenVINO, the bare runtime is OpenVINO. With
`--int8`, both run in eight bits: the service with HEADLIGHT_DTYPE=int8, ONNX Runtime on an export rounded by
`quantize_dynamic`, and OpenVINO on one that was calibrated on sentences of the data, which needs nncf too
(`peers/openvino_int8.py`).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx
import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import numbers, parser_for, some_of
from benchmarks.kit.servers import Headlight, Process
from benchmarks.kit.turns import Contestant, alternating
from benchmarks.kit.workloads import NAMES, Workload, make_workloads
from benchmarks.kit.wrk import drive, good
from benchmarks.passes.graphs import export_plain
from model.checkpoints.source import EMBEDDED, resolve

SERVICE, BARE = "service", "bare"
OF_BARE = {
    "onnxruntime": {"single": 1.7, "mixed": 5.5, "long": 2.0, "lone": 0.95},
    "openvino": {"single": 1.15, "mixed": 2.5, "long": 1.05, "lone": 0.8},
}
"""The targets for the service's requests per second / the bare runtime's, with bfloat16 instructions."""
OF_BARE_INT8 = {
    "onnxruntime": {"single": 1.1, "mixed": 3.3, "long": 1.4, "lone": 0.85},
    "openvino": {"single": 1.1, "mixed": 2.7, "long": 1.05, "lone": 0.85},
}
"""The same where both run in eight bits."""
OF_SWEEP = 1.1
OF_SWEEP_INT8 = 1.0
_CONNECTIONS = (2, 4, 8, 16, 32, 64, 128)
_BATCH = 8
_START_S = 180.0
_SAME, _SAME_INT8 = 0.999, 0.97


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
        graph = export_plain(place)
        if arguments.int8:
            dynamic = arguments.openvino is None
            graph = round_graph(graph) if dynamic else calibrate(graph, arguments.openvino, arguments.data)
        bare = Process(
            [python, "-m", "benchmarks.peers.bare_runtime", runtime, str(graph), _tokenizer()],
            {"ORT_DISABLE_TELEMETRY": "1"},
            pipes=True,
        )
        stack.callback(bare.end)
        service = Headlight(
            processes=arguments.processes,
            dtype="int8" if arguments.int8 else os.environ.get("HEADLIGHT_DTYPE", "auto"),
        )
        stack.callback(service.end)
        service.wait_until_ready(_START_S)
        info = httpx.get(f"{service.url}/info", trust_env=False).json()["models"][0]
        facts = [
            ("bare runtime", runtime),
            ("kernels", info["kernels"] or "PyTorch's"),
            ("cosine", f"{cosine(service, bare, single, _SAME_INT8 if arguments.int8 else _SAME):.6f}"),
        ]
        tables.print_facts("Machine", [*machine.facts(info["dtype"]), *facts])
        service.pause()
        targets = (OF_BARE_INT8 if arguments.int8 else OF_BARE)[runtime]
        checks = []
        for load in loads:
            rounds = measure(load, service, bare, arguments)
            print_rounds(load, rounds)
            target = targets.get(load.name, OF_SWEEP_INT8 if arguments.int8 else OF_SWEEP)
            ratios = [turns[SERVICE][0] / turns[BARE][0] for turns in rounds]
            checks.append(tables.Check(f"{load.name}: requests/s, service / bare", ratios, target))
    tables.print_checks(checks)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="an STS file, tab-separated")
    parser.add_argument("--openvino", help="a Python with OpenVINO, to compare with that")
    parser.add_argument("--int8", action="store_true", help="run both in eight bits")
    parser.add_argument("--processes", default="auto", help="of the service")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=6, help="of each turn")
    parser.add_argument("--workloads", type=some_of(NAMES), default=NAMES, help=",".join(NAMES))
    parser.add_argument("--connections", type=numbers, default=list(_CONNECTIONS), help="of single sentences")
    return parser.parse_args()


def _tokenizer() -> str:
    return str(resolve(EMBEDDED) / "tokenizer.json")


def round_graph(graph: Path) -> Path:
    """Write a plain export in eight bits beside it, for ONNX Runtime."""
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415

    rounded = graph.with_name("int8.onnx")
    quantize_dynamic(
        graph, rounded, weight_type=QuantType.QInt8, per_channel=True, op_types_to_quantize=["MatMul"]
    )
    return rounded


def calibrate(graph: Path, openvino: str, data: Path) -> Path:
    """Write a plain export in eight bits beside it, for OpenVINO, calibrated on sentences of the data."""
    rounded = graph.with_name("int8.xml")
    command = [
        openvino,
        "-m",
        "benchmarks.peers.openvino_int8",
        str(graph),
        _tokenizer(),
        str(data),
        str(rounded),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return rounded


def cosine(service: Headlight, bare: Process, load: Workload, least: float) -> float:
    """Compare a vector of both; ends the program if they do not run the same model."""
    answer = httpx.post(f"{service.url}/encode", json={"inputs": list(load.requests[0])}, trust_env=False)
    ours = np.array(answer.raise_for_status().json()["data"][0]["embedding"])
    found = float(ours @ np.array(bare.ask(json.dumps(load.requests))))
    if found < least:
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
    tables.print_table(
        f"{load.name}: {np.median(ratios):.2f} times [{min(ratios):.2f}, {max(ratios):.2f}]",
        ["", "requests/s", "p50 ms"],
        [[name, f"{per_s:.1f}", f"{p50:.1f}"] for name, (per_s, p50) in medians.items()],
    )


if __name__ == "__main__":
    main()
