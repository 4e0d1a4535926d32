"""What an exported folder predicts with is checked when it is loaded, and not by the first request."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from model.checkpoints.exported_prediction import FILE
from model.errors import CheckpointError
from model.loading import load_model
from model.onnx.file import MANIFEST
from tests.references.checkpoints import write_bert
from tests.references.classifiers import label_fields
from tests.support.exporting import export_silently
from tests.support.hostile_folders import NO_FILES

pytestmark = pytest.mark.thorough

KINDS = ("Sequence", "Token")
Tensors = dict[str, Any]
Change = Callable[[Tensors, Tensors], None]


@pytest.fixture(scope="module", params=KINDS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of three labels, of texts or of their tokens, as a graph."""
    place = tmp_path_factory.mktemp("graphs")
    architecture = f"BertFor{request.param}Classification"
    write_bert(place / "source", architecture=architecture, **label_fields(["a", "b", "c"]))
    export_silently(place / "source", place / "graph")
    return place / "graph"


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_model(str(folder), kind="onnx", device="cpu")
    return str(caught.value)


def change(folder: Path, how: Change) -> None:
    """Change the tensors of what a folder predicts with, and how they are described."""
    with safe_open(folder / FILE, framework="np") as file:
        described = json.loads(file.metadata()["headlight"])
    tensors = {name: array.copy() for name, array in load_file(folder / FILE).items()}
    how(tensors, described)
    save_file(tensors, folder / FILE, {"headlight": json.dumps(described)})


def last(tensors: Tensors, name: str) -> str:
    """The name of a tensor of the last layer."""
    return max(tensor for tensor in tensors if tensor.endswith(name))


def spoil_bias(tensors: Tensors, _: Tensors) -> None:
    tensors[last(tensors, "bias")][0] = np.nan


def narrow(tensors: Tensors, _: Tensors) -> None:
    name = last(tensors, "weight")
    tensors[name] = np.ascontiguousarray(tensors[name][:, :-1])


def forget_label(_: Tensors, described: Tensors) -> None:
    described["labels"].pop()


def lengthen_label(_: Tensors, described: Tensors) -> None:
    described["labels"][0] = "a" * 10**6


def overflow(tensors: Tensors, _: Tensors) -> None:
    tensors[last(tensors, "weight")][:] *= np.float32(1e38)
    tensors[last(tensors, "bias")][:] = np.finfo(np.float32).max


@pytest.mark.parametrize(
    ("how", "what"),
    [
        (spoil_bias, "have a NaN or an infinity"),
        (narrow, "cannot run a text"),
        (forget_label, "it names 2 labels, but has 3 outputs"),
        (lengthen_label, "a label has 1000000 characters; the limit is 1000"),
        (overflow, "gives a NaN or an infinity for a plain text"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_a_damaged_classifier_ends_the_start(how: Change, what: str, exported: Path, tmp_path: Path) -> None:
    """It would load, and every request for its labels would fail."""
    folder = shutil.copytree(exported, tmp_path / "model")
    (folder / MANIFEST).unlink()
    change(folder, how)
    assert what in refusal(folder)


@pytest.mark.parametrize("what", NO_FILES)
def test_what_is_no_file_ends_the_start(what: str, exported: Path, tmp_path: Path) -> None:
    """A FIFO in its place would have the service wait for ever."""
    folder = shutil.copytree(exported, tmp_path / "model")
    (folder / MANIFEST).unlink()
    NO_FILES[what](FILE)(folder)
    assert FILE in refusal(folder)


def test_a_description_without_end_ends_the_start(exported: Path, tmp_path: Path) -> None:
    """Lists in lists, deeper than they can be read."""
    folder = shutil.copytree(exported, tmp_path / "model")
    (folder / MANIFEST).unlink()
    tensors = load_file(folder / FILE)
    save_file(tensors, folder / FILE, {"headlight": "[" * 200_000})
    assert f"{FILE} cannot be read: " in refusal(folder)


def test_its_manifest_knows_it(exported: Path, tmp_path: Path) -> None:
    """Weights that are other numbers than the exported ones are found by their sum."""
    folder = shutil.copytree(exported, tmp_path / "model")
    change(folder, lambda tensors, _: tensors[last(tensors, "weight")].fill(0))
    assert f"{FILE} is damaged or was changed" in refusal(folder)
