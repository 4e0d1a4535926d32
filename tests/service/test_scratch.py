"""Folders of what the processes of a service share."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from service.workers.scratch import scratch_folder

_HOLD = """
import sys, time
from pathlib import Path
from service.workers.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "weights").write_bytes(bytes(10))
    print(folder, flush=True)
    time.sleep(60)
"""


def test_a_folder_is_private_and_gone_at_the_end(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as folder:
        assert folder.parent == tmp_path
        assert folder.stat().st_mode & 0o077 == 0
        (folder / "file").touch()
    assert not list(tmp_path.iterdir())


def test_an_error_removes_it_too(tmp_path: Path) -> None:
    with pytest.raises(KeyError), scratch_folder(tmp_path):
        raise KeyError
    assert not list(tmp_path.iterdir())


def test_what_a_killed_service_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    """A folder in use stays, and so do one that is being made and what is not ours."""
    (tmp_path / "headlight-notes").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            left = Path(process.stdout.readline().strip())
            os.utime(left / "lock", (0, 0))
            with scratch_folder(tmp_path):
                assert (left / "weights").exists(), "it is in use"
        finally:
            process.send_signal(signal.SIGKILL)
    (left / "lock").touch()
    with scratch_folder(tmp_path):
        assert left.exists(), "it is as young as one that is being made"
    os.utime(left / "lock", (0, 0))
    with scratch_folder(tmp_path):
        assert not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["headlight-notes"]
