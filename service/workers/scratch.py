"""Folders for what the processes of a service share, which do not outlive it."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX, _LOCK = "headlight-", "lock"
# A folder as young as this may be one that is being made.
_YOUNG_S = 60.0


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Make a private folder in `parent` for the `with` block, and remove those that killed services left.

    It is locked by this process and those forked from it, so that others know that it is in use.
    """
    _remove_abandoned(parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        with (folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def temporary() -> Path:
    """Return where temporary files are kept."""
    return Path(tempfile.gettempdir())


def _remove_abandoned(parent: Path) -> None:
    for lock in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            young = time.time() - lock.stat().st_mtime < _YOUNG_S
            if young or lock.parent.lstat().st_uid != os.geteuid():
                continue
            with lock.open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
        except OSError:  # in use, or just removed by its own process
            continue
