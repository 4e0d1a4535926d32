"""Folders of what the processes of a service share."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from service.workers.scratch import _remove_abandoned, scratch_folder, temporary_folder

_HOLD = """
import sys, time
from pathlib import Path
from typing import IO
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


def test_what_a_killed_service_left_is_removed_at_once_and_nothing_else(tmp_path: Path) -> None:
    """A folder in use stays, and so does what is not ours."""
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
        assert not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["headlight-notes"]


def test_a_folder_that_is_being_made_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is locked, another start cannot tell that it is in use; after a minute, it is not."""
    making: list[Path] = []

    def flock(file: IO[str], how: int) -> None:
        making.extend(tmp_path.iterdir())
        with suppress(OSError):
            _remove_abandoned(tmp_path)
        lock(file, how)

    lock = fcntl.flock
    monkeypatch.setattr("service.workers.scratch.fcntl.flock", flock)
    with scratch_folder(tmp_path) as folder:
        assert len(making) == 1
        assert making[0] != folder
        assert (folder / "lock").exists()
    monkeypatch.undo()
    making[0].mkdir()
    with scratch_folder(tmp_path):
        assert making[0].exists()
    os.utime(making[0], (0, 0))
    with scratch_folder(tmp_path):
        assert not making[0].exists()


def test_a_system_without_temporary_folders_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a read-only root the service starts, and processes of a graph share less."""

    def none_usable() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none_usable)
    with temporary_folder() as folder:
        assert folder is None


def test_a_folder_that_cannot_be_made_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as on a full file system; an error within the block stays what it is."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with temporary_folder() as folder:
        assert folder is None
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary_folder() as folder:
        assert folder is not None
        assert folder.parent == tmp_path
    assert not folder.exists()
    with pytest.raises(OSError, match="mine"), temporary_folder():
        raise OSError("mine")
