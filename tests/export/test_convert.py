"""Folders with pickled weights are copied with the same weights as safetensors, and run no code."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from export.convert import main
from model.checkpoints.checkpoint import load_checkpoint
from service import command_line
from tests.references.checkpoints import write_bert
from tests.support.serving import ROOT


@pytest.fixture
def pickled(tmp_path: Path) -> Path:
    """A classifier with pickled weights, and what its training left."""
    folder = tmp_path / "it's old"
    write_bert(folder, architecture="BertForSequenceClassification")
    tensors = load_file(folder / "model.safetensors")
    torch.save(tensors, folder / "pytorch_model.bin")
    torch.save({"step": 1}, folder / "optimizer.pt")
    (folder / "model.safetensors").rename(tmp_path / "before.safetensors")
    return folder


@pytest.mark.thorough
def test_the_copy_is_the_model(pickled: Path, tmp_path: Path) -> None:
    """Bit by bit; its classifier is kept, and nothing that it was trained with."""
    command = [sys.executable, "-m", "export.convert", str(pickled), str(tmp_path / "new")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "tensors are the same. Serve them with `headlight --model" in done.stderr
    before, after = load_file(tmp_path / "before.safetensors"), load_file(tmp_path / "new/model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not [*(tmp_path / "new").glob("*.bin"), *(tmp_path / "new").glob("*.pt")]
    checkpoint = load_checkpoint(tmp_path / "new")
    assert checkpoint.predictor is not None
    assert (pickled / "pytorch_model.bin").exists()


def test_the_command_is_a_program_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It replaces the process of `headlight`, which imports no torch."""
    ran: list[list[str]] = []

    def execute(_: str, command: list[str]) -> None:
        ran.append(command)
        raise SystemExit

    monkeypatch.setattr(os, "execv", execute)
    with pytest.raises(SystemExit):
        command_line.run(["convert", "old", "new", "--overwrite"])
    assert ran == [[sys.executable, "-P", "-m", "export.convert", "old", "new", "--overwrite"]]


def test_without_torch_it_says_how_to_install_the_right_build(
    pickled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the README does: pip alone would take the one with CUDA on Linux."""
    monkeypatch.setattr("export.convert.find_spec", lambda _: None)
    assert main([str(pickled), str(tmp_path / "new")]) == 1
    command = f"`uv pip install --python {sys.prefix} --torch-backend auto torch==2.13.0`"
    assert command in capsys.readouterr().err
    assert command.partition("--torch-backend")[2] in (ROOT / "README.md").read_text().replace(" -r", "`")


class Code:
    """What runs a command when it is read as a pickle."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.place),)


@pytest.mark.parametrize("how", ["zip", "plain"])
def test_code_in_a_pickle_does_not_run(how: str, pickled: Path, tmp_path: Path) -> None:
    """It is refused, in either form of file, and nothing is written."""
    content = {"weight": torch.zeros(1), "more": Code(tmp_path / "ran")}
    file = pickled / "pytorch_model.bin"
    if how == "zip":
        torch.save(content, file)
    else:
        file.write_bytes(pickle.dumps(content))
    assert main([str(pickled), str(tmp_path / "new")]) == 1
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda folder: (folder / "pytorch_model.bin").unlink(), "has no pytorch_model.bin to convert: name"),
        (
            lambda folder: save_file({}, folder / "a.safetensors"),
            "has safetensors already: serve it as it is",
        ),
        (
            lambda folder: (folder / "modules.json").write_text('[{"path": "", "type": "a.B"}]'),
            "old/modules.json",
        ),
        (lambda folder: torch.save([1], folder / "pytorch_model.bin"), "has no table of tensors"),
        (lambda folder: torch.save({}, folder / "pytorch_model.bin"), "but the weights lack pooler"),
        (
            lambda folder: (folder / "pytorch_model.bin").write_bytes(b"PK"),
            "is damaged, or contains more than",
        ),
    ],
)
def test_what_cannot_be_converted_is_told(
    change: Any, reason: str, pickled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a sentence, without a folder that is half written."""
    change(pickled)
    assert main([str(pickled), str(tmp_path / "new")]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("convert: ")
    assert reason in said
    assert not (tmp_path / "new").exists()
