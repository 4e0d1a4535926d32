"""What a release has for services without PyTorch."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.support.serving import ROOT, answered, serve

pytestmark = pytest.mark.thorough


def test_the_archive_of_the_embedded_model_is_served_under_its_name(tmp_path: Path) -> None:
    """`make graph` writes it; unpacked, it runs on ONNX Runtime, with the attention of the checkpoint."""
    command = ["make", "graph", "--assume-old=.venv/.test", f"DIST={tmp_path}"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300, capture_output=True)
    with tarfile.open(tmp_path / "all-MiniLM-L6-v2.tar.gz") as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    with serve(model=tmp_path / "unpacked" / "all-MiniLM-L6-v2") as service:
        (model,) = answered(service.http.get("/info"))["models"]
        assert (model["name"], model["backend"], model["attention"]) == ("all-MiniLM-L6-v2", "onnx", True)
        assert service.attention("a text", layers=[0], heads=[0])["data"]
