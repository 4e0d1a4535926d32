"""A service whose root nobody can write answers everything, and says once what that costs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.test_processes import wait_for_workers, wait_until, workers
from tests.references.checkpoints import write_bert
from tests.support.backends import export_folder
from tests.support.serving import ROOT, Service, answered, assert_problem, environment, serve

_UNSHARE = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
# Other file systems, such as /dev/shm, stay as they are, as in a container.
LAUNCHER = [*_UNSHARE, "sh", "-c", 'mount -o remount,bind,ro / && exec "$@"', "sh"]
KEYS = ("first-key-0123456789", "second-key-0123456789")
NO_FOLDER = "no temporary folder can be written (TMPDIR, /tmp): each process packs its own weights"


def _is_read_only() -> bool:
    """Whether the launcher makes everything read-only that a program would write to."""
    touch = "! touch /tmp/x /var/tmp/x /usr/tmp/x ./x"
    done = subprocess.run([*LAUNCHER, "sh", "-c", touch], cwd=ROOT, capture_output=True, check=False)
    return done.returncode == 0


pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        not _is_read_only(), reason="this user may not mount, or /tmp is a file system of its own"
    ),
]


@pytest.fixture(scope="module", params=["torch", "onnx"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Service, Path]]:
    """A service of two processes on a read-only root, and the file that its keys are in."""
    place = tmp_path_factory.mktemp("outside")
    write_bert(place / "own")
    folder = place / "own" if request.param == "torch" else export_folder(place / "own", place / "graph")
    keys = place / "keys"
    keys.write_text(f"{KEYS[0]}\n", encoding="utf-8")
    with serve(
        launcher=LAUNCHER, model=f"own={folder}", processes=2, api_keys_file=keys, log_format="json"
    ) as started:
        yield started, keys


def test_everything_is_answered(served: tuple[Service, Path]) -> None:
    """Vectors, maps, files, pages and metrics, by both processes, and what a client without a key is told."""
    service, _ = served
    wait_for_workers(service, [])
    pids = workers(service)
    bearer = {"Authorization": f"Bearer {KEYS[0]}"}
    body = {"inputs": ["the man", "hello world"], "layers": [0]}
    for _ in range(10):
        with service.new_client() as client:
            answered(client.post("/encode", json={"inputs": "the man"}, headers=bearer))
            answered(client.post("/v1/embeddings", json={"input": ["the man"] * 300}, headers=bearer))
            for kind in ("application/x-npz", "application/x-safetensors", "application/x-ndjson"):
                found = client.post("/attention", json=body, headers={**bearer, "Accept": kind})
                assert (found.status_code, found.headers["content-type"]) == (200, kind)
    for path in ("/docs", "/explorer", "/metrics", "/openapi.json", "/readyz"):
        assert service.http.get(path).status_code == 200
    assert_problem(service.http.post("/encode", json=body), 401, "unauthorized")
    assert workers(service) == pids


def test_keys_are_read_anew(served: tuple[Service, Path]) -> None:
    """The file lies where somebody else can write."""
    service, keys = served
    part = keys.with_suffix(".part")
    part.write_text(f"{KEYS[1]}\n", encoding="utf-8")
    part.replace(keys)
    wait_until(lambda: [status(service, key) for key in KEYS] == [401, 200], service)


def status(service: Service, key: str) -> int:
    """What a request with a key gets."""
    with service.new_client() as client:
        bearer = {"Authorization": f"Bearer {key}"}
        return client.post("/encode", json={"inputs": "a"}, headers=bearer).status_code


def test_what_is_lost_is_said_once(served: tuple[Service, Path], request: pytest.FixtureRequest) -> None:
    """Of a graph, whose packed weights processes share in a file, and nothing where nothing is lost."""
    service, _ = served
    warned = [line for line in service.log.splitlines() if '"level":"info"' not in line]
    graph = "onnx" in request.node.name
    assert [NO_FOLDER in line for line in warned] == [True] * graph
    assert "Traceback" not in service.log


def test_other_commands_work_there() -> None:
    """A folder is judged, and a service started and measured, whose log is kept in memory."""
    for arguments in (["export.check", "all-MiniLM-L6-v2"], ["export.bench", "--seconds", "0.1"]):
        command = [*LAUNCHER, sys.executable, "-m", *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
