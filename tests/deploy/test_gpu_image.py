"""The image for CUDA, upon a base without it: all but the arithmetic."""

from collections.abc import Iterator

import pytest

from tests.deploy.containers import build, podman, prepare
from tests.deploy.network import own_network
from tests.deploy.running import HARDENED, running

pytestmark = pytest.mark.deploy


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """The image, and a network of one's own."""
    prepare()
    built = build("gpu")
    with own_network():
        yield built


def test_without_a_gpu_it_ends_with_a_sentence(image: str) -> None:
    """It does not silently run on the CPU, where one was to be had."""
    with running(image, wait=False) as service:
        assert service.exit_code() == 1
        assert "headlight: " in service.log()
        assert "Traceback" not in service.log()


def test_its_runtime_is_that_of_cuda(image: str) -> None:
    """The other package of ONNX Runtime is not beside it: they overwrite each other's files."""
    look = (
        "from importlib.metadata import distributions as d; print(*(p.name for p in d() if 'onnx' in p.name))"
    )
    assert podman("run", "--rm", "--entrypoint", "python", image, "-c", look) == "onnxruntime-gpu"


def test_it_answers_on_a_cpu_where_it_is_told_to(image: str) -> None:
    """The packages, the exported model and the entry point fit together."""
    options = (*HARDENED, "--memory=1g")
    with running(image, options=options, HEADLIGHT_DEVICE="cpu") as service:
        assert service.attention("hello world")["model"] == "all-MiniLM-L6-v2"
        assert service.is_healthy()
        assert service.status()["Uid"].split() == ["10001"] * 4
        assert service.stop() == 0
