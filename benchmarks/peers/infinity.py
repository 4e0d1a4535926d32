"""infinity-emb 0.0.78, a server of sentence vectors, with the same weights and dtype as headlight."""

import json
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.kit.servers import Server
from benchmarks.kit.workloads import Workload
from benchmarks.kit.wrk import Load, drive

MODEL = "m"

_START_S = 180.0
_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}


def start_infinity(stack: ExitStack, command: str, folder: Path, dtype: str, engine: str = "torch") -> Server:
    """Start it, which warms up by itself, and wait for it; `optimum` is its engine for graphs.

    For `optimum`, the folder must be that of the embedded model, which gets a graph in eight bits.
    """
    program = shutil.which(command)
    if program is None:
        raise SystemExit(f"--peer is {command}, but there is no such command.")
    if engine == "optimum":
        folder = _with_graph(stack, folder)
    home = stack.enter_context(tempfile.TemporaryDirectory())
    options = {
        "--model-id": ".",  # optimum finds no graph by its path, only by its name in the folder
        "--engine": engine,
        "--pooling-method": "mean" if engine == "optimum" else "auto",  # optimum reads no folder's pooling
        "--served-model-name": MODEL,
        "--device": "cpu",
        "--dtype": dtype,
        "--batch-size": "32",
        "--port": "{port}",
        "--host": "127.0.0.1",
        "--log-level": "warning",
    }
    peer = Server(
        [str(Path(program).absolute()), "v2", *(word for option in options.items() for word in option)],
        {**_ENVIRONMENT, "INFINITY_HOME": home},
        ready="/health",
        quiet=True,
        folder=folder,
    )
    stack.callback(peer.end)
    peer.wait_until_ready(_START_S)
    return peer


def drive_infinity(server: Server, workload: Workload, seconds: int) -> Load:
    """Load it."""
    bodies = [json.dumps({"model": MODEL, "input": texts}).encode() for texts in workload.requests]
    return drive(server, "/embeddings", bodies, connections=workload.connections, seconds=seconds)


def _with_graph(stack: ExitStack, folder: Path) -> Path:
    """Copy the embedded model, beside a plain export of it in eight bits, until the stack ends."""
    # Imports transformers and PyTorch's exporter, which nothing else here needs.
    from benchmarks.peers.plain_export import export_plain, round_graph  # noqa: PLC0415

    place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    copy = Path(shutil.copytree(folder, place / "model"))
    round_graph(export_plain(place)).rename(copy / "model_quantized.onnx")  # infinity-emb looks for this name
    return copy
