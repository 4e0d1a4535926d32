"""Graphs of eight bits where the processor's sums of their products saturate."""

import platform
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from export import pipeline, precision
from export.__main__ import main
from model.errors import CheckpointError
from model.loading import load_model
from model.onnx import backend, vnni
from model.onnx.precision import Precision, read_precision
from tests.references.checkpoints import write_bert

FLAGS = "processor\t: 0\nflags\t\t: fpu sse avx2 {}\n"


def write_graph(path: Path, weight: Any, operator: str = "MatMulInteger", *, external: bool = False) -> Path:
    """A graph of one product."""
    node = helper.make_node(operator, ["x", "w"], ["y"])
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, len(weight)])]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "g", given, made, [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph), path, save_as_external_data=external, size_threshold=0)
    return path


@pytest.mark.parametrize(
    ("weight", "operator", "external", "expected"),
    [
        (np.full((64, 32), 0.5, np.float32), "MatMul", False, Precision("float32")),
        (np.full((64, 32), 0.5, np.float32), "MatMul", True, Precision("float32")),
        (np.full((64, 32), 0.5, np.float16), "MatMul", False, Precision("float16")),
        (np.full((64, 32), 65, np.int8), "MatMulInteger", False, Precision("int8", saturates=True)),
        (np.full((64, 32), -65, np.int8), "QLinearMatMul", False, Precision("int8", saturates=True)),
        (np.full((64, 32), 64, np.int8), "MatMulInteger", True, Precision("int8", saturates=True)),
        (np.full((64, 32), 64, np.int8), "DynamicQuantizeMatMul", False, Precision("int8")),
        (np.full((64, 32), 255, np.uint8), "MatMulInteger", False, Precision("int8")),
        (np.full((64, 32), 255, np.uint8), "MatMulNBits", False, Precision("int4")),
    ],
)
def test_the_precision_is_read_from_the_file(
    weight: Any, operator: str, external: bool, expected: Precision, tmp_path: Path
) -> None:
    """Of its operators and weights, wherever these lie; seven bits and unsigned ones are exact everywhere."""
    path = write_graph(tmp_path / "g.onnx", weight, operator, external=external)
    assert read_precision(path) == expected


@pytest.mark.parametrize("content", [b"not a graph", b"\x3a\xff\xff\xff\xff\x0f", b"\xff" * 30])
def test_what_is_no_graph_is_told(content: bytes, tmp_path: Path) -> None:
    """Lengths beyond the file, and what has none."""
    (tmp_path / "g.onnx").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"g\.onnx is damaged or is not an ONNX file"):
        read_precision(tmp_path / "g.onnx")


@pytest.mark.parametrize(
    ("machine", "flags", "exact"),
    [
        ("x86_64", "avx512f", False),
        ("x86_64", "avx512f avx512_vnni", True),
        ("x86_64", "avx_vnni", True),
        ("aarch64", "", True),
    ],
)
def test_the_processor_is_asked(
    machine: str, flags: str, exact: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By its flags; other architectures than x86 add in 32 bits."""
    (tmp_path / "cpuinfo").write_text(FLAGS.format(flags), encoding="utf-8")
    monkeypatch.setattr(vnni, "Path", lambda _: tmp_path / "cpuinfo")
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert vnni.has_exact_eight_bits.__wrapped__() is exact


def test_without_vnni_a_graph_of_eight_bits_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At load, in one sentence; and the exporter says so before it begins."""
    write_bert(tmp_path / "model")
    source, place = str(tmp_path / "model"), tmp_path / "graph"
    pipeline.export(source, place, dtype="int8", overwrite=False, step=lambda _: nullcontext())
    _, served = load_model(str(tmp_path / "graph"), kind="onnx", device="cpu")
    assert served.info.dtype == "int8"
    for module in (backend, precision):
        monkeypatch.setattr(module, "has_exact_eight_bits", lambda: False)
    with pytest.raises(CheckpointError) as refused:
        load_model(str(tmp_path / "graph"), kind="onnx", device="cpu")
    sentence = str(refused.value)
    assert "model.onnx multiplies in eight bits, and the processor has no VNNI (avx512_vnni or" in sentence
    assert sentence.endswith("run it on a processor with VNNI, or use the graph in float32.")
    assert main([str(tmp_path / "model"), str(tmp_path / "other"), "--quantize", "int8"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    last = err.splitlines()[-1]
    assert last.startswith("export: The graph in eight bits cannot be compared here: the processor has no")
    assert "Finding" not in err
    assert not (tmp_path / "other").exists()
