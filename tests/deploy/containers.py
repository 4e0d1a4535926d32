"""Builds images with buildah and runs them with podman and runc, apart from what the machine has of both."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.lifecycle import VERSION
from tests.deploy.tools import CACHE, run, tool
from tests.support.serving import ROOT

BASE = "localhost/python-base"
LABELS = {"SOURCE": "https://example.org/headlight", "REVISION": "0123abc", "CREATED": "2001-02-03T04:05:06Z"}
BUILD_S = 1500
_RUN_ROOT = Path("/run/headlight-deploy")
# runc, without systemd and without bridges: containers are on the network of whoever starts them.
_ENGINE = """
[containers]
netns = "host"
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{run_root}/libpod"
[network]
network_backend = "netavark"
"""
_STORAGE = """
[storage]
driver = "overlay"
graphroot = "{cache}/storage"
runroot = "{run_root}/storage"
"""


def prepare() -> None:
    """Have podman and buildah keep all they have in the cache, and know the base image."""
    if os.geteuid() != 0:
        pytest.fail("Images are built and run by root here: run make test-deploy as root.", pytrace=False)
    CACHE.mkdir(parents=True, exist_ok=True)
    for variable, name, text in (
        ("CONTAINERS_CONF", "containers.conf", _ENGINE),
        ("CONTAINERS_STORAGE_CONF", "storage.conf", _STORAGE),
    ):
        path = CACHE / name
        path.write_text(text.format(cache=CACHE, run_root=_RUN_ROOT), encoding="utf-8")
        os.environ[variable] = str(path)
    os.environ["DISABLE_HC_SYSTEMD"] = "true"  # health checks are run when a test asks, not by timers
    if not exists(BASE):
        tar = CACHE / "base.tar"
        if not tar.exists():
            pytest.fail(
                "There is no base image: run tests/deploy/install.sh, or make test-deploy.", pytrace=False
            )
        podman("import", str(tar), BASE, timeout=300)
    # What earlier builds left is of use for some days, and of gigabytes.
    podman("image", "prune", "--force", "--filter", "until=72h", timeout=300)


def podman(*arguments: str, timeout: float = 120, check: bool = True) -> str:
    """Run podman; returns what it prints."""
    return run(tool("podman"), *arguments, timeout=timeout, check=check).strip()


def exists(image: str) -> bool:
    return subprocess.run([tool("podman"), "image", "exists", image], check=False, timeout=60).returncode == 0


def inspect(image_or_container: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads(podman("inspect", image_or_container))
    return found[0]


def build(target: str) -> str:
    """Build a target of the Dockerfile, with the machine's own way to packages; returns the image's name."""
    image = f"localhost/headlight:{VERSION}-{target}"
    # Whichever build of PyTorch this machine's pip finds, unless one is named: uv may not know of it.
    torch = os.environ.get("TORCH_BACKEND", "")
    given = {"BASE_IMAGE": BASE, "CUDA_IMAGE": BASE, "TORCH_BACKEND": torch, **LABELS}
    log = CACHE / f"build-{target}.log"
    with log.open("w", encoding="utf-8") as output:
        code = subprocess.run(
            [
                *(tool("buildah"), "build", "--isolation=chroot", "--format=docker"),
                *("--layers", "--force-rm", "--target", target, "--tag", image),
                *(f"--build-arg={name}={value}" for name, value in given.items()),
                *(f"--volume={path}:{inside}:ro" for path, inside in package_sources().items()),
                str(ROOT),
            ],
            stdout=output,
            stderr=output,
            timeout=BUILD_S,
            check=False,
        ).returncode
    assert code == 0, f"the build of {target} failed:\n{log.read_text(encoding='utf-8')[-6000:]}"
    return image


def package_sources() -> dict[Path, str]:
    """What this machine's pip is told, and the files that it names, as read-only volumes of a build."""
    settings = {}
    for line in run(sys.executable, "-m", "pip", "config", "list").splitlines():
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = ast.literal_eval(value)
    written = CACHE / "pip.conf"
    lines = [f"{name} = {value}" for name, value in settings.items() if value]
    written.write_text("\n".join(["[global]", *lines, ""]), encoding="utf-8")
    named = {word.removeprefix("file://") for value in settings.values() for word in str(value).split()}
    named.add(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))
    paths = {Path(word) for word in named if word.startswith("/") and Path(word).exists()}
    paths = {
        path.parent if path.name == "simple" else path for path in paths
    }  # an index's files lie beside it
    return {written: "/etc/pip.conf", **{path: str(path) for path in sorted(paths)}}


def beyond_base(image: str) -> int:
    """How many bytes an image has unpacked beyond the base it was built upon."""
    return int(inspect(image)["Size"]) - int(inspect(BASE)["Size"])
