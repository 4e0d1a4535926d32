"""What runs a model follows from what lies in its folder, what is installed, and what was asked for."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from model import loading
from model.checkpoints.source import EMBEDDED, resolve
from model.choices import Kind
from model.errors import CheckpointError, ModelError
from model.loading import both_packages, choose_kind, load_model
from model.onnx.file import MANIFEST, OnnxFile, find_graph

NOBODY = 65534

CONTENTS = {
    "checkpoint": ["config.json", "model.safetensors"],
    "exported": ["config.json", "model.onnx", "model.onnx.data"],
    "both": ["config.json", "model.safetensors", "onnx/model.onnx"],
    "beside": ["config.json", "model.safetensors", "model.onnx"],
    "shards": ["config.json", "model.safetensors.index.json", "model.onnx"],
    "nested": ["config.json", "onnx/model.onnx"],
    "pickled": ["config.json", "pytorch_model.bin", "onnx/model_quantized.onnx"],
    "qdrant": ["config.json", "model_optimized.onnx"],
    "empty": [],
}
"""What is in a folder; `both` is how sentence-transformers publishes some of its models."""


@pytest.fixture(params=[True, False], ids=["with torch", "without torch"])
def torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether PyTorch is installed, as far as can be seen."""
    monkeypatch.setattr(loading, "find_spec", lambda name: ModuleSpec(name, None) if request.param else None)
    return bool(request.param)


@pytest.fixture
def lay_out(tmp_path: Path) -> Callable[[str], tuple[Path, OnnxFile | None]]:
    """Make a folder of empty files, or name the graph in one, and find its graph."""

    def make(what: str) -> tuple[Path, OnnxFile | None]:
        for name in CONTENTS["both" if what == "file" else what]:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).touch()
        path = tmp_path / "onnx/model.onnx" if what == "file" else tmp_path
        return path, find_graph(path)

    return make


LayOut = Callable[[str], tuple[Path, OnnxFile | None]]
TORCH, ONNX = "torch", "onnx"
NO_GRAPH = "has no model.onnx: `headlight export MODEL FOLDER`"
NEITHER = "has no model.onnx, and PyTorch is not installed to run its checkpoint: `uv pip install"
NO_WEIGHTS = "has a graph without the weights that PyTorch needs: choose the backend onnx"
INSTALL = f"`uv pip install --python {sys.prefix} --torch-backend auto torch==2.13.0`"
"""As the README does: pip alone would take the build with CUDA on Linux."""
NO_TORCH = f"the torch backend needs it: {INSTALL}"


@pytest.mark.parametrize(
    ("what", "kind", "with_torch", "without"),
    [
        ("checkpoint", "auto", TORCH, NEITHER),
        ("checkpoint", "torch", TORCH, NO_TORCH),
        ("checkpoint", "onnx", NO_GRAPH, NO_GRAPH),
        ("exported", "auto", ONNX, ONNX),
        ("exported", "torch", NO_WEIGHTS, NO_WEIGHTS),
        ("exported", "onnx", ONNX, ONNX),
        ("both", "auto", TORCH, ONNX),
        ("both", "torch", TORCH, NO_TORCH),
        ("both", "onnx", ONNX, ONNX),
        ("beside", "auto", TORCH, ONNX),
        ("beside", "torch", TORCH, NO_TORCH),
        ("beside", "onnx", ONNX, ONNX),
        ("shards", "auto", TORCH, ONNX),
        *((what, "auto", ONNX, ONNX) for what in ("nested", "pickled", "qdrant")),
        *((what, "torch", NO_WEIGHTS, NO_WEIGHTS) for what in ("nested", "pickled", "qdrant")),
        ("file", "auto", ONNX, ONNX),
        ("file", "torch", NO_WEIGHTS, NO_WEIGHTS),
        ("file", "onnx", ONNX, ONNX),
        ("empty", "auto", TORCH, NEITHER),
        ("empty", "torch", TORCH, NO_TORCH),
        ("empty", "onnx", NO_GRAPH, NO_GRAPH),
    ],
)
def test_what_runs_a_model_follows_from_what_is_there(
    torch: bool, lay_out: LayOut, what: str, kind: Kind, with_torch: str, without: str
) -> None:
    """PyTorch for a checkpoint where it is installed, else a graph; else a way out."""
    path, graph = lay_out(what)
    expected = with_torch if torch else without
    if expected in (TORCH, ONNX):
        assert choose_kind(kind, path, graph) == expected
        return
    with pytest.raises(CheckpointError, match=re.escape(expected)) as caught:
        choose_kind(kind, path, graph)
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert str(path) in sentence or expected == NO_TORCH
    assert (INSTALL in sentence) == (expected in (NEITHER, NO_TORCH))


def test_the_graph_of_a_folder_is_found_where_exporters_put_it(lay_out: LayOut, tmp_path: Path) -> None:
    """At its top or in onnx/, the former first; a file that is named belongs to the folder around it."""
    nested = OnnxFile(tmp_path / "onnx/model.onnx", tmp_path)
    (tmp_path / "model_quantized.onnx").touch()
    assert find_graph(tmp_path) == OnnxFile(tmp_path / "model_quantized.onnx", tmp_path)
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx/model_optimized.onnx").touch()
    assert find_graph(tmp_path) == OnnxFile(tmp_path / "onnx/model_optimized.onnx", tmp_path)
    assert lay_out("both")[1] == nested
    assert find_graph(nested.path) == nested


@pytest.mark.parametrize(
    ("there", "found"),
    [
        ("model_int8 model_uint8", "model_uint8"),
        ("model_quantized model_uint8 model_int8", "model_uint8"),
        (
            "model_qint8_arm64 model_qint8_avx512 model_qint8_avx512_vnni model_quint8_avx2",
            "model_quint8_avx2",
        ),
        ("model_qint8_arm64 model_qint8_avx512_vnni", "model_qint8_avx512_vnni"),
        ("model_quint8_avx2 model_fp16 model_O3", "model_O3"),
    ],
)
def test_of_several_graphs_the_one_that_is_exact_on_every_processor_is_found(
    there: str, found: str, tmp_path: Path
) -> None:
    """As exporters name them: unsigned weights before signed ones, and more bits before eight."""
    for name in there.split():
        (tmp_path / f"{name}.onnx").touch()
    assert find_graph(tmp_path) == OnnxFile(tmp_path / f"{found}.onnx", tmp_path)
    (tmp_path / "model.onnx").touch()
    assert find_graph(tmp_path) == OnnxFile(tmp_path / "model.onnx", tmp_path)
    (tmp_path / "other.onnx").touch()
    assert find_graph(tmp_path / "other.onnx") == OnnxFile(tmp_path / "other.onnx", tmp_path)
    assert find_graph(tmp_path / "config.json") is None
    assert find_graph(tmp_path / "none.onnx") is None


def test_a_graph_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The file that was named is named back."""
    with pytest.raises(ModelError, match=r"none\.onnx is not a folder with a checkpoint"):
        load_model(str(tmp_path / "none.onnx"))


@pytest.mark.parametrize(
    ("installed", "told"),
    [
        ({}, False),
        ({"onnxruntime": "1.31.1"}, False),
        ({"onnxruntime-gpu": "1.31.0"}, False),
        ({"onnxruntime": "1.31.1", "onnxruntime-gpu": "1.31.0"}, True),
    ],
)
def test_both_packages_of_the_runtime_are_told(
    installed: dict[str, str], told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each overwrites files of the other: only one of them may be installed."""

    def version(name: str) -> str:
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(loading, "version", version)
    sentence = both_packages()
    if not told:
        assert sentence is None
        return
    assert sentence == (
        "onnxruntime 1.31.1 and onnxruntime-gpu 1.31.0 are both installed and overwrite each other's files: "
        "uninstall both, then install one of them."
    )


def test_a_runtime_that_is_missing_is_named_with_the_way_to_install_it(
    lay_out: LayOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As is the graph that needs it."""
    path, _ = lay_out("exported")
    for name in ("model.onnx.backend", "model.onnx.session"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(CheckpointError) as caught:
        load_model(str(path))
    assert str(caught.value) == (
        f"onnxruntime is not installed, and {path / 'model.onnx'} needs it: `pip install onnxruntime`, or "
        "`onnxruntime-gpu` for CUDA."
    )


@contextmanager
def another_user() -> Iterator[None]:
    """Be somebody who is not root, whom no permission stops."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("model.safetensors", "torch", "cannot be read: [Errno 13] Permission denied"),
        ("config.json", "torch", "cannot be read: [Errno 13] Permission denied"),
        ("tokenizer.json", "torch", "cannot be read: [Errno 13] Permission denied"),
        ("model.onnx", "onnx", "cannot be read: [Errno 13] Permission denied"),
        (".", "auto", "is not readable by this user: run `chmod -R a+rX "),
    ],
)
def test_what_this_user_may_not_read_is_named(name: str, kind: Kind, sentence: str) -> None:
    """Weights that only their owner may read, which some libraries write, are not said to be missing."""
    with TemporaryDirectory() as outer:
        Path(outer).chmod(0o755)
        folder = shutil.copytree(resolve(EMBEDDED), Path(outer) / "model")
        (folder / MANIFEST).write_text('{"files": {"model.onnx": {}}}')
        (folder / "model.onnx").touch()
        denied = folder / name
        denied.chmod(0)
        with another_user(), pytest.raises(CheckpointError) as raised:
            load_model(str(folder), kind=kind)
    assert str(raised.value).startswith(f"{denied} {sentence}")
