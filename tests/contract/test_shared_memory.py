"""A service of several processes depends on no file in memory."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.test_processes import TEXT, wait_for_workers, workers
from tests.support.serving import Service, answered, post, requests_total, serve

_UNSHARE = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
# A file system of a page, and in it a file that takes it.
_FILL = "mount -t tmpfs -o size=4k none /dev/shm && head -c 4096 /dev/zero > /dev/shm/full && exec "
LAUNCHER = [*_UNSHARE, "sh", "-c", f'{_FILL} "$@"', "sh"]


def _can_mount() -> bool:
    return subprocess.run([*LAUNCHER, "true"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not _can_mount(), reason="this user may not mount file systems"),
]


@pytest.fixture(scope="module")
def full() -> Iterator[Service]:
    """A service of two processes whose /dev/shm is full, with API keys in a file."""
    with serve(processes=2, launcher=LAUNCHER) as started:
        wait_for_workers(started, [])
        yield started


def test_a_full_dev_shm_kills_no_process(full: Service) -> None:
    """Both workers answer requests and scrapes, the numbers are right, and no file is there that was not."""
    before, answered_requests = workers(full), requests_total("/encode")
    for i in range(1, 21):
        with full.new_client() as client:
            answered(client.post("/encode", json=TEXT))
        full.wait_for_metric(answered_requests, i)  # the other process may not have counted it yet
        assert full.metrics()[answered_requests] == i
    assert post(full, {"inputs": []}).status_code == 422
    assert workers(full) == before
    assert full.metrics()["headlight_ready{}"] == 1
    inside = Path(f"/proc/{full.process.pid}/root/dev/shm")
    assert [path.name for path in inside.iterdir()] == ["full"]
