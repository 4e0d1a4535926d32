"""A graph that cannot be served is refused in one sentence that names the file and the way out."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from model.errors import CheckpointError
from model.loading import load_model
from model.onnx import names as graph
from model.onnx.file import GRAPH, MANIFEST, find_graph
from tests.references.checkpoints import write_bert
from tests.support.backends import export_folder
from tests.support.serving import free_port, run_command

pytestmark = pytest.mark.thorough

DATA = f"{GRAPH}.data"
Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two layers and hidden size 32, as it is exported, with a manifest."""
    place = tmp_path_factory.mktemp("graphs")
    write_bert(place / "source")
    folder = export_folder(place / "source", place / "graph")
    files = {
        name: {"sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest()} for name in (GRAPH, DATA)
    }
    (folder / MANIFEST).write_text(json.dumps({"files": files}))
    return folder


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return shutil.copytree(exported, tmp_path / "model")


def refused(folder: Path) -> str:
    """The sentence in which a folder is refused."""
    with pytest.raises(CheckpointError) as caught:
        load_model(str(folder), kind="onnx", device="cpu")
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert not sentence.endswith("..")
    assert str(folder) in sentence
    assert "[ONNXRuntimeError]" not in sentence
    return sentence


# ------------------------------------------------------------------------------------ damaged files


def cut(name: str, share: float) -> Damage:
    """Keep only the beginning of a file."""

    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * share)])

    return damage


def write(name: str, content: bytes) -> Damage:
    """Put something else in the place of a file."""

    def damage(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return damage


def remove(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
NO_GRAPH = "model.onnx is damaged or is not an ONNX file: export the model again."
NO_WEIGHTS = "weights in a separate file, which is missing or damaged: export the model again."


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut(GRAPH, 0.5), NO_GRAPH),
        (cut(GRAPH, 0.99), NO_GRAPH),
        (write(GRAPH, b""), NO_GRAPH),
        (write(GRAPH, POINTER), NO_GRAPH),
        (write(GRAPH, b"<!doctype html>"), NO_GRAPH),
        (write(GRAPH, bytes(1000)), NO_GRAPH),
        (remove(DATA), NO_WEIGHTS),
        (cut(DATA, 0.5), NO_WEIGHTS),
        (write(DATA, b""), NO_WEIGHTS),
    ],
)
def test_a_file_that_is_not_whole_is_refused(folder: Path, damage: Damage, said: str) -> None:
    """Also without a manifest: the runtime finds it, and what it says of itself is left out."""
    (folder / MANIFEST).unlink()
    damage(folder)
    assert said in refused(folder)


def flip(name: str) -> Damage:
    """Change one bit."""

    def damage(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / name).write_bytes(content)

    return damage


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            flip(GRAPH),
            "model.onnx is damaged or was changed; its SHA-256 differs from the one in manifest.json",
        ),
        (
            flip(DATA),
            "model.onnx.data is damaged or was changed; its SHA-256 differs from the one in manifest.json",
        ),
        (remove(DATA), "model.onnx.data is missing: export the model again."),
        (write(MANIFEST, b"{}"), "manifest.json has no list of files: export the model again."),
        (write(MANIFEST, b'{"files": {"model.onnx": 7}}'), "model.onnx is damaged or was changed"),
        (write(MANIFEST, b"[]"), "manifest.json holds a list, not a dict."),
        (write(MANIFEST, b"{"), "manifest.json cannot be read: "),
    ],
)
def test_files_are_those_of_the_manifest(folder: Path, damage: Damage, said: str) -> None:
    """A single bit is found, wherever it is, before anything is run; the file that has it is named."""
    damage(folder)
    assert said in refused(folder)


def test_a_file_is_summed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many names a manifest has for it: a hundred thousand sums of a gigabyte take days."""
    sums = json.loads((folder / MANIFEST).read_text())["files"]
    names = {f"{i}/{name}": facts for i in range(100) for name, facts in sums.items()}
    (folder / MANIFEST).write_text(json.dumps({"files": names}))
    summed, digest = [], hashlib.file_digest

    def counted(file: Any, kind: str) -> Any:
        summed.append(file.name)
        return digest(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    load_model(str(folder), kind="onnx", device="cpu")
    assert len(summed) == len(sums)


def test_a_whole_folder_is_served(folder: Path) -> None:
    """With its manifest and without; its graph may be named too."""
    for _ in range(2):
        _, backend = load_model(str(folder), kind="onnx", device="cpu")
        assert backend.info.exposes_attention
        (folder / MANIFEST).unlink(missing_ok=True)
    assert find_graph(folder) == find_graph(folder / GRAPH)
    load_model(str(folder / GRAPH), kind="onnx", device="cpu")


# -------------------------------------------------------------------------------------- other graphs


def change(how: Callable[[onnx.ModelProto], None]) -> Damage:
    """Write the graph anew, changed."""

    def damage(folder: Path) -> None:
        model = onnx.load(folder / GRAPH, load_external_data=False)
        how(model)
        (folder / GRAPH).write_bytes(model.SerializeToString())

    return damage


def newer_ir(model: onnx.ModelProto) -> None:
    model.ir_version = 99


def newer_operators(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 99


def newer_format(model: onnx.ModelProto) -> None:
    (entry,) = (entry for entry in model.metadata_props if entry.key == graph.FORMAT_KEY)
    entry.value = "2"


def unknown_operator(model: onnx.ModelProto) -> None:
    model.graph.node[0].op_type = "Nonsense"


def config(**fields: int) -> Damage:
    """Change config.json."""

    def damage(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return damage


def add(folder: Path) -> None:
    """Write a graph that adds two numbers."""
    a, b, c = (helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in "abc")
    save(helper.make_graph([helper.make_node("Add", ["a", "b"], ["c"])], "add", [a, b], [c]), folder)


def look_up(inputs: list[str], output: str, size: int = 32) -> Damage:
    """Write a graph that looks tokens up in a table, and knows no attention."""

    def damage(folder: Path) -> None:
        declared = [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "length"]) for n in inputs]
        given = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", "length", size])
        table = numpy_helper.from_array(np.zeros((92, size), np.float32), "table")
        node = helper.make_node("Gather", ["table", graph.INPUT_IDS], [output])
        save(helper.make_graph([node], "look_up", declared, [given], [table]), folder)

    return damage


def save(made: onnx.GraphProto, folder: Path) -> None:
    operators = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(made, ir_version=10, opset_imports=operators), folder / GRAPH)


IDS, MASK = graph.INPUT_IDS, graph.ATTENTION_MASK


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (change(newer_ir), "model.onnx needs a newer ONNX Runtime than 1."),
        (change(newer_operators), "model.onnx needs a newer ONNX Runtime than 1."),
        (
            change(newer_format),
            "model.onnx has format 2, but this release reads format 1: export ",
        ),
        (change(unknown_operator), "which says: This is an invalid model. In Node"),
        (config(num_hidden_layers=3), "model.onnx does not have the 3 layers of "),
        (config(num_hidden_layers=1), "model.onnx does not have the 1 layers of "),
        (config(hidden_size=48), "model.onnx returns state_0 with 32 components, but "),
        (config(num_attention_heads=2), "model.onnx returns queries_0 with 8 components, but "),
        (add, "model.onnx takes a, b and returns c; a text encoder must take "),
        (
            look_up([IDS], "last_hidden_state"),
            "model.onnx takes input_ids and returns last_hidden_state; a text",
        ),
        (
            look_up([IDS, MASK], "logits"),
            "model.onnx takes input_ids, attention_mask and returns logits; a text",
        ),
        (look_up([IDS, MASK, "pixels"], "last_hidden_state"), "takes input_ids, attention_mask, pixels and"),
        (
            look_up([IDS, MASK], "last_hidden_state", 48),
            "model.onnx returns hidden states with 48 components, but ",
        ),
    ],
)
def test_a_graph_of_something_else_is_refused(folder: Path, damage: Damage, said: str) -> None:
    """Of a newer release, of another model, or of no text encoder at all."""
    (folder / MANIFEST).unlink()
    damage(folder)
    assert said in refused(folder)


@pytest.mark.parametrize(
    ("damage", "said"),
    [(flip(DATA), "model.onnx.data is damaged"), (add, "takes a, b")],
)
def test_the_command_line_says_the_same(folder: Path, damage: Damage, said: str) -> None:
    """Exit code 1, and as the last line the sentence, with no traceback."""
    damage(folder)
    if "takes" in said:
        (folder / MANIFEST).unlink()
    code, _, err = run_command("--model", str(folder), port=free_port(), backend="onnx")
    last = err.splitlines()[-1]
    assert code == 1
    assert last == f"headlight: {refused(folder)}"
    assert said in last
    assert "Traceback" not in err
