"""Exports a checkpoint in process, as `headlight export` does, without printing."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from export.pipeline import export
from export.precision import Dtype
from model.checkpoints.folder import read_folder
from model.onnx.backend import OnnxBackend
from model.onnx.file import find_graph


def export_silently(folder: Path, place: Path, dtype: Dtype = "float32", **options: Any) -> None:
    """Export `folder` to `place`; `options` are further ones of `export`, which raises what it does there."""
    export(str(folder), place, dtype=dtype, overwrite=False, step=lambda _: nullcontext(), **options)


def opened(place: Path) -> OnnxBackend:
    """The graph of an exported folder, on the CPU."""
    file = find_graph(place)
    assert file is not None
    return OnnxBackend(read_folder(place, graph=True), file, device="cpu")
