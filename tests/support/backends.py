"""The ways a model is run, for tests that hold for each of them."""

import hashlib
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
import torch

from export.contents import add_projection, copy_contents
from export.writer import write_graph
from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.exported_prediction import write_predictor
from model.checkpoints.source import resolve
from model.choices import Kind
from model.contract import Backend
from model.loading import load_model
from model.onnx.names import DTYPE_KEY
from model.pytorch.kernels.library import NoKernels, find_kernels
from model.tokenization.tokenizer import TextTokenizer
from tests.references.checkpoints import MINILM, SUITED, write_bert
from tests.references.encoder import NaiveEncoder
from tests.support.keeping import keep
from tests.support.product import naive
from tests.support.serving import Service, serve


def instructions(dtype: torch.dtype) -> str | None:
    """The instruction set of the native kernels that this processor runs in a precision."""
    try:
        return find_kernels(dtype).instructions
    except NoKernels:
        return None


PLAIN = "plain"
"""PyTorch without native kernels."""
BACKENDS = ("torch", PLAIN, "onnx") if instructions(torch.float32) else ("torch", "onnx")
both_backends = pytest.mark.both_backends
"""Of a module whose tests run with each of them: `pytestmark = both_backends`."""


torch_or_graph = pytest.mark.parametrize(
    "backend",
    ["torch", pytest.param("onnx", marks=pytest.mark.repeated, id="as a graph")],
)
"""Of a test of checkpoints that are exported for it alone, which takes seconds each."""


ROOT = Path(__file__).parents[2]


def export_folder(source: Path, target: Path) -> Path:
    """Write what `python -m export` writes, without the comparison and the manifest.

    Tracing takes up to a minute, so what the same code made of the same source is kept for later runs and for
    the tests beside these.
    """
    shutil.copytree(keep(f"graphs/{_checksum(source)}", partial(_export, source)), target)
    return target


def _export(source: Path, target: Path) -> None:
    checkpoint = load_checkpoint(source)
    target.mkdir(parents=True)
    write_graph(checkpoint.encoder, target, {DTYPE_KEY: "float32"})
    copy_contents(source, checkpoint.folder.layout, target)
    add_projection(checkpoint.folder, target)
    if checkpoint.predictor is not None:
        write_predictor(target, checkpoint.predictor)


def _checksum(source: Path) -> str:
    """Sum up a checkpoint, and the code that exports it."""
    code = [file for room in ("model", "export") for file in (ROOT / room).rglob("*.py")]
    found = hashlib.sha256(torch.__version__.encode())
    for file in sorted([*code, *(file for file in source.rglob("*") if file.is_file())]):
        found.update(file.name.encode())
        found.update(file.read_bytes())
    return found.hexdigest()[:32]


@dataclass(frozen=True)
class Small:
    """A small model, loaded in float32, and the same written out in float64 numpy."""

    backend: Backend
    tokenizer: TextTokenizer
    naive: NaiveEncoder


@cache
def small(backend: str) -> Small:
    """A BERT of three layers and four heads, of random weights, run by a backend on the CPU."""
    with TemporaryDirectory() as place:
        source = Path(place) / "source"
        write_bert(source, num_hidden_layers=3, **SUITED)
        folder = export_folder(source, Path(place) / "graph") if backend == "onnx" else source
        tokenizer, loaded = load(folder, backend)
        return Small(loaded, tokenizer, naive(load_checkpoint(source).encoder))


def load(folder: Path, backend: str) -> tuple[TextTokenizer, Backend]:
    """Load a folder in float32 on the CPU."""
    kind = cast(Kind, "torch" if backend == PLAIN else backend)
    return load_model(str(folder), kind=kind, device="cpu", dtype="float32", native=backend != PLAIN)


def load_checkpoint_as(backend: str, source: Path) -> tuple[TextTokenizer, Backend]:
    """Load a checkpoint, for ONNX Runtime from the graph that is exported to the folder beside it."""
    return load(export_folder(source, source.with_name("graph")) if backend == "onnx" else source, backend)


def native(backend: str) -> dict[str, Any]:
    """The setting of a service that is run by a backend."""
    return {"native": "off"} if backend == PLAIN else {}


class Kept:
    """Things that are made when they are first asked for, and kept until the tests have ended."""

    def __init__(self, stack: ExitStack, place: Path) -> None:
        self._stack = stack
        self._place = place
        self._services: dict[object, Service] = {}
        self._graphs: dict[Path, Path] = {}

    def service(self, key: object, start: Callable[[], AbstractContextManager[Service]]) -> Service:
        """The service of this key."""
        if key not in self._services:
            self._services[key] = self._stack.enter_context(start())
        return self._services[key]

    def embedded(self, backend: str, **settings: Any) -> AbstractContextManager[Service]:
        """Start a service of the embedded model."""
        if backend == "onnx":
            return serve(model=f"{MINILM}={self.folder(resolve(MINILM), backend)}", **settings)
        return serve(**native(backend), **settings)

    def folder(self, source: Path, backend: str) -> Path:
        """The folder that a backend runs: the source itself, or what is exported from it."""
        if backend != "onnx":
            return source
        if source not in self._graphs:
            self._graphs[source] = export_folder(source, self._place / str(len(self._graphs)) / source.name)
        return self._graphs[source]
