"""The image for CPUs, really built and really run: hardened, and on a network without a way out."""

import json
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.contract.test_encode import PAIRS, TEXTS, assert_columns, run_reference, unit
from tests.deploy.containers import LABELS, beyond_base, inspect, podman
from tests.deploy.running import HARDENED, Container, running
from tests.deploy.tools import FACTS
from tests.references.checkpoints import Reference
from tests.references.comparing import distance, relative_distance
from tests.support.backends import Kept
from tests.support.serving import NPZ, ROOT, read_npz

pytestmark = pytest.mark.deploy

BOUND = 1e-4
"""That of the export: a graph beside PyTorch."""


@pytest.fixture(scope="module")
def service(cpu_image: str) -> Iterator[Container]:
    """A container as an operator runs it, with nothing set."""
    with running(cpu_image) as container:
        yield container


def test_the_image_is_small(cpu_image: str) -> None:
    """Unpacked it has at most 600 MB beyond its base."""
    size = beyond_base(cpu_image)
    FACTS.append(f"image cpu: {size / 1e6:.0f} MB beyond its base")
    assert size <= 600e6


def test_the_image_says_what_it_is(cpu_image: str) -> None:
    """It carries the labels of the OCI, with this version, and what the orchestrator is to know."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config = inspect(cpu_image)["Config"]
    labels = {
        name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()
    }
    assert labels["title"] == "headlight", "the name of the command, which that of the distribution is not"
    assert labels["description"] == project["description"]
    assert labels["version"] == project["version"]
    assert labels["licenses"] == project["license"]
    assert {name: labels[name.lower()] for name in LABELS} == LABELS
    assert config["User"] == "10001:10001"
    assert config["StopSignal"] == "SIGTERM"
    assert config["Entrypoint"] == ["headlight"]
    assert config["ExposedPorts"] == {"8000/tcp": {}}
    assert {"HEADLIGHT_HOST=0.0.0.0", "HEADLIGHT_PORT=8000"} <= set(config["Env"])


LOOK = """
import importlib.util, json, os, shutil, sys
print(json.dumps({
    "modules": [n for n in ("torch", "transformers", "pip", "onnx", "service", "onnxruntime")
                if importlib.util.find_spec(n)],
    "programs": [n for n in ("gcc", "cc", "g++", "make", "pip", "pip3", "git") if shutil.which(n)],
    "leftovers": [p for p in ("/pip", "/source", "/wheel", "/root/.cache") if os.path.exists(p)],
    "writable": [p for p in ("/opt/headlight", "/models", "/etc", "/") if os.access(p, os.W_OK)],
}))
"""


def test_only_what_serves_is_in_it(cpu_image: str) -> None:
    """No PyTorch, compiler or pip, nor what they leave, is in the image; its code is not the user's."""
    found = json.loads(podman("run", "--rm", "--entrypoint", "python", cpu_image, "-c", LOOK))
    assert found == {"modules": ["service", "onnxruntime"], "programs": [], "leftovers": [], "writable": []}


@pytest.mark.parametrize("text", [*TEXTS[:4], *PAIRS[:1]])
def test_it_answers_with_the_numbers_of_the_reference(
    service: Container, reference: Reference, text: str | tuple[str, str]
) -> None:
    """Tokens, every hidden state, the vector and every map are those of `transformers`."""
    columns, hidden, maps = run_reference(reference, text)
    inputs = text if isinstance(text, str) else [list(text)]
    (item,) = service.encode(inputs, outputs=["sentence", "tokens"], layers=list(range(7)))["data"]
    assert_columns(item, columns)
    assert relative_distance(item["token_embeddings"], hidden) <= BOUND
    assert distance(item["embedding"], unit(hidden[-1].mean(0))) <= BOUND
    (item,) = service.attention(inputs, decimals=9)["data"]
    assert_columns(item, columns)
    assert distance(item["attention"], maps) <= BOUND


def test_it_answers_in_arrays(service: Container) -> None:
    """The binary formats, whose archives pass through memory alone, are those of the JSON."""
    body = {"inputs": "hello world", "layers": [0]}
    answer = service.http.post("/attention", json=body, headers={"Accept": NPZ})
    arrays, _ = read_npz(answer.content)
    (item,) = service.attention("hello world", layers=[0], decimals=9)["data"]
    assert np.abs(arrays["0.attention"] - np.array(item["attention"])).max() <= 1e-7


def test_it_runs_as_nobody_in_particular(service: Container) -> None:
    """The process is user 10001, without a capability and without a way to gain one."""
    status = service.status()
    assert status["Uid"].split() == ["10001"] * 4
    assert status["Gid"].split() == ["10001"] * 4
    assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert status["NoNewPrivs"] == "1"


def test_its_file_system_is_read_only(service: Container) -> None:
    """Nothing but /tmp can be written, not even what is the user's own."""
    places = "/ /tmp /var/cache/headlight /opt/headlight"
    touch = f"for place in {places}; do touch $place/x 2> /dev/null && rm $place/x && echo $place; done; true"
    assert service.run("sh", "-c", touch) == "/tmp"  # noqa: S108


def test_it_writes_nothing_by_itself(cpu_image: str) -> None:
    """Also where it may, it leaves no file after a start, answers of each kind, a health check and a stop."""
    with running(cpu_image, options=()) as container:
        container.encode(TEXTS[0])
        container.attention(TEXTS[0])
        assert container.http.get("/docs").status_code == 200
        assert container.http.get("/metrics").status_code == 200
        assert container.is_healthy()
        assert container.stop() == 0
        changed = {line.split(" ", 1)[1] for line in podman("diff", container.name).splitlines()}
    mounted = {"/etc", "/run", "/dev", "/proc", "/sys"}  # by the runtime
    assert {path for path in changed if f"/{path.split('/')[1]}" not in mounted} == set()


def test_the_health_check_tells_when_it_is_ready(cpu_image: str) -> None:
    """It fails while the model loads and after the end, succeeds in between, and needs no key."""
    began = time.monotonic()
    with running(cpu_image, wait=False, HEADLIGHT_API_KEYS="a-secret-of-this-test") as container:
        assert not container.is_healthy()
        assert inspect(container.name)["State"]["Health"]["Status"] in {"starting", "unhealthy"}
        while not container.is_healthy():
            assert time.monotonic() - began < 60, container.log()
        FACTS.append(f"image cpu: healthy {time.monotonic() - began:.1f} s after `podman run`")
        assert inspect(container.name)["State"]["Health"]["Status"] == "healthy"
        assert container.http.post("/encode", json={"inputs": "a text"}).status_code == 401
        container.stop()
        assert not container.is_healthy()


def test_it_logs_objects_and_no_texts(service: Container) -> None:
    """Each line is a JSON object, without what was asked."""
    service.encode("a-text-that-nobody-else-sends")
    lines = service.log().splitlines()
    assert any(json.loads(line).get("route") == "/encode" for line in lines)
    assert "a-text-that-nobody-else-sends" not in service.log()


def test_a_model_of_one_s_own_is_mounted(cpu_image: str, kept: Kept, prompted_folder: Path) -> None:
    """An exported folder, mounted read-only, is served under the name that it is given."""
    folder = kept.folder(prompted_folder, "onnx")
    volume = f"--volume={folder}:/models/own:ro"
    with running(cpu_image, options=(*HARDENED, volume), HEADLIGHT_MODEL="own=/models/own") as container:
        assert container.encode("the man")["model"] == "own"


def test_keys_of_a_mounted_folder_are_replaced_without_a_restart(cpu_image: str, tmp_path: Path) -> None:
    """A file that takes the place of another is seen, since the folder is mounted: the new key opens."""
    keys = tmp_path / "keys"
    options = (*HARDENED, f"--volume={tmp_path}:/run/headlight:ro")
    tmp_path.chmod(0o755)

    def write(key: str) -> None:
        part = keys.with_suffix(".part")
        part.write_text(f"{key}\n", encoding="utf-8")
        part.chmod(0o644)
        part.replace(keys)

    write("the-first-key-of-this-test")
    with running(cpu_image, options=options, HEADLIGHT_API_KEYS_FILE="/run/headlight/keys") as container:

        def status(key: str) -> int:
            bearer = {"Authorization": f"Bearer {key}"}
            return container.http.post("/encode", json={"inputs": "a text"}, headers=bearer).status_code

        assert status("the-first-key-of-this-test") == 200
        assert status("the-second-key-of-this-test") == 401
        write("the-second-key-of-this-test")
        until = time.monotonic() + 30
        while status("the-second-key-of-this-test") != 200:
            assert time.monotonic() < until, container.log()
            time.sleep(0.1)
        assert status("the-first-key-of-this-test") == 401


def test_a_model_of_the_hub_is_refused_without_waiting(cpu_image: str) -> None:
    """The image is offline: a hub name ends the start with one sentence."""
    began = time.monotonic()
    with running(cpu_image, wait=False, HEADLIGHT_MODEL="somebody/some-model") as container:
        assert container.exit_code() == 1
        assert "somebody/some-model is neither a folder nor a model that could be fetched" in container.log()
    assert time.monotonic() - began < 30
