"""Exports a model to a folder that runs without PyTorch, after comparing its outputs with PyTorch's."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from export.contents import (
    add_projection,
    add_tokenizer,
    copy_contents,
    digests,
    source_weights,
    write_manifest,
)
from export.errors import ExportError
from export.output_folder import check_place, clear_remains, whole
from export.parity import INTERVENTIONS, Row, as_data, compare, random_encodings
from export.precision import PRECISIONS, RANDOM, REAL, Dtype, Precision
from export.rounding import judge, reorder
from export.tasks import choose_task
from export.texts import TEXTS
from export.writer import OPSET, WEIGHTS
from model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from model.checkpoints.exported_prediction import FILE as PREDICTION
from model.checkpoints.exported_prediction import write_predictor
from model.checkpoints.folder import has_weights, read_folder
from model.checkpoints.source import model_name, resolve
from model.choices import Processors
from model.contract import Encoding, ModelInfo
from model.onnx.backend import OnnxBackend
from model.onnx.file import CHANGED, GRAPH, OnnxFile, find_graph
from model.onnx.names import FORMAT, NO_RANKING_KEY, TASK_KEY
from model.pytorch.backend import TorchBackend
from model.pytorch.precision import EXACT

Step = Callable[[str], AbstractContextManager[None]]
"""Reports the name of a step while a `with` block runs, and then how long it took."""

_FIRST, _FEW = "first texts", 12
"""In int8, this many texts are compared first, before minutes are spent on a large model."""
_EVERY = 15
"""Every fifteenth text also runs with interventions."""
_ORDERS = 6
"""The most orders in which PyTorch adds up numbers, to tell how much float32 rounds."""


class ParityMissed(ExportError):
    """The exported graph differs from the model by more than its bounds; `rows` is the comparison."""

    def __init__(self, rows: Sequence[Row], way_out: str) -> None:
        missed = ", ".join(f"{row.what} of {row.inputs}" for row in rows if not row.ok)
        super().__init__(
            f"The exported graph differs from PyTorch by more than its bound ({missed}), and was deleted: "
            f"{way_out}, or serve the model with PyTorch."
        )
        self.rows = rows


def export(
    source: str,
    target: Path,
    *,
    dtype: Dtype,
    overwrite: bool,
    step: Step,
    task: str | None = None,
    processors: Processors = "any",
) -> list[Row]:
    """Export a model to the folder `target`, and compare the result with the model.

    `task` is as for `choose_task`; `processors` are those that a graph in int8 is for. Returns the
    comparison. Raises ExportError, ModelError or OSError; then `target` is unchanged.
    """
    precision = PRECISIONS[dtype]
    precision.check(processors)
    with step(f"Finding {source}"):
        folder = resolve(source)
        if not has_weights(folder) and find_graph(folder) is not None:
            raise ExportError(f"{source} has a graph but no weights to export: serve it as it is.")
    clear_remains(target)
    check_place(target, folder, overwrite=overwrite)
    with whole(target) as new:
        with step("Reading the weights"):
            checkpoint, chosen = choose_task(load_checkpoint(folder), task)
        if checkpoint.folder.layout.queries is not None:
            raise ExportError(f"{source} has a Router, which runs only with PyTorch: serve it as it is.")
        with step(f"Tracing and writing the graph in {dtype}"):
            _write(checkpoint, new, precision, chosen, processors)
        with step("Copying the tokenizer and the modules after the encoder"):
            copy_contents(folder, checkpoint.folder.layout, new)
            add_tokenizer(checkpoint.folder, new)
            add_projection(checkpoint.folder, new)
            if checkpoint.predictor is not None:
                write_predictor(new, checkpoint.predictor)
            manifest = _manifest(source, folder, checkpoint, dtype, new)
            if chosen is not None:
                manifest["task"] = chosen
            if precision.quantized:
                manifest["for"] = processors
        with step("Comparing with PyTorch in float32"):
            rows = _compare(choose_task(load_checkpoint(folder), task)[0], new, precision)
        if dtype == "float32" and not all(row.ok for row in rows):
            with step("Comparing both with PyTorch in float64"):
                rows = _judge(rows, folder, task, new)
        write_manifest(new, {**manifest, "parity": as_data(rows)})
        if not all(row.ok for row in rows):
            raise ParityMissed(rows, precision.way_out(processors))
    return rows


def _write(
    checkpoint: Checkpoint, new: Path, precision: Precision, task: str | None, processors: Processors
) -> None:
    """Write the graph, with a description of the model in its metadata."""
    config, no_ranking = checkpoint.encoder.config, checkpoint.folder.no_ranking
    described = {
        "headlight.family": checkpoint.folder.model_type,
        "headlight.layers": config.num_layers,
        "headlight.heads": config.num_heads,
        "headlight.hidden_size": config.hidden_size,
        **({} if task is None else {TASK_KEY: task}),
        **({} if no_ranking is None else {NO_RANKING_KEY: f"{no_ranking}, and export the model again"}),
    }
    precision.write(checkpoint.encoder, new, described, processors)


def _manifest(source: str, folder: Path, checkpoint: Checkpoint, dtype: Dtype, new: Path) -> dict[str, Any]:
    """Describe the export's inputs, outputs and versions, without times or paths: it is reproducible."""
    layout = checkpoint.folder.layout
    weights = digests(source_weights(layout), folder)
    files = [new / name for name in (GRAPH, WEIGHTS, CHANGED, PREDICTION)]
    return {
        "format": FORMAT,
        "model": _name(source, folder),
        "family": checkpoint.folder.model_type,
        "dtype": dtype,
        "opset": OPSET,
        "max_length": checkpoint.tokenizer.max_length,
        "source_weights": {name: facts["sha256"] for name, facts in weights.items()},
        "files": digests([file for file in files if file.is_file()], new),
        "versions": {
            "headlight": version("headlight-server"),
            "torch": torch.__version__,
            **{name: version(name) for name in ("onnx", "onnxscript")},
            "onnxruntime": _runtime_version(),
        },
    }


def _runtime_version() -> str:
    # Imported here, after `model.onnx.session` has set the environment variable that it reads on import.
    import onnxruntime  # noqa: PLC0415

    return str(onnxruntime.__version__)


def _name(source: str, folder: Path) -> str:
    """Return the model's name as in the service; for a source such as "." or "..", its folder's name."""
    name = model_name(source)
    return folder.resolve().name if name in ("", ".", "..") else name


def _compare(checkpoint: Checkpoint, new: Path, precision: Precision) -> list[Row]:
    """Run the exported folder as the service would, beside the model itself, loaded anew.

    In int8, a few texts run first: if these miss a bound, only they are compared.
    """
    # Both run at once, each on half of the cores, and numpy on one thread: with more threads than cores,
    # most of them would wait.
    threads = max(1, torch.get_num_threads() // 2)
    reference = TorchBackend(checkpoint, device="cpu", dtype="float32", threads=threads)
    written = OnnxBackend(read_folder(new), OnnxFile(new / GRAPH, new), device="cpu", threads=threads)
    with threadpool_limits(limits=1, user_api="blas"):
        if precision.quantized:
            some = {_FIRST: checkpoint.tokenizer.encode(TEXTS[:_FEW])}
            rows = compare(reference, written, some, {_FIRST: precision.bounds[REAL]})
            if not all(row.ok for row in rows):
                return rows
        return compare(reference, written, _inputs(checkpoint, reference.info), precision.bounds)


def _judge(rows: Sequence[Row], folder: Path, task: str | None, new: Path) -> list[Row]:
    """Compare what missed its bound with float64, and also several ways in which PyTorch runs in float32.

    They are: with native kernels, without them, and without them but with sums in other orders.
    """
    threads = max(1, torch.get_num_threads() // 2)

    def load() -> Checkpoint:
        return choose_task(load_checkpoint(folder), task)[0]

    def make(order: int | None = None, *, native: bool = False) -> TorchBackend:
        checkpoint = load()
        if order is not None:
            reorder(checkpoint.encoder, order)
        return TorchBackend(checkpoint, device="cpu", dtype="float32", threads=threads, native=native)

    checkpoint = load()
    exact = TorchBackend(checkpoint, device="cpu", dtype=EXACT, threads=threads)
    orders = [partial(make, order) for order in range(_ORDERS)]
    float32: list[Callable[[], TorchBackend]] = [partial(make, native=True), make, *orders]
    written = OnnxBackend(read_folder(new), OnnxFile(new / GRAPH, new), device="cpu", threads=threads)
    with threadpool_limits(limits=1, user_api="blas"):
        return judge(rows, exact, float32, written, _inputs(checkpoint, exact.info))


def _inputs(checkpoint: Checkpoint, info: ModelInfo) -> dict[str, list[Encoding]]:
    """Return the inputs that are compared, keyed by the names of the bounds."""
    config = checkpoint.encoder.config
    return {
        RANDOM: random_encodings(info, config.vocab_size, config.segments),
        REAL: checkpoint.tokenizer.encode(TEXTS),
        INTERVENTIONS: checkpoint.tokenizer.encode(TEXTS[::_EVERY]),
    }
