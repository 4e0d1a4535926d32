"""What is checked by looking alone: the Dockerfile by hadolint, the compose files by docker-compose."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from service.lifecycle import VERSION
from service.settings import PREFIX, Settings
from tests.deploy.tools import run, tool
from tests.support.serving import ROOT

pytestmark = pytest.mark.deploy

PLAIN, GPU = "deploy/compose/plain.yml", "docker-compose.gpu.yml"
KEYS, MODEL = "deploy/compose/keys.yml", "deploy/compose/model.yml"
COMBINATIONS = [[], [PLAIN], [GPU], [KEYS], [MODEL], [GPU, KEYS, MODEL], [PLAIN, KEYS, MODEL]]
VARIABLES = {"KEYS_FOLDER": "/etc/headlight", "MODEL_FOLDER": "./exported"}


OWN = {"HEADLIGHT_MODEL", "HEADLIGHT_LOG_FORMAT", "HF_HUB_OFFLINE"}
"""What the images set, and whoever starts them may set otherwise."""


def composed(*overrides: str, profile: str = "*", **variables: str) -> Any:
    """The services that docker-compose makes of the files, with nothing set outside but this."""
    files = [word for name in ("docker-compose.yml", *overrides) for word in ("--file", name)]
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    command = [tool("docker-compose"), *files, "--profile", profile, "config", "--format", "json"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=clean | VARIABLES | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)["services"]


def test_hadolint_finds_nothing() -> None:
    """The Dockerfile follows the rules of hadolint, but where it says why not."""
    assert run(tool("hadolint"), ROOT / "Dockerfile") == ""


@pytest.mark.parametrize("overrides", COMBINATIONS, ids=lambda names: "+".join(names) or "alone")
def test_compose_files_are_valid(overrides: list[str]) -> None:
    """Each combination is taken by docker-compose without a warning, with the three services."""
    assert set(composed(*overrides)) == {"headlight", "prometheus", "grafana"}


def test_a_folder_that_is_needed_is_asked_for() -> None:
    """Without a folder of keys nothing starts open."""
    files = ["--file", "docker-compose.yml", "--file", KEYS]
    command = [tool("docker-compose"), *files, "config", "--quiet"]
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    done = subprocess.run(
        command, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "KEYS_FOLDER" in done.stderr


@pytest.mark.parametrize("overrides", COMBINATIONS, ids=lambda names: "+".join(names) or "alone")
def test_every_service_is_hardened_and_bounded(overrides: list[str]) -> None:
    """Read-only, without capabilities, with a limit of memory, a health check and a pinned version."""
    for name, service in composed(*overrides).items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert int(service["mem_limit"]) >= 2**29
        assert service["healthcheck"]
        assert re.fullmatch(
            rf"headlight:{re.escape(VERSION)}-(cpu|gpu)|\S+:v?\d+\.\d+\.\d+", service["image"]
        ), name
        for port in service.get("ports", []):
            assert port["host_ip"] == "127.0.0.1"


def test_services_wait_for_each_other() -> None:
    """Grafana until Prometheus is healthy, which watches the service from its first moment on."""
    services = composed()
    for waiting, awaited, condition in (
        ("prometheus", "headlight", "service_started"),
        ("grafana", "prometheus", "service_healthy"),
    ):
        assert services[waiting]["depends_on"][awaited]["condition"] == condition


def test_a_stop_waits_for_the_drain() -> None:
    """The grace period is longer than what the service may take for accepted requests."""
    grace = re.fullmatch(r"(\d+)s", composed()["headlight"]["stop_grace_period"])
    assert grace is not None
    assert int(grace[1]) > Settings.model_fields["drain_timeout_s"].default + 5


def test_every_setting_is_passed_on() -> None:
    """Those that are set outside, and no others; where it listens is where the port is published."""
    names = {PREFIX + name.upper() for name in Settings.model_fields} - {"HEADLIGHT_HOST", "HEADLIGHT_PORT"}
    passed = composed()["headlight"]["environment"]
    assert {name for name, value in passed.items() if value is not None} == OWN
    outside = {name: f"a {name}" for name in names}
    passed = composed(**outside, HEADLIGHT_HOST="127.0.0.2", HEADLIGHT_PORT="9000")["headlight"]
    assert passed["environment"].items() >= outside.items()
    assert (passed["ports"][0]["host_ip"], passed["ports"][0]["published"]) == ("127.0.0.2", "9000")
    assert composed(KEYS)["headlight"]["environment"]["HEADLIGHT_API_KEYS_FILE"] == "/run/headlight/keys"
    assert composed(BIND_ADDRESS="127.0.0.3")["headlight"]["ports"][0]["host_ip"] == "127.0.0.3"


def test_a_file_of_variables_is_as_good_as_the_shell(tmp_path: Path) -> None:
    """Keys that `.env` names reach the service, which refuses to start without them; so do slips."""
    told = {"HEADLIGHT_API_KEYS_FILE": "./keys", "HEADLIGHT_API_KEY": "x", "HEADLIGHT_DTYPE": "float32"}
    file = tmp_path / ".env"
    file.write_text("".join(f"{name}={value}\n" for name, value in told.items()), encoding="utf-8")
    passed = composed(COMPOSE_ENV_FILES=str(file))["headlight"]["environment"]
    assert passed.items() >= told.items()


@pytest.mark.parametrize(("target", "files"), [("cpu", ()), ("gpu", (GPU,))])
def test_what_the_image_sets_is_not_unset(target: str, files: tuple[str, ...]) -> None:
    """A name without a value takes the image's away: what an image sets has the same value here."""
    passed = composed(*files)["headlight"]["environment"]
    stages = re.split(r"^FROM ", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = {"cpu": ("runtime", "cpu"), "gpu": ("gpu",)}[target]
    told = [
        stage for stage in stages if stage.split("\n")[0].endswith(tuple(f" AS {name}" for name in named))
    ]
    own = dict(re.findall(r"\b(HEADLIGHT_\w+|HF_HUB_OFFLINE)=(\S+)", "".join(told)))
    assert own.keys() >= OWN
    assert {name: passed[name] for name in own if name in passed} == {
        name: value for name, value in own.items() if name in passed
    }


def test_on_a_plain_machine_all_are_on_its_network() -> None:
    """No bridge is asked for, no port is published, and Grafana is there only where it is wanted."""
    services = composed(PLAIN)
    for service in services.values():
        assert service["network_mode"] == "host"
        assert "ports" not in service
        assert set(service["extra_hosts"]) == {f"{name}=127.0.0.1" for name in services}
    assert set(composed(PLAIN, profile="")) == {"headlight", "prometheus"}


def test_with_a_gpu_one_is_reserved() -> None:
    """The override builds the other target and asks for a device."""
    service = composed(GPU)["headlight"]
    assert service["build"]["target"] == "gpu"
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]


def test_nobody_signs_in_to_grafana() -> None:
    """There is no account, so there is no password to guess: whoever reaches it may look."""
    told = composed()["grafana"]["environment"]
    assert told["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert told["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert told["GF_AUTH_BASIC_ENABLED"] == "false"
    assert "GF_SECURITY_ADMIN_PASSWORD" not in told
