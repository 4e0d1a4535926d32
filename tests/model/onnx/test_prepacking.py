"""A graph whose packed weights processes share gives what the graph itself gives."""

import logging
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from model.checkpoints.folder import read_folder
from model.contract import Batch
from model.onnx import prepacking
from model.onnx.backend import OnnxBackend
from model.onnx.file import find_graph
from tests.references.checkpoints import write_bert
from tests.support.backends import export_folder, small
from tests.support.product import want_all


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported BERT of two layers."""
    place = tmp_path_factory.mktemp("exported")
    write_bert(place / "source")
    return export_folder(place / "source", place / "graph")


def load(folder: Path, prepacked: Path | None = None) -> OnnxBackend:
    file = find_graph(folder)
    assert file is not None
    return OnnxBackend(read_folder(folder), file, device="cpu", threads=2, prepacked=prepacked)


def test_every_number_is_the_same_bit_by_bit(folder: Path, tmp_path: Path) -> None:
    """On one thread and on two, whatever is asked for."""
    prepacked = prepacking.prepack(folder / "model.onnx", tmp_path)
    assert prepacked is not None
    own, shared = load(folder), load(folder, prepacked)
    assert shared.info == own.info
    encodings = small("onnx").tokenizer.encode(["the man beats", "a", ("the boy", "a man")])
    batch = Batch.pack(encodings, [want_all(own)] * 3)
    for lanes in (1, 2):
        outputs = (backend.run(batch, lanes=lanes) for backend in (own, shared))
        for one, other in zip(*outputs, strict=True):
            for name in ("sentence", "tokens", "attention"):
                assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_weights_are_packed_once(folder: Path, tmp_path: Path) -> None:
    """The file that is written has them, so that no session packs its own."""
    prepacked = prepacking.prepack(folder / "model.onnx", tmp_path)
    model = onnx.load(str(prepacked), load_external_data=False)
    packed = [
        weight.name
        for weight in model.graph.initializer
        if any(entry.key.startswith("prepacked") for entry in weight.external_data)
    ]
    products = [node for node in model.graph.node if "MatMul" in node.op_type]
    assert len(packed) >= 6 * 2
    assert len(products) >= len(packed)


def test_two_graphs_do_not_share_a_file(folder: Path, tmp_path: Path) -> None:
    paths = {prepacking.prepack(folder / "model.onnx", tmp_path) for _ in range(2)}
    assert len(paths) == 2
    assert None not in paths


def test_without_room_nothing_is_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, with the folder and what it lacks, and every session packs its own."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with caplog.at_level(logging.WARNING):
        assert prepacking.prepack(folder / "model.onnx", tmp_path) is None
    assert str(tmp_path) in caplog.text
    assert not list(tmp_path.iterdir())


def test_without_a_folder_each_session_packs_its_own(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As with a read-only root: a warning says what it costs."""
    with caplog.at_level(logging.WARNING):
        assert prepacking.prepack(folder / "model.onnx", None) is None
    assert "no temporary folder can be written (TMPDIR, /tmp)" in caplog.text


def test_a_graph_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    graph = tmp_path / "model.onnx"
    graph.write_bytes(b"no graph")
    place = tmp_path / "shared"
    place.mkdir()
    with caplog.at_level(logging.WARNING):
        assert prepacking.prepack(graph, place) is None
    assert "cannot be shared" in caplog.text
    assert not list(place.iterdir())
