"""Loads a model from its source, to run with PyTorch or with ONNX Runtime."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from model.checkpoints.folder import has_weights, read_folder, runs_with_torch
from model.checkpoints.source import EMBEDDED, INSTALL_TORCH, check_weights, resolve
from model.choices import Kind
from model.contract import Backend
from model.devices import check_possible
from model.errors import CheckpointError
from model.onnx.file import OnnxFile, check_whole, find_graph
from model.startup_check import check_model
from model.static.backend import StaticBackend
from model.static.folder import is_static, read_static
from model.static.queries import QueryTable, with_query_table
from model.tokenization.tokenizer import TextTokenizer

if TYPE_CHECKING:
    from model.pytorch.backend import TorchBackend

_EXPORT = "`headlight export MODEL FOLDER`, on a machine with PyTorch, makes a folder that runs without it"


def load_model(
    source: str,
    *,
    kind: Kind = "auto",
    device: str = "auto",
    dtype: str = "auto",
    threads: int | None = None,
    native: bool = True,
    strict: bool = False,
) -> tuple[TextTokenizer, Backend]:
    """Load a model; raises ModelError if the model cannot be run with these settings.

    `source` is as for `resolve`, or the path of an .onnx file. `threads` is the number of cores to use
    (None: all). `native=False` turns the native kernels off.
    `strict` refuses keys of its files that no table lists. Only one thread may load a model at a time,
    because the pages read from its files are released (`model.memory`).
    """
    path, graph = find_model(source, kind)
    tokenizer: TextTokenizer
    backend: Backend
    if is_static(path):
        tokenizer, backend = _load_static(path, dtype, threads, strict=strict)
    elif graph is not None:
        tokenizer, backend = _load_onnx(graph, device, dtype, threads, strict=strict)
    else:
        check_possible(device, dtype)
        tokenizer, backend = _load_torch(path, device, dtype, threads, native=native, strict=strict)
    check_model(str(path), tokenizer, backend)
    return tokenizer, backend


def prepare_model(
    source: str,
    *,
    kind: Kind = "auto",
    device: str = "auto",
    dtype: str = "auto",
    threads: int | None = None,
    native: bool = True,
    strict: bool = False,
    folder: Path | None,
) -> Callable[[], tuple[TextTokenizer, Backend]]:
    """Load what forked processes can share; returns what each calls to get its model, raises ModelError.

    With PyTorch on a CPU all weights are loaded and prepacked here, on one thread: threads do not survive a
    fork. A graph for a CPU is written to `folder` with packed weights, and each process maps that file;
    without a folder each has its own copy. CUDA cannot be forked, so there each process loads the model by
    itself.
    """
    path, graph = find_model(source, kind)
    if is_static(path):
        tokenizer, backend = _load_static(path, dtype, threads, strict=strict)
        check_model(str(path), tokenizer, backend)
        return lambda: (tokenizer, backend)
    if graph is not None:
        prepared = _prepare_onnx(graph, device, dtype, threads, strict=strict, folder=folder)
        if prepared is not None:
            return prepared
    else:
        check_possible(device, dtype)
        from model.pytorch.backend import choose_device  # noqa: PLC0415

        if choose_device(device) == "cpu":
            return _load_forkable(path, dtype, threads, native=native, strict=strict)
    return partial(
        load_model,
        source,
        kind=kind,
        device=device,
        dtype=dtype,
        threads=threads,
        native=native,
        strict=strict,
    )


def _load_forkable(
    path: Path, dtype: str, threads: int | None, *, native: bool, strict: bool
) -> Callable[[], tuple[TextTokenizer, Backend]]:
    from model.pytorch.backend import one_thread  # noqa: PLC0415

    with one_thread() as available:
        tokenizer, backend = _load_torch(path, "cpu", dtype, 1, native=native, strict=strict)
        check_model(str(path), tokenizer, backend)

    def after_fork() -> tuple[TextTokenizer, Backend]:
        backend.use_threads(threads or available)
        return tokenizer, backend

    return after_fork


def find_model(source: str, kind: Kind) -> tuple[Path, OnnxFile | None]:
    """Find a model's folder, and the graph in it if that is what will run; raises ModelError.

    A table of token vectors needs neither runtime, so it runs whatever `kind` says.
    """
    without_torch = kind == "onnx" or find_spec("torch") is None
    path = _named_graph(source) or resolve(source, graph=without_torch)
    if source != EMBEDDED and not Path(source).expanduser().exists():
        check_weights(source, path)
    if is_static(path):
        return path, None
    graph = find_graph(path)
    return path, graph if choose_kind(kind, path, graph) == "onnx" else None


def _named_graph(source: str) -> Path | None:
    """Return the .onnx file that a source names, None if it names something else."""
    path = Path(source).expanduser()
    return path if path.suffix == ".onnx" and path.is_file() else None


def choose_kind(kind: Kind, path: Path, graph: OnnxFile | None) -> Kind:
    """Choose how to run the model at a path; raises CheckpointError if it cannot be run."""
    torch = find_spec("torch") is not None
    # Some folders have a graph instead of weights; other exporters put a graph beside the weights.
    checkpoint = path.is_dir() and (graph is None or has_weights(path))
    if kind == "auto" and torch and checkpoint and graph is not None and not runs_with_torch(path):
        return "onnx"
    if kind == "onnx" or (kind == "auto" and not (torch and checkpoint)):
        if graph is None:
            if kind == "onnx" or torch:
                raise CheckpointError(f"{path} has no model.onnx: {_EXPORT}.")
            raise CheckpointError(
                f"{path} has no model.onnx, and PyTorch is not installed to run its checkpoint: "
                f"{INSTALL_TORCH}; or {_EXPORT}."
            )
        return "onnx"
    if not checkpoint:
        raise CheckpointError(
            f"{path} has a graph without the weights that PyTorch needs: choose the backend onnx."
        )
    if not torch:
        raise CheckpointError(
            f"torch is not installed, and the torch backend needs it: {INSTALL_TORCH}; or {_EXPORT}."
        )
    return "torch"


def both_packages() -> str | None:
    """Return a warning if both ONNX Runtime packages are installed, else None."""
    try:
        versions = [version(name) for name in ("onnxruntime", "onnxruntime-gpu")]
    except PackageNotFoundError:
        return None
    return (
        f"onnxruntime {versions[0]} and onnxruntime-gpu {versions[1]} are both installed and overwrite each "
        "other's files: uninstall both, then install one of them."
    )


def _load_torch(
    path: Path, device: str, dtype: str, threads: int | None, *, native: bool, strict: bool
) -> "tuple[TextTokenizer, TorchBackend | QueryTable]":
    # Imported here: PyTorch takes seconds and hundreds of megabytes, and may not be installed.
    from model.checkpoints.checkpoint import load_checkpoint  # noqa: PLC0415
    from model.pytorch.backend import TorchBackend  # noqa: PLC0415

    checkpoint = load_checkpoint(path, strict=strict, deferred=True)
    backend = TorchBackend(checkpoint, device=device, dtype=dtype, threads=threads, native=native)
    return checkpoint.tokenizer, with_query_table(checkpoint.folder, backend)


def _load_static(
    path: Path, dtype: str, threads: int | None, *, strict: bool
) -> tuple[TextTokenizer, StaticBackend]:
    folder, table = read_static(path, strict=strict)
    return folder.tokenizer, StaticBackend(folder, table, dtype=dtype, threads=threads)


def _load_onnx(
    graph: OnnxFile, device: str, dtype: str, threads: int | None, *, strict: bool
) -> tuple[TextTokenizer, Backend]:
    with _needs_runtime(graph):
        from model.onnx.backend import OnnxBackend  # noqa: PLC0415
    folder = read_folder(graph.folder, graph=True, strict=strict)
    backend = OnnxBackend(folder, graph, device=device, dtype=dtype, threads=threads)
    return folder.tokenizer, with_query_table(folder, backend)


def _prepare_onnx(
    graph: OnnxFile,
    device: str,
    dtype: str,
    threads: int | None,
    *,
    strict: bool,
    folder: Path | None,
) -> Callable[[], tuple[TextTokenizer, Backend]] | None:
    """Prepare a graph for a CPU; returns None if it runs elsewhere."""
    with _needs_runtime(graph):
        from model.onnx.backend import OnnxBackend  # noqa: PLC0415
        from model.onnx.prepacking import prepack  # noqa: PLC0415
        from model.onnx.session import CPU, choose_processor  # noqa: PLC0415
    if choose_processor(device).provider != CPU:
        return None
    check_whole(graph)
    model = read_folder(graph.folder, graph=True, strict=strict)
    prepacked = prepack(graph.path, folder)

    def after_fork() -> tuple[TextTokenizer, Backend]:
        opened = OnnxBackend(model, graph, device="cpu", dtype=dtype, threads=threads, prepacked=prepacked)
        backend = with_query_table(model, opened)
        check_model(str(graph.path), model.tokenizer, backend)
        return model.tokenizer, backend

    return after_fork


@contextmanager
def _needs_runtime(graph: OnnxFile) -> Iterator[None]:
    """Say what to install if an import inside the `with` block fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise CheckpointError(
            f"{error.name} is not installed, and {graph.path} needs it: `pip install onnxruntime`, or "
            "`onnxruntime-gpu` for CUDA."
        ) from error
