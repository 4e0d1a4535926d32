"""`headlight check` says of a folder what the service does with it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from export.check.__main__ import main
from model.errors import ModelError
from model.keys.files import FILES
from model.loading import load_model
from tests.references.checkpoints import MINILM, write_bert
from tests.support.hostile_folders import write_whole
from tests.support.serving import ROOT


def edit(file: Path, **fields: Any) -> None:
    content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.write_text(json.dumps(content | fields), encoding="utf-8")


def write_classifier(folder: Path) -> None:
    write_bert(folder, architecture="BertForSequenceClassification")


GOOD: dict[str, tuple[Callable[[Path], object], str]] = {
    "plain": (write_bert, "by mean"),
    "sentence-transformers": (write_whole, "vectors   8 numbers by mean, of unit length"),
    "a classifier": (write_classifier, "predicts  classification"),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_folder_that_is_served_is_described(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its family, how it runs, its vectors and memory, and each file with its settings."""
    write, told = GOOD[name]
    write(tmp_path)
    assert main([str(tmp_path), "--dtype", "float32"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{tmp_path} can be served.\n")
    assert "bert: 2 layers" in out
    assert "float32 on cpu by torch" in out
    assert told in out
    assert "memory" in out
    assert "config.json: " in out
    assert "  used      model_type: " in out


REFUSED = next(name for name, key in FILES["config.json"].items() if key.verdict == "refused")
BAD: dict[str, Callable[[Path], object]] = {
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "no config": lambda folder: (folder / "config.json").unlink(),
    "no tokenizer": lambda folder: (folder / "tokenizer.json").write_text("{"),
    "another family": lambda folder: edit(folder / "config.json", model_type="llama"),
    "a setting that is refused": lambda folder: edit(folder / "config.json", **{REFUSED: {"a": 1}}),
    "an activation that nobody has": lambda folder: edit(folder / "config.json", hidden_act="swoosh"),
    "adapters": lambda folder: edit(folder / "adapter_config.json", r=8),
    "sizes that differ from the weights": lambda folder: edit(folder / "config.json", hidden_size=36),
}


@pytest.mark.parametrize("name", BAD)
def test_a_folder_that_is_not_served_has_the_same_reason(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, and the sentence with which the service would end."""
    write_bert(tmp_path)
    BAD[name](tmp_path)
    with pytest.raises(ModelError) as refused:
        load_model(str(tmp_path))
    capsys.readouterr()  # what writing the folder has said
    assert main([str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert err == f"check: {tmp_path} cannot be served: {refused.value}\n"
    assert "can be served" not in out
    if name == "a setting that is refused":
        assert f"  refused   {REFUSED}: is " in out


def test_a_setting_that_nothing_reads_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is served, as by the service with a warning."""
    write_bert(tmp_path)
    edit(tmp_path / "config.json", attention_in_reverse=True)
    assert main([str(tmp_path)]) == 0
    assert "  unknown   attention_in_reverse: nothing reads it\n" in capsys.readouterr().out


STAND_IN = """
import numpy as np
from pathlib import Path
from tests.references.checkpoints import Reference

class SentenceTransformer:
    def __init__(self, folder, device):
        assert device == "cpu"
        self.reference = Reference.load(Path(folder))

    def encode(self, texts, prompt):
        assert (len(texts), prompt) == (20, "")
        return np.stack([self.vector(text) for text in texts])

    def vector(self, text):
        columns = self.reference.tokenize(text, 64)
        states, _ = self.reference.run(columns["input_ids"], columns["token_type_ids"])
        return states[-1].mean(0) * SIGNS
"""


@pytest.mark.parametrize(("signs", "code"), [("1", 0), ("np.sign(np.arange(32) - 15.5)", 1)])
def test_vectors_are_compared_with_those_of_sentence_transformers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    signs: str,
    code: int,
) -> None:
    """Of twenty texts, those that `transformers` computes; others are told, with exit code 1."""
    package = tmp_path / "path" / "sentence_transformers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(STAND_IN.replace("SIGNS", signs), encoding="utf-8")
    monkeypatch.syspath_prepend(package.parent)
    write_bert(tmp_path / "model")
    try:
        assert main([str(tmp_path / "model"), "--dtype", "float32"]) == code
    finally:
        sys.modules.pop("sentence_transformers", None)
    out, err = capsys.readouterr()
    assert ("on 20 texts: cosines of 1.000000 or more" in out) == (code == 0)
    assert ("can be served, but its vectors differ" in err) == (code == 1)


def test_the_command_line_has_it() -> None:
    """`headlight check` with the embedded model, and `headlight help check`."""
    for words, told in ((["check", MINILM], "can be served."), (["help", "check"], "usage: headlight check")):
        done = subprocess.run(
            [sys.executable, "-m", "service", *words],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},  # where the command finds it, which leaves out cwd
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert told in done.stdout
