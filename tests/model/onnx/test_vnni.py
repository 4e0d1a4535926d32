"""Graphs of eight bits where the processor's sums of their products saturate."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from export import precision
from export.__main__ import main
from model.choices import Processors
from model.errors import CheckpointError
from model.onnx import backend, vnni
from model.onnx.file import OnnxFile
from model.onnx.names import PROCESSORS_KEY
from model.onnx.precision import SEVEN_BITS, read_precision
from tests.references.checkpoints import write_bert
from tests.references.saturating import saturating_product
from tests.support.exporting import export_silently
from tests.support.hidden_features import OLDER, older
from tests.support.serving import ROOT


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
        (np.full((64, 32), 0.5, np.float32), "MatMul", False, ("float32", False)),
        (np.full((64, 32), 0.5, np.float32), "MatMul", True, ("float32", False)),
        (np.full((64, 32), 0.5, np.float16), "MatMul", False, ("float16", False)),
        (np.full((64, 32), 65, np.int8), "MatMulInteger", False, ("int8", True)),
        (np.full((64, 32), -65, np.int8), "QLinearMatMul", False, ("int8", True)),
        (np.full((16, 2), 65, np.int8), "MatMulInteger", False, ("int8", True)),
        (np.full((64, 32), 64, np.int8), "MatMulInteger", True, ("int8", True)),
        (np.full((64, 32), 64, np.int8), "DynamicQuantizeMatMul", False, ("int8", False)),
        (np.full((64, 32), 255, np.uint8), "MatMulInteger", False, ("int8", False)),
        (np.full((64, 32), 255, np.uint8), "MatMulNBits", False, ("int4", False)),
    ],
)
def test_the_precision_is_read_from_the_file(
    weight: Any, operator: str, external: bool, expected: tuple[str, bool], tmp_path: Path
) -> None:
    """Of its operators and weights, wherever these lie; seven bits and unsigned ones are exact everywhere."""
    path = write_graph(tmp_path / "g.onnx", weight, operator, external=external)
    found = read_precision(path)
    assert (found.name, found.saturates) == expected
    seven = "any processor (weights of seven bits, or unsigned)"
    eight = "x86 processors with VNNI, and ARM (signed weights of eight bits)"
    assert found.processors == {("int8", True): eight, ("int8", False): seven}.get(expected)


@pytest.mark.parametrize("content", [b"not a graph", b"\x3a\xff\xff\xff\xff\x0f", b"\xff" * 30])
def test_what_is_no_graph_is_told(content: bytes, tmp_path: Path) -> None:
    """Lengths beyond the file, and what has none."""
    (tmp_path / "g.onnx").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"g\.onnx is damaged or is not an ONNX file"):
        read_precision(tmp_path / "g.onnx")


@pytest.mark.parametrize("weight", [-SEVEN_BITS, -1, SEVEN_BITS])
def test_seven_bits_never_saturate(weight: int) -> None:
    """Whatever the activations and the other weight of a pair are: 2 · 255 · 64 < 2¹⁵."""
    activations = np.arange(256, dtype=np.uint8)
    x = np.stack(np.meshgrid(activations, activations), axis=-1).reshape(-1, 2)  # every pair of them
    for other in (-SEVEN_BITS, 0, SEVEN_BITS):
        w = np.array([[weight], [other]], np.int8)
        np.testing.assert_array_equal(saturating_product(x, w), x.astype(np.int64) @ w)
    w = np.full((2, 1), SEVEN_BITS + 1, np.int8)
    assert (saturating_product(x, w) != x.astype(np.int64) @ w).any()


PRODUCTS = """
import json, sys
import numpy as np
from model.onnx.vnni import _PRODUCT, has_exact_eight_bits, ort
generator = np.random.default_rng(0)
session = ort.InferenceSession(_PRODUCT, providers=["CPUExecutionProvider"])
found = {}
for top in (64, 127):
    for rows in (1, 2, 7, 33):
        x = generator.integers(128, 256, (rows, 96), dtype=np.uint8)
        w = generator.integers(-top, top + 1, (96, 48), dtype=np.int8)
        w[::8], w[1::8] = top, top
        found[f"{top} {rows}"] = [a.tolist() for a in (x, w, session.run(None, {"a": x, "b": w})[0])]
json.dump({"exact": has_exact_eight_bits(), "found": found}, sys.stdout)
"""


@pytest.mark.parametrize(
    ("instructions", "exact"), [("avx2", False), ("avx512", False), ("avx_vnni", True), ("avx512_vnni", True)]
)
def test_the_runtime_is_asked(instructions: str, exact: bool) -> None:
    """What it computes without VNNI is what pairs of 16 bits give; seven bits are exact with all."""
    done = subprocess.run(
        [sys.executable, "-c", PRODUCTS],
        env=older(instructions),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    told = json.loads(done.stdout)
    assert told["exact"] is exact
    for name, (activations, weights, found) in told["found"].items():
        x, w = np.array(activations, np.uint8), np.array(weights, np.int8)
        right, pairs = x.astype(np.int64) @ w, saturating_product(x, w)
        eight_bits = name.startswith("127")
        assert (pairs != right).any() == eight_bits
        np.testing.assert_array_equal(found, pairs if eight_bits and not exact else right)


def test_what_the_runtime_is_asked_is_one_product() -> None:
    """Of unsigned activations and signed weights, in the operator that graphs of eight bits have."""
    node = helper.make_node("MatMulInteger", ["a", "b"], ["c"])
    kinds = {"a": TensorProto.UINT8, "b": TensorProto.INT8, "c": TensorProto.INT32}
    a, b, c = (helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items())
    made = helper.make_graph([node], "", [a, b], [c])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 10)], ir_version=5)
    assert model.SerializeToString() == vnni._PRODUCT


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with int8 graphs, by what these are for; "older" is one of a release that did not say it.

    Without VNNI there is only that for any processor: the exporter refuses the others there.
    """
    place = tmp_path_factory.mktemp("exported")
    write_bert(place / "model")
    if not vnni.has_exact_eight_bits():
        export_silently(place / "model", place / "any", "int8")
        return {"any": place / "any"}
    for target in get_args(Processors):
        export_silently(place / "model", place / target, "int8", processors=target)
    older_one = shutil.copytree(place / "vnni", place / "older")
    model = onnx.load(older_one / "model.onnx", load_external_data=False)
    kept = {entry.key: entry.value for entry in model.metadata_props if entry.key != PROCESSORS_KEY}
    helper.set_model_props(model, kept)
    onnx.save(model, older_one / "model.onnx")
    manifest = json.loads((older_one / "manifest.json").read_text(encoding="utf-8"))
    del manifest["for"]
    digest = hashlib.sha256((older_one / "model.onnx").read_bytes()).hexdigest()
    manifest["files"]["model.onnx"]["sha256"] = digest
    (older_one / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return {name: place / name for name in (*get_args(Processors), "older")}


FOR = {
    "any": "any processor (weights of seven bits)",
    "vnni": "x86 processors with VNNI, and ARM (weights of eight bits)",
    "arm64": "ARM, and x86 processors with VNNI (weights of eight bits)",
    "older": "x86 processors with VNNI, and ARM (an older export, which does not say it: weights of eight "
    "bits)",
}


def folder_of(exported: Mapping[str, Path], name: str) -> Path:
    """A folder, if this processor could export it."""
    if name not in exported:
        pytest.skip(vnni.NO_VNNI)
    return exported[name]


def check(folder: Path, **options: Any) -> tuple[int, str, str]:
    """`headlight check`, in a process of its own."""
    command = [sys.executable, "-m", "export.check", str(folder), "--backend", "onnx", "--device", "cpu"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100, **options
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("name", FOR)
def test_a_graph_is_for_processors(name: str, exported: dict[str, Path]) -> None:
    """The manifest says which, `headlight check` says it in words, and the weights have as many bits."""
    folder = folder_of(exported, name)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest.get("for") == (None if name == "older" else name)
    model = onnx.load(folder / "model.onnx")
    weights = [t for t in model.graph.initializer if t.data_type == TensorProto.INT8 and len(t.dims) == 2]
    assert len(weights) == 12
    largest = {int(np.abs(numpy_helper.to_array(weight).astype(int)).max()) for weight in weights}
    assert largest == ({64} if name == "any" else {127})
    if vnni.has_exact_eight_bits():
        code, out, err = check(folder)
        assert code == 0, err
        assert f"\n  for       {FOR[name]}\n" in out


@pytest.mark.thorough
@pytest.mark.parametrize("instructions", ["avx2", "avx512"])
@pytest.mark.parametrize("name", FOR)
def test_a_graph_is_refused_where_its_sums_saturate(
    name: str, instructions: str, exported: dict[str, Path]
) -> None:
    """In one sentence, which says the way out; one for any processor runs on an older one."""
    folder = folder_of(exported, name)
    code, out, err = check(folder, env=older(instructions))
    if name == "any":
        assert code == 0, err
        assert f"\n  for       {FOR[name]}\n" in out
        return
    path = folder / "model.onnx"
    assert code == 1
    assert err == (
        f"check: {folder} cannot be served: {path} is for {FOR[name]}, but the processor has no VNNI "
        "(avx512_vnni or avx_vnni), without which sums of eight-bit products saturate: export it again with "
        "--quantize int8 --for any, or run it on a processor with VNNI.\n"
    )


VECTORS = """
import json, sys
from model.contract import Batch, SentenceWant, Want
from model.loading import load_model
tokenizer, backend = load_model(sys.argv[1], kind="onnx", device="cpu", threads=1)
encodings = tokenizer.encode(["a", "the man beats the boy", "hello world. " * 12, "boy"])
wants = [Want(SentenceWant(backend.info.pooling, (backend.info.layers,), True))] * len(encodings)
outputs = backend.run(Batch.pack(encodings, wants))
json.dump([output.sentence.tolist() for output in outputs], sys.stdout)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("instructions", OLDER)
def test_a_graph_for_any_processor_gives_the_same_vectors_on_all(
    instructions: str, exported: dict[str, Path]
) -> None:
    """Products of eight bits are equal to the last digit; what is left is rounding of the rest."""

    def vectors(environment: Mapping[str, str]) -> NDArray[np.float64]:
        command = [sys.executable, "-c", VECTORS, str(exported["any"])]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=100
        )
        return np.array(json.loads(done.stdout))

    np.testing.assert_allclose(vectors(older(instructions)), vectors(os.environ), atol=1e-5)


def test_without_vnni_the_exporter_refuses_eight_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before it begins, since it could not compare the graph."""
    write_bert(tmp_path / "model")
    capsys.readouterr()  # what writing the folder has said
    monkeypatch.setattr(precision, "has_exact_eight_bits", lambda: False)
    for target in ("vnni", "arm64"):
        place = tmp_path / "other"
        assert main([str(tmp_path / "model"), str(place), "--quantize", "int8", "--for", target]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err == (
            f"export: The graph for {target} cannot be compared here: {vnni.NO_VNNI}. Export it with --for "
            "any, or on a processor with VNNI.\n"
        )
        assert not place.exists()


@pytest.mark.parametrize(
    ("beside", "way_out"),
    [
        ({}, "run the graph in float32"),
        ({"model.onnx": np.float32}, "run model.onnx beside it"),
        ({"model_quantized.onnx": np.int8, "model_quint8_avx2.onnx": np.uint8}, "run model_quint8_avx2.onnx"),
    ],
)
def test_a_foreign_graph_is_refused_with_the_one_to_run_instead(
    beside: dict[str, Any], way_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is named for VNNI has signed weights of eight bits, and others may stand beside it."""
    for name, kind in beside.items():
        write_graph(tmp_path / name, np.full((64, 32), 100, kind))
    path = write_graph(tmp_path / "model_qint8_avx512_vnni.onnx", np.full((64, 32), 100, np.int8))
    opened = SimpleNamespace(metadata={})
    file = OnnxFile(path, tmp_path)
    monkeypatch.setattr(backend, "has_exact_eight_bits", lambda: True)
    assert backend.find_precision(opened, file, on_cpu=True).saturates  # type: ignore[arg-type]
    monkeypatch.setattr(backend, "has_exact_eight_bits", lambda: False)
    with pytest.raises(CheckpointError) as refused:
        backend.find_precision(opened, file, on_cpu=True)  # type: ignore[arg-type]
    sentence = str(refused.value)
    assert sentence.startswith(
        f"{path} is for x86 processors with VNNI, and ARM (signed weights of eight bits), but the processor "
        "has no VNNI"
    )
    assert f": {way_out}" in sentence
    assert sentence.endswith(", or run it on a processor with VNNI.")
