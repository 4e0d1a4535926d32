"""Loading a model takes hardly more memory than the loaded model."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.references.families import write_model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is counted as Linux does")

_PROGRAM = """
import json, sys
from pathlib import Path

from model.loading import load_model
from model.memory import release_file_pages, trim_memory


def megabytes(name):
    (line,) = (line for line in open("/proc/self/status") if line.startswith(name + ":"))
    return int(line.split()[1]) // 1024


_, backend = load_model(sys.argv[1], device="cpu", dtype=sys.argv[2])
peak = megabytes("VmHWM")
release_file_pages(only_weights=True)
trim_memory()
print(json.dumps([peak, megabytes("VmRSS"), backend.info.kernels]))
"""
_SIZES: dict[str, Any] = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 12,
}


@pytest.mark.thorough
@pytest.mark.parametrize("stored", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("dtype", ["float32", "auto"])
def test_the_peak_of_loading_is_near_what_is_kept(tmp_path: Path, stored: str, dtype: str) -> None:
    """Matrices are checked, converted and laid out one by one, and what was read of the file is released."""
    written = write_model(tmp_path, "Bert", **_SIZES)
    written.model.to(getattr(torch, stored)).save_pretrained(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path), dtype], check=True, capture_output=True, text=True
    )
    peak, rest, kernels = json.loads(done.stdout)
    if kernels is None:
        pytest.skip("without native kernels matrices are laid out by PyTorch")
    assert peak <= 1.25 * rest, f"{peak} MiB at the peak, {rest} at rest"
