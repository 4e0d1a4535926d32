"""Within each memory limit that is shipped, the service lives through the worst legal requests."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from benchmarks.kit.memory_limit import MemoryLimit, memory_limit
from benchmarks.stress.worst_attacks import attacks
from benchmarks.stress.worst_requests import ANSWERED, MOST, besiege, service
from model.checkpoints.source import resolve
from tests.deploy.running import HARDENED
from tests.references.checkpoints import MINILM
from tests.support.backends import export_folder
from tests.support.serving import ROOT

pytestmark = pytest.mark.deploy

MINUTES = 0.5
"""Twice: stalled bodies leave others little room."""
_UNITS = {"m": 2**20, "g": 2**30, "Mi": 2**20, "Gi": 2**30}


def in_bytes(text: str) -> int:
    """Read 512m, 1g, 1Gi."""
    number = text.rstrip("migMG")
    return int(number) * _UNITS[text[len(number) :]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the image for CPUs serves."""
    return export_folder(resolve(MINILM), tmp_path_factory.mktemp("graph") / MINILM)


def test_the_limits_of_this_file_are_those_that_are_shipped() -> None:
    """Of the documented command, of Compose and of Kubernetes."""
    [option] = [option for option in HARDENED if option.startswith("--memory=")]
    assert in_bytes(option.removeprefix("--memory=")) == 512 * 2**20
    compose = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert "mem_limit: ${MEMORY_LIMIT:-1g}" in compose
    deployment = yaml.safe_load((ROOT / "deploy/kubernetes/base/deployment.yaml").read_text(encoding="utf-8"))
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert in_bytes(container["resources"]["limits"]["memory"]) == 2**30


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Iterator[MemoryLimit]:
    """A control group of so many MiB."""
    if os.geteuid() != 0:
        pytest.fail("Memory is limited by root here: run make test-deploy as root.", pytrace=False)
    with memory_limit(request.param * 2**20) as made:
        yield made


@pytest.mark.parametrize(
    ("group", "backend"), [(512, "onnx"), (1024, "onnx"), (1024, "torch")], indirect=["group"]
)
def test_the_worst_requests_within_a_limit(group: MemoryLimit, backend: str, exported: Path) -> None:
    """The process lives, a tenth of its memory stays free, and an ordinary client is answered."""
    model = str(exported) if backend == "onnx" else None
    # As much work as may be waits: the queue is not what holds memory here.
    with service(group, model, HEADLIGHT_MAX_QUEUE_TOKENS="1000000") as server:
        kinds = list(attacks())
        first = besiege(server, group, [kind for kind in kinds if kind != "stalled bodies"], MINUTES)
        seen = besiege(server, group, kinds, MINUTES)
        assert server.alive
        assert group.kills == 0
        share = max(first.working_bytes, seen.working_bytes) / group.limit
        seen.ordinary += first.ordinary
        answered = seen.ordinary["200"] / max(1, seen.ordinary.total())
        sys.stdout.write(f"{backend} in {group.limit >> 20} MiB: {share:.0%}, {answered:.1%} answered\n")
        assert share <= MOST
        assert seen.ordinary.total() > 10
        assert answered >= ANSWERED, seen.ordinary
        assert any(outcome.startswith("200") for _, outcome in first.attacks)
