"""From a model to a folder that runs without PyTorch, held to what PyTorch computes before it appears."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from threadpoolctl import threadpool_limits

from export.contents import copy_contents, digests, source_weights, write_manifest
from export.errors import ExportError
from export.output_folder import check_place, clear_remains, whole
from export.parity import Quantity, Row, as_data, compare, random_encodings
from export.quantization.int8 import quantize
from export.texts import TEXTS
from export.writer import OPSET, WEIGHTS, write_graph
from model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from model.checkpoints.folder import read_folder
from model.checkpoints.source import model_name, resolve
from model.contract import Encoding
from model.onnx.backend import OnnxBackend
from model.onnx.file import GRAPH, OnnxFile
from model.onnx.names import DTYPE_KEY, FORMAT
from model.pytorch.backend import TorchBackend

Dtype = Literal["float32", "float16", "int8"]
"""What products are computed in."""
Step = Callable[[str], AbstractContextManager[None]]
"""Says what is being done while a block runs, and how long it took."""

RANDOM, REAL = "random tokens", "texts"
_EXACT: Mapping[Quantity, float] = {
    "hidden states": 1e-4,
    "attention": 1e-4,
    "scores": 1e-4,
    "value norms": 1e-4,
    "summaries": 1e-4,
    "sentence vectors": 1e-4,
    "1 - sentence cosine": 1e-6,
}
# Hidden states and vectors are as large as a model makes them, so that no bound in float16 fits all of them.
_HALF: Mapping[Quantity, float] = {
    "attention": 0.02,
    "scores": 0.01,
    "value norms": 0.02,
    "summaries": 0.01,
    "1 - sentence cosine": 1e-4,
}
# What no output observes is computed from products in eight bits; what one observes, in float32.
_EIGHT_BITS: Mapping[Quantity, float] = {
    "attention": 0.02,
    "scores": 0.01,
    "value norms": 0.02,
    "summaries": 0.01,
    "1 - sentence cosine": 0.02,
}
BOUNDS: Mapping[Dtype, Mapping[str, Mapping[Quantity, float]]] = {
    "float32": {RANDOM: _EXACT, REAL: _EXACT},
    "float16": {RANDOM: _HALF, REAL: _HALF},
    "int8": {RANDOM: _EIGHT_BITS, REAL: _EIGHT_BITS},
}
"""The largest differences from PyTorch in float32 with which a folder appears."""


class ParityMissed(ExportError):
    """What was written computes something else than the model; `rows` is the comparison."""

    def __init__(self, rows: Sequence[Row]) -> None:
        missed = ", ".join(f"{row.what} of {row.inputs}" for row in rows if not row.ok)
        super().__init__(
            f"What was written differs from PyTorch by more than the bound ({missed}), so nothing is kept: "
            "export in float32, or serve the model with PyTorch."
        )
        self.rows = rows


def export(source: str, target: Path, *, dtype: Dtype, overwrite: bool, step: Step) -> list[Row]:
    """Write a model to the folder `target`, and compare what was written with the model.

    Returns the comparison. Raises ExportError, ModelError or OSError, and then `target` is as it was.
    """
    with step(f"Finding {source}"):
        folder = resolve(source)
    clear_remains(target)
    check_place(target, folder, overwrite=overwrite)
    with whole(target) as new:
        with step("Reading the weights"):
            checkpoint = load_checkpoint(folder)
        with step(f"Tracing and writing the graph in {dtype}"):
            _write(checkpoint, new, dtype)
        with step("Copying the tokenizer and what follows the encoder"):
            copy_contents(folder, checkpoint.folder.layout, new)
            manifest = _manifest(source, folder, checkpoint, dtype, new)
        with step("Comparing with PyTorch in float32"):
            rows = _compare(folder, new, BOUNDS[dtype])
        write_manifest(new, {**manifest, "parity": as_data(rows)})
        if not all(row.ok for row in rows):
            raise ParityMissed(rows)
    return rows


def _write(checkpoint: Checkpoint, new: Path, dtype: Dtype) -> None:
    """Write the graph, and into it what it is of."""
    config = checkpoint.encoder.config
    described = {
        DTYPE_KEY: "float32" if dtype == "int8" else dtype,
        "headlight.family": checkpoint.folder.model_type,
        "headlight.layers": config.num_layers,
        "headlight.heads": config.num_heads,
        "headlight.hidden_size": config.hidden_size,
    }
    if dtype == "float16":
        checkpoint.encoder.reduce_precision(torch.float16)
    path = write_graph(checkpoint.encoder, new, {key: str(value) for key, value in described.items()})
    if dtype == "int8":
        quantize(path, path)


def _manifest(source: str, folder: Path, checkpoint: Checkpoint, dtype: Dtype, new: Path) -> dict[str, Any]:
    """Say what was made of what, and by what; nothing of when and where."""
    layout = checkpoint.folder.layout
    weights = digests(source_weights(layout), folder)
    return {
        "format": FORMAT,
        "model": _name(source, folder),
        "family": checkpoint.folder.model_type,
        "dtype": dtype,
        "opset": OPSET,
        "max_length": checkpoint.tokenizer.max_length,
        "source_weights": {name: facts["sha256"] for name, facts in weights.items()},
        "files": digests([new / GRAPH, new / WEIGHTS], new),
        "versions": {
            "headlight": version("headlight-server"),
            "torch": torch.__version__,
            **{name: version(name) for name in ("onnx", "onnxscript")},
            "onnxruntime": _runtime_version(),
        },
    }


def _runtime_version() -> str:
    # Imported here: after `model.onnx.session`, which has the environment set that it reads when it is.
    import onnxruntime  # noqa: PLC0415

    return str(onnxruntime.__version__)


def _name(source: str, folder: Path) -> str:
    """Name a model as the service does, and one that is called by where it stands by its folder."""
    name = model_name(source)
    return folder.resolve().name if name in ("", ".", "..") else name


def _compare(folder: Path, new: Path, bounds: Mapping[str, Mapping[Quantity, float]]) -> list[Row]:
    """Run what was written, as it is served, beside the model itself."""
    checkpoint = load_checkpoint(folder)
    config = checkpoint.encoder.config
    # Side by side, and numpy on the thread that calls it: of more threads than cores, most wait for others.
    threads = max(1, torch.get_num_threads() // 2)
    reference = TorchBackend(checkpoint, device="cpu", dtype="float32", threads=threads)
    written = OnnxBackend(read_folder(new), OnnxFile(new / GRAPH, new), device="cpu", threads=threads)
    inputs: dict[str, list[Encoding]] = {
        RANDOM: random_encodings(reference.info, config.vocab_size, config.segments),
        REAL: checkpoint.tokenizer.encode(TEXTS),
    }
    with threadpool_limits(limits=1, user_api="blas"):
        return compare(reference, written, inputs, bounds)
