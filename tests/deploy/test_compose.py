"""`docker-compose.yml` with the override for plain machines, really run: headlight and Prometheus."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.deploy.containers import BASE, inspect, podman
from tests.deploy.tools import FACTS, run, tool
from tests.support.serving import ROOT

pytestmark = pytest.mark.deploy

PROJECT = "headlight-test"
PROMETHEUS = "localhost/prometheus:debian"
SERVICE, SCRAPER = "http://127.0.0.1:8000", "http://127.0.0.1:9090"
FILES = ("docker-compose.yml", "deploy/compose/plain.yml")


def compose(*arguments: str, check: bool = True) -> str:
    """Run podman-compose on both files."""
    files = [word for name in FILES for word in ("--file", name)]
    variables = {"PROMETHEUS_IMAGE": PROMETHEUS, "HEADLIGHT_DTYPE": "float32", "HEADLIGHT_MAX_INPUTS": "7"}
    return run(
        *(tool("podman-compose"), "--project-name", PROJECT, *files, *arguments),
        timeout=300,
        check=check,
        cwd=ROOT,
        env={**os.environ, **variables},
    )


@pytest.fixture(scope="module")
def prometheus_image(cpu_image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Debian's Prometheus as an image."""
    context = tmp_path_factory.mktemp("prometheus")
    for name in ("prometheus", "promtool"):
        (context / name).write_bytes(Path(tool(name)).read_bytes())
        (context / name).chmod(0o755)
    run(
        *(tool("buildah"), "build", "--isolation", "chroot", "--build-arg", f"BASE_IMAGE={BASE}"),
        *("--tag", PROMETHEUS, "--file", ROOT / "tests" / "deploy" / "prometheus.Dockerfile", context),
        timeout=300,
    )
    return PROMETHEUS


@pytest.fixture(scope="module")
def running(prometheus_image: str) -> Iterator[None]:
    """All that runs on a plain machine, and nothing of it afterwards."""
    down = ("down", "--volumes", "--timeout", "40")
    compose(*down, check=False)
    try:
        began = time.monotonic()
        compose("up", "--detach", "--no-build")
        wait_for(f"{SERVICE}/readyz")
        wait_for(f"{SCRAPER}/-/ready")
        FACTS.append(f"compose: both ready {time.monotonic() - began:.1f} s after `up`")
        yield
    finally:
        compose(*down, check=False)


def wait_for(url: str) -> None:
    """Ask until the answer is a 200."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if httpx.get(url, trust_env=False).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"{url} gave no 200:\n{compose('logs', check=False)}")


def container(service: str) -> str:
    """The name of a service's container."""
    return podman("ps", "--filter", f"label=com.docker.compose.service={service}", "--format", "{{.Names}}")


def test_prometheus_sees_the_service(running: None) -> None:
    """The target `headlight` is up, and its metrics can be asked for."""
    until = time.monotonic() + 60
    found: list[object] = []
    while not found and time.monotonic() < until:
        asked = httpx.get(
            f"{SCRAPER}/api/v1/query",
            params={"query": 'headlight_ready{job="headlight"} == 1'},
            trust_env=False,
        )
        found = asked.json()["data"]["result"]
        time.sleep(0.2)
    assert found
    targets = httpx.get(f"{SCRAPER}/api/v1/targets", trust_env=False).json()["data"]["activeTargets"]
    assert {t["labels"]["job"]: t["health"] for t in targets}["headlight"] == "up"


def test_settings_of_the_shell_reach_the_service(running: None) -> None:
    """What is set outside is set inside, and what is not has the image's default."""
    info = httpx.get(f"{SERVICE}/info", trust_env=False).json()
    assert info["limits"]["max_inputs"] == 7
    assert info["limits"]["max_body_bytes"] == 2 * 2**20
    assert [model["name"] for model in info["models"]] == ["all-MiniLM-L6-v2"]


@pytest.mark.parametrize("service", ["headlight", "prometheus"])
def test_services_are_hardened(running: None, service: str) -> None:
    """A read-only root, no capability, no way to gain one, and a limit of memory."""
    found = inspect(container(service))
    host = found["HostConfig"]
    assert host["ReadonlyRootfs"] is True
    assert host["Memory"] == 2**30
    assert found["EffectiveCaps"] in ([], None)
    assert "no-new-privileges" in host["SecurityOpt"][0]


@pytest.mark.parametrize("service", ["headlight", "prometheus"])
def test_services_are_healthy(running: None, service: str) -> None:
    """The health check that others wait for succeeds."""
    check = [tool("podman"), "healthcheck", "run", container(service)]
    done = subprocess.run(check, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_the_loopback_listens(running: None) -> None:
    """On the network of the machine, nobody else reaches what has no keys."""
    listening = run(tool("ss"), "--no-header", "--tcp", "--listening", "--numeric").splitlines()
    assert {line.split()[3] for line in listening} == {"127.0.0.1:8000", "127.0.0.1:9090"}
