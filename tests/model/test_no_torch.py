"""An exported model is served without PyTorch, though it is installed here."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from model.checkpoints.source import resolve
from tests.references.checkpoints import MINILM
from tests.support.backends import Kept
from tests.support.serving import ROOT, Service, serve

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def exported(kept: Kept) -> Iterator[Service]:
    """A service of the embedded model, exported, that has to find out by itself what runs it."""
    with serve(afresh=True, model=kept.folder(resolve(MINILM), "onnx"), threads=1) as service:
        yield service


def test_nothing_of_pytorch_is_loaded(exported: Service) -> None:
    """After answers of every kind, none of its libraries is in the process, and ONNX Runtime's is."""
    assert len(exported.encode("a text", outputs=["sentence", "tokens"])["data"]) == 1
    for options in ({}, {"weights": "value_norm"}, {"aggregate": "rollout"}, {"summary": True}):
        assert exported.attention("a text", **options)["data"]
    exported.http.get("/metrics").raise_for_status()
    exported.http.get("/info").raise_for_status()
    maps = Path(f"/proc/{exported.process.pid}/maps").read_text(encoding="utf-8")
    loaded = {line.split()[-1] for line in maps.splitlines() if ".so" in line}
    assert any("onnxruntime" in path for path in loaded)
    assert not [path for path in loaded if "torch" in path]


def run_python(program: str, **variables: str) -> str:
    """Run a program in a process of its own, without the runtime's variable unless it is given."""
    kept = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    command = [sys.executable, "-c", program]
    ended = subprocess.run(
        command, cwd=ROOT, env=kept | variables, capture_output=True, text=True, timeout=60, check=True
    )
    return ended.stdout.strip()


@pytest.mark.parametrize(
    "module", ["model.onnx.backend", "model.loading", "service.app", "service.command_line"]
)
def test_modules_that_need_no_pytorch_import_none(module: str) -> None:
    """Importing it takes seconds and hundreds of megabytes."""
    loaded = "[name for name in sys.modules if name.partition('.')[0] in ('torch', 'transformers', 'export')]"
    assert run_python(f"import sys, {module}; print({loaded})") == "[]"


@pytest.mark.parametrize("module", ["export.check.__main__", "export.bench.__main__"])
def test_commands_that_need_no_pytorch_import_none(module: str) -> None:
    """They run where only ONNX Runtime is installed."""
    loaded = (
        "[name for name in sys.modules if name.partition('.')[0] in ('torch', 'transformers', 'service')]"
    )
    assert run_python(f"import sys, {module}; print({loaded})") == "[]"


WHEN_IMPORTED = """
import os, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "onnxruntime":
            print(os.environ.get("ORT_DISABLE_TELEMETRY"))

sys.meta_path.insert(0, Watch())
import model.onnx.backend
print("onnxruntime" in sys.modules)
"""


@pytest.mark.parametrize(("given", "found"), [({}, "1"), ({"ORT_DISABLE_TELEMETRY": "0"}, "0")])
def test_the_runtime_is_told_to_send_nothing_before_it_is_imported(given: dict[str, str], found: str) -> None:
    """It looks once, when it is imported. Who sets the variable has it as it was set."""
    assert run_python(WHEN_IMPORTED, **given).split() == [found, "True"]
