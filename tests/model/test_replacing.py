"""What docs/load.md says of files that change under a service is what happens."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from model.checkpoints.source import EMBEDDED, resolve
from tests.support.serving import ROOT

pytestmark = pytest.mark.thorough

PROGRAM = """
import os, sys
from pathlib import Path
import numpy as np
from model.loading import load_model
from model.contract import Batch, SentenceWant, Want
folder, how = Path(sys.argv[1]), sys.argv[2]
file = folder / "model.safetensors"
tokenizer, backend = load_model(str(folder), device="cpu", dtype="float32")
def vector(text):
    return backend.run(Batch.pack(tokenizer.encode([text]), [Want(SentenceWant(layers=(6,)))]))[0].sentence
before = vector("an apple a day")
if how == "truncated":
    os.truncate(file, 4096)
elif how == "overwritten":
    with file.open("r+b") as opened:
        size = file.stat().st_size
        opened.seek(size // 4)
        opened.write(np.random.default_rng(0).normal(size=size // 8).astype(np.float32).tobytes())
else:
    (folder / "new").write_bytes(bytes(4096))
    (folder / "new").replace(file)
print("same" if np.array_equal(before, vector("an apple a day")) else "wrong", flush=True)
print("same" if np.isfinite(vector("zebra quantum harbour")).all() else "wrong", flush=True)
"""


def after(how: str, tmp_path: Path) -> tuple[int, str]:
    """Serve a model, change its weights, and ask again: how the process ends, and what it says."""
    folder = shutil.copytree(resolve(EMBEDDED), tmp_path / "model")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), how],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout


def test_a_file_that_is_cut_off_ends_the_process(tmp_path: Path) -> None:
    """Its pages are gone: SIGBUS, which nothing can catch."""
    code, _ = after("truncated", tmp_path)
    assert code == -signal.SIGBUS


def test_a_file_that_is_written_over_gives_wrong_vectors(tmp_path: Path) -> None:
    """In silence: this is why a model is never changed in place."""
    code, said = after("overwritten", tmp_path)
    assert code == 0
    assert said.startswith("wrong")


def test_a_file_that_is_renamed_over_another_changes_nothing(tmp_path: Path) -> None:
    """The old one lives as long as the process that has it mapped."""
    assert after("renamed", tmp_path) == (0, "same\nsame\n")
