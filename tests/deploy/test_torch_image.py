"""The image with PyTorch: it serves checkpoints, and exports them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.contract.test_encode import TEXTS, assert_columns, run_reference, unit
from tests.deploy.containers import beyond_base, build, podman, prepare
from tests.deploy.network import own_network
from tests.deploy.running import HARDENED, running
from tests.deploy.tools import FACTS
from tests.references.checkpoints import Reference
from tests.references.comparing import distance

pytestmark = pytest.mark.deploy

ROOMY = (*HARDENED, "--memory=1g")


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """The image, and a network of one's own."""
    prepare()
    built = build("torch")
    with own_network():
        yield built


def test_it_answers_with_the_numbers_of_the_reference(image: str, reference: Reference) -> None:
    """Hardened as the other, the embedded checkpoint gives the vector and the maps of `transformers`."""
    FACTS.append(f"image torch: {beyond_base(image) / 1e6:.0f} MB beyond its base")
    columns, hidden, maps = run_reference(reference, TEXTS[1])
    with running(image, options=ROOMY, HEADLIGHT_DTYPE="float32") as service:
        (model,) = service.http.get("/info").json()["models"]
        assert model["backend"] == "torch"
        can = torch.cpu.get_capabilities()
        known = {"avx512": "avx512_f", "avx2": "avx2", "neon": "neon"}
        assert model["kernels"] == next((name for name, has in known.items() if can.get(has)), None)
        (item,) = service.encode(TEXTS[1])["data"]
        assert_columns(item, columns)
        assert distance(item["embedding"], unit(hidden[-1].mean(0))) <= 1e-5
        (item,) = service.attention(TEXTS[1], decimals=9)["data"]
        assert distance(item["attention"], maps) <= 1e-5
        assert service.status()["Uid"].split() == ["10001"] * 4
        assert service.is_healthy()
        FACTS.append(f"image torch: {int(service.status()['VmHWM'].split()[0]) / 1024:.0f} MiB of memory")
        assert service.stop() == 0


def test_a_checkpoint_of_one_s_own_is_mounted(image: str, prompted_folder: Path, tmp_path: Path) -> None:
    """A folder of safetensors that user 10001 may read is served under the name that it is given."""
    folder = shutil.copytree(prompted_folder, tmp_path / "own")
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    volume = f"--volume={folder}:/models/own:ro"
    with running(image, options=(*ROOMY, volume), HEADLIGHT_MODEL="own=/models/own") as service:
        assert service.encode("the man")["model"] == "own"


def test_it_has_no_pip(image: str) -> None:
    """Neither pip nor a compiler comes along."""
    look = "import importlib.util, shutil; print(importlib.util.find_spec('pip'), shutil.which('cc'))"
    assert podman("run", "--rm", "--entrypoint", "python", image, "-c", look) == "None None"
