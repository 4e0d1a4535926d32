"""Devices and dtypes that cannot be had are refused before PyTorch is imported."""

import subprocess
import sys

import pytest

from tests.support.serving import ROOT

PROGRAM = """
import sys
from model.errors import Unsupported
from model.loading import load_model
try:
    load_model("all-MiniLM-L6-v2", kind="torch", device=sys.argv[1], dtype=sys.argv[2])
except Unsupported as error:
    print(error, error.field, "torch" in sys.modules, sep="|")
"""


@pytest.mark.parametrize(
    ("device", "dtype", "told"),
    [
        ("cuda:99", "auto", "device cuda:99 does not exist: this machine has |CUDA device(s).|device"),
        ("cpu", "float16", "float16 runs only on CUDA; on a CPU, choose float32 or bfloat16.|dtype"),
    ],
)
def test_what_is_impossible_is_refused_at_once(device: str, dtype: str, told: str) -> None:
    """In a process that has not loaded it: that takes seconds."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, device, dtype],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    start, *_, end = told.split("|")
    assert done.stdout.startswith(start)
    assert done.stdout.endswith(f"|{end}|False\n")
