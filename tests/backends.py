"""The ways a model is run, for tests that hold for each of them."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from export.contents import copy_contents
from export.writing import write_graph
from model.checkpoint import load_checkpoint
from model.graph import DTYPE_KEY
from model.source import resolve
from tests.client import Service, serve
from tests.reference import MINILM

BACKENDS = ("torch", "onnx")
both_backends = pytest.mark.both_backends
"""Of a module whose tests run with PyTorch and again with ONNX Runtime: `pytestmark = both_backends`."""


def export_folder(source: Path, target: Path) -> Path:
    """Write what `python -m export` writes, without the comparison and the manifest."""
    checkpoint = load_checkpoint(source)
    target.mkdir(parents=True)
    write_graph(checkpoint.encoder, target, {DTYPE_KEY: "float32"})
    copy_contents(source, checkpoint.folder.layout, target)
    return target


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
        if backend == "torch":
            return serve(**settings)
        return serve(model=f"{MINILM}={self.folder(resolve(MINILM), backend)}", **settings)

    def folder(self, source: Path, backend: str) -> Path:
        """The folder that a backend runs: the source itself, or what is exported from it."""
        if backend == "torch":
            return source
        if source not in self._graphs:
            self._graphs[source] = export_folder(source, self._place / str(len(self._graphs)) / source.name)
        return self._graphs[source]
